/* How a signal ends a loop, which may run for hours in C: between iterations, but no more often
   than a signal deserves, Python's handlers run. Where one raises, its error stays set, no step
   runs after the loop, and the caller sees the error. What renews variables stands behind every
   loop of a plan. support.c follows this text. */

#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#ifdef __APPLE__
#include <pthread.h>
#endif

static int64_t nanoseconds(void);

enum { MG_LOOK_EVERY = 50000000, MG_MOST_UNSEEN = 256 }; /* nanoseconds; iterations */

static struct {
    void* (*leave)(void);
    void (*enter)(void* state);
    int (*ensure)(void);
    void (*release)(int state);
    int (*look)(void);
} python;

/* Join Python's PyEval_SaveThread, PyEval_RestoreThread, PyGILState_Ensure, PyGILState_Release
   and PyErr_CheckSignals, in this order. */
void mg_set_python(void* leave, void* enter, void* ensure, void* release, void* look)
{
    python.leave = (void* (*)(void))leave;
    python.enter = (void (*)(void*))enter;
    python.ensure = (int (*)(void))ensure;
    python.release = (void (*)(int))release;
    python.look = (int (*)(void))look;
}

static _Thread_local int listening;   /* the caller takes an error from this thread's steps */
static _Thread_local int ending;      /* a loop of this thread was ended, its steps return */
static _Atomic int endings;           /* threads whose steps return; nearly always none */
static _Atomic int64_t looked;        /* when handlers were last given a chance */

/* The two that steps and iterations ask: inlined at every level of optimization. */
#define MG_INLINE static inline __attribute__((always_inline))

MG_INLINE int ends(void)
{
    return atomic_load_explicit(&endings, memory_order_relaxed) && ending;
}

/* Python runs handlers in its main thread alone; others need not wait for its lock. */
static int on_main_thread(void)
{
#if defined(__linux__)
    return syscall(SYS_gettid) == getpid();
#elif defined(__APPLE__)
    return pthread_main_np();
#else
    return 1;
#endif
}

static __attribute__((noinline)) int look(mg_pace* pace)
{
    int64_t now = nanoseconds(), took = now - pace->read;
    if (took > MG_LOOK_EVERY) pace->pace = 1;
    else if (took < MG_LOOK_EVERY / 4 && pace->pace < MG_MOST_UNSEEN) pace->pace *= 2;
    pace->left = pace->pace;
    pace->read = now;
    if (now - atomic_load_explicit(&looked, memory_order_relaxed) < MG_LOOK_EVERY) return 0;
    if (!listening || !on_main_thread()) return 0;
    atomic_store_explicit(&looked, now, memory_order_relaxed);
    int state = python.ensure();
    ending = python.look() != 0;
    python.release(state);
    if (ending) atomic_fetch_add(&endings, 1);
    return ending;
}

/* Return whether a handler raised, so that the loop ends here. */
MG_INLINE int interrupted(mg_pace* pace)
{
    return --pace->left <= 0 && look(pace);
}

/* Steps between the two are left when a loop is ended. With Python's lock held. */
static void* listen_to_signals(int* before)
{
    *before = listening;
    listening = 1;
    return python.leave();
}

static void forget_ending(void)
{
    if (!ending) return;
    ending = 0;
    atomic_fetch_sub(&endings, 1);
}

static void stop_listening(void* state, int before)
{
    listening = before;
    forget_ending();
    python.enter(state);
}

