/* What generated kernels and BLAS stand on: a pool of threads, the list of steps, copies.
   support.py puts its declarations before this text. */

#include <string.h>
#include <time.h>

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#ifdef MG_NO_THREADS /* an exported program can do without */

void mg_share(mg_body body, void* context, int64_t max_threads, int64_t work)
{
    (void)max_threads, (void)work;
    body(context, 0, 1);
}

void mg_parallel(mg_body body, void* context, int64_t max_threads)
{
    (void)max_threads;
    body(context, 0, 1);
}

int64_t mg_thread_count(void) { return 1; }

int64_t mg_set_threads(int64_t threads, int64_t spin)
{
    (void)threads, (void)spin;
    return 1;
}

typedef int mg_gate;
static mg_gate commit_gate;
static void enter(mg_gate* gate) { (void)gate; }
static void leave(mg_gate* gate) { (void)gate; }

#else
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

enum { MG_MAX_THREADS = 512, MG_FAN_OUT = 4, MG_CACHE_LINE = 128 };
enum { MG_WAKING = 1 << 21 }; /* units of work, some 0.05 ns each, that are worth waking a thread */

/* ---- The pool ---------------------------------------------------------------------------

   A worker waits for its own ticket to change: it spins for some microseconds, because the next
   step of a plan is usually that close, and then sleeps. One caller at a time owns the pool. A
   second one, and a call from inside a body, runs its body alone, as thread 0 of 1.

   A ticket is claimed before its share is done: by the worker, or by the owner where it has done
   its own share and the worker has not begun. On cores that other programs use, too, a worker may
   be late by many times what there is to do. */

typedef struct {
    _Alignas(MG_CACHE_LINE) _Atomic uint64_t ticket;
    _Atomic uint64_t claimed; /* the last ticket whose share is somebody's: this one or the last */
    _Atomic int sleeping;
    _Atomic int64_t thread; /* as the system numbers it */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
} mg_worker;

static mg_worker workers[MG_MAX_THREADS];

static struct {
    pthread_mutex_t owner;       /* held by the caller whose body runs */
    pthread_mutex_t blas;        /* held by the caller whose BLAS jobs run */
    _Atomic int64_t limit;       /* threads of a team, its caller included */
    _Atomic int64_t spin;        /* nanoseconds to spin before sleeping */
    int64_t started;             /* workers that exist, numbered from 1; changed by the owner */
    mg_body body;
    void* context;
    int64_t team;
    _Atomic int core;            /* that the owner ran on when it posted */
    int64_t alone;               /* work that its owners did because workers slept */
    int64_t ended;               /* when the last of it was done */
#ifdef __linux__
    _Atomic unsigned long cores[16]; /* that an owner may use, found when a worker was woken */
    _Atomic long cores_size;         /* their bytes; 0: not known */
#endif
    _Alignas(MG_CACHE_LINE) _Atomic int64_t pending; /* workers that have not finished the body */
    _Atomic int waiting;                             /* the owner sleeps until they have */
    pthread_mutex_t mutex;
    pthread_cond_t done;
} pool = {
    .owner = PTHREAD_MUTEX_INITIALIZER,
    .blas = PTHREAD_MUTEX_INITIALIZER,
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
    .limit = 1,
};

static _Thread_local int inside; /* this thread runs a body */

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ __volatile__("yield");
#endif
}

/* Spin until *place differs from old, or for the pool's time. The clock is read rarely: it costs
   as much as some pauses. */
static int changes_soon(_Atomic uint64_t* place, uint64_t old)
{
    int64_t budget = atomic_load_explicit(&pool.spin, memory_order_relaxed);
    if (budget <= 0) return atomic_load_explicit(place, memory_order_acquire) != old;
    int64_t end = nanoseconds() + budget;
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(place, memory_order_acquire) != old) return 1;
            relax();
        }
    } while (nanoseconds() < end);
    return 0;
}

/* The flag `sleeping` and the ticket are each written before the other is read, in one total
   order, so that either the sleeper sees the ticket or the poster sees the sleeper. */
static uint64_t next_ticket(mg_worker* self, uint64_t seen)
{
    if (!changes_soon(&self->ticket, seen)) {
        pthread_mutex_lock(&self->mutex);
        atomic_store(&self->sleeping, 1);
        while (atomic_load(&self->ticket) == seen) pthread_cond_wait(&self->wake, &self->mutex);
        atomic_store(&self->sleeping, 0);
        pthread_mutex_unlock(&self->mutex);
    }
    return atomic_load_explicit(&self->ticket, memory_order_acquire);
}

/* ---- Cores ---- Linux likes to wake a thread on the core of the one that wakes it, or to move the
   one to the other's, where they take turns while another core is free. So a sleeper may run
   anywhere else when it is woken, and a worker that finds itself on its owner's core leaves it. */

#ifdef __linux__
extern int sched_getcpu(void); /* quick: without a call of the system */

static int here(void) { return sched_getcpu(); }

enum { MG_CORE_WORDS = sizeof(pool.cores) / sizeof(*pool.cores) };

/* Let a thread (0: this one) run on any of the owner's cores but one. */
static void keep_off(pid_t thread, int core)
{
    const int bits = 8 * sizeof(unsigned long);
    unsigned long cores[MG_CORE_WORDS], any = 0;
    long size = atomic_load_explicit(&pool.cores_size, memory_order_relaxed);
    if (core < 0 || core >= 8 * size) return;
    for (int i = 0; i < MG_CORE_WORDS; i++)
        cores[i] = atomic_load_explicit(&pool.cores[i], memory_order_relaxed);
    cores[core / bits] &= ~(1ul << core % bits);
    for (size_t i = 0; i < (size_t)size / sizeof(*cores); i++) any |= cores[i];
    if (any) syscall(SYS_sched_setaffinity, thread, (size_t)size, cores);
}

static void keep_apart(mg_worker* worker)
{
    int64_t thread = atomic_load_explicit(&worker->thread, memory_order_relaxed);
    if (thread) keep_off((pid_t)thread, here());
}

static void find_cores(void)
{
    unsigned long cores[MG_CORE_WORDS] = { 0 };
    long size = syscall(SYS_sched_getaffinity, 0, sizeof(cores), cores);
    for (int i = 0; i < MG_CORE_WORDS; i++)
        atomic_store_explicit(&pool.cores[i], cores[i], memory_order_relaxed);
    atomic_store_explicit(&pool.cores_size, size > 0 ? size : 0, memory_order_relaxed);
}
#else
static int here(void) { return -1; }
static void keep_off(int thread, int core) { (void)thread, (void)core; }
static void keep_apart(mg_worker* worker) { (void)worker; }
static void find_cores(void) { }
#endif

static void post(mg_worker* worker)
{
    atomic_fetch_add(&worker->ticket, 1);
    if (atomic_load(&worker->sleeping)) {
        keep_apart(worker);
        pthread_mutex_lock(&worker->mutex);
        pthread_cond_signal(&worker->wake);
        pthread_mutex_unlock(&worker->mutex);
    }
}

/* Waking a thread takes microseconds, so those who are awake help: member i wakes the members
   4 i + 1 to 4 i + 4. */
static void wake_children(int64_t member, int64_t team)
{
    int64_t first = member * MG_FAN_OUT + 1;
    for (int64_t i = first; i < first + MG_FAN_OUT && i < team; i++) post(&workers[i]);
}

/* Whether a ticket's share is the caller's now. No other ticket is posted before it is done. */
static int claim(mg_worker* worker, uint64_t ticket)
{
    uint64_t last = ticket - 1;
    return atomic_compare_exchange_strong(&worker->claimed, &last, ticket);
}

static void* work(void* argument)
{
    int64_t member = (int64_t)(intptr_t)argument;
    mg_worker* self = &workers[member];
    uint64_t seen = 0;
    inside = 1;
#ifdef __linux__
    atomic_store(&self->thread, syscall(SYS_gettid));
#endif
    for (;;) {
        seen = next_ticket(self, seen);
        /* First, whosever its share is: on one core the owner may be before it. */
        int core = atomic_load_explicit(&pool.core, memory_order_relaxed);
        if (atomic_load_explicit(&pool.spin, memory_order_relaxed) > 0 && here() == core)
            keep_off(0, core);
        if (!claim(self, seen)) continue; /* what the pool holds now may be the next call's */
        wake_children(member, pool.team);
        pool.body(pool.context, member, pool.team);
        if (atomic_fetch_sub(&pool.pending, 1) == 1 && atomic_load(&pool.waiting)) {
            pthread_mutex_lock(&pool.mutex);
            pthread_cond_signal(&pool.done);
            pthread_mutex_unlock(&pool.mutex);
        }
    }
    return NULL;
}

/* Start workers up to a team; the caller owns the pool. Signals are left to Python's threads. */
static int64_t start_workers(int64_t team)
{
    if (team > MG_MAX_THREADS) team = MG_MAX_THREADS;
    if (pool.started + 1 >= team) return team;
    find_cores();
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (pool.started + 1 < team) {
        int64_t member = pool.started + 1;
        mg_worker* worker = &workers[member];
        pthread_t thread;
        atomic_store(&worker->ticket, 0);
        atomic_store(&worker->claimed, 0);
        atomic_store(&worker->sleeping, 0);
        atomic_store(&worker->thread, 0);
        pthread_mutex_init(&worker->mutex, NULL);
        pthread_cond_init(&worker->wake, NULL);
        if (pthread_create(&thread, &attributes, work, (void*)(intptr_t)member)) break;
        pool.started = member;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool.started + 1;
}

/* Do the shares that were posted and that no worker has begun. */
static void help(mg_body body, void* context, int64_t team)
{
    for (int64_t member = 1; member < team; member++) {
        if (!claim(&workers[member], atomic_load(&workers[member].ticket))) continue;
        wake_children(member, team);
        body(context, member, team);
        atomic_fetch_sub(&pool.pending, 1);
    }
}

/* The members of a team, from the first on, that need not be woken. */
static int64_t awake(int64_t team)
{
    int64_t count = 1;
    while (count < team && !atomic_load_explicit(&workers[count].sleeping, memory_order_relaxed))
        count++;
    return count;
}

/* Whether a team that sleeps is to be woken for so much work. Who is woken begins when others have
   done much. So what is small is done by those who are awake, until as much of it as is worth waking
   all has come with no more time between than a worker spins. */
static int worth_waking(int64_t work)
{
    int64_t pause = nanoseconds() - pool.ended;
    if (pause > atomic_load_explicit(&pool.spin, memory_order_relaxed)) pool.alone = 0;
    pool.alone += work < MG_WAKING ? work : MG_WAKING;
    if (pool.alone < MG_WAKING) return 0;
    pool.alone = 0;
    return 1;
}

/* Run a body on a team that exists; the caller owns the pool. Shares that wait for one another
   must run together. */
static void run_team(mg_body body, void* context, int64_t team, int together)
{
    pool.body = body;
    pool.context = context;
    pool.team = team;
    atomic_store_explicit(&pool.core, here(), memory_order_relaxed);
    if (awake(team) < team) find_cores();
    atomic_store(&pool.pending, team - 1);
    inside = 1;
    wake_children(0, team);
    body(context, 0, team);
    if (!together) help(body, context, team);
    inside = 0;
    int64_t budget = atomic_load_explicit(&pool.spin, memory_order_relaxed);
    int64_t end = budget > 0 ? nanoseconds() + budget : 0;
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&pool.pending, memory_order_acquire) == 0) return;
            relax();
        }
    } while (end && nanoseconds() < end);
    pthread_mutex_lock(&pool.mutex);
    atomic_store(&pool.waiting, 1);
    while (atomic_load(&pool.pending) != 0) pthread_cond_wait(&pool.done, &pool.mutex);
    atomic_store(&pool.waiting, 0);
    pthread_mutex_unlock(&pool.mutex);
}

static void share_out(mg_body body, void* context, int64_t max_threads, int64_t work, int judged)
{
    int64_t team = atomic_load_explicit(&pool.limit, memory_order_relaxed);
    if (max_threads < team) team = max_threads;
    if (team <= 1 || inside || pthread_mutex_trylock(&pool.owner)) {
        body(context, 0, 1);
        return;
    }
    team = start_workers(team);
    mg_worth* worth = judged && team > 1 ? worth_of(body, work, team) : NULL;
    int64_t ready = awake(team), began = 0;
    int alone = alone_now(worth), wakes = ready == team || alone || worth_waking(work);
    int timed = timed_now(worth, ready);
    if (alone) team = 1;
    else if (!wakes) team = ready;
    if (timed) began = nanoseconds();
    if (team > 1) run_team(body, context, team, 0);
    else body(context, 0, 1);
    if (worth) learn(worth, timed ? nanoseconds() - began + 1 : 0);
    if (!wakes) pool.ended = nanoseconds();
    pthread_mutex_unlock(&pool.owner);
}

void mg_share(mg_body body, void* context, int64_t max_threads, int64_t work)
{
    /* Where threads take turns on a core, which way is faster is told by who had it. */
    int judged = atomic_load_explicit(&pool.spin, memory_order_relaxed) > 0;
    share_out(body, context, max_threads, work, judged);
}

void mg_parallel(mg_body body, void* context, int64_t max_threads)
{
    share_out(body, context, max_threads, MG_WAKING, 0);
}

int64_t mg_thread_count(void) { return atomic_load_explicit(&pool.limit, memory_order_relaxed); }

/* ---- Forks ------------------------------------------------------------------------------

   A child has one thread. The pool is forgotten there, to be started anew. OpenBLAS is less
   forgiving: a fork during a product of another thread hangs the child, and often the parent. And
   steps that write variables would leave the child some of before and some of after. So a fork waits
   until the products of this runtime and such steps have ended, and holds back new ones. */

typedef struct {
    _Atomic int64_t active; /* threads inside */
    _Atomic int forking;
    pthread_mutex_t mutex; /* held while forking */
} mg_gate;

static mg_gate blas_gate = { .mutex = PTHREAD_MUTEX_INITIALIZER };
static mg_gate commit_gate = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static void enter(mg_gate* gate)
{
    for (;;) {
        atomic_fetch_add(&gate->active, 1);
        if (!atomic_load(&gate->forking)) return;
        atomic_fetch_sub(&gate->active, 1);
        pthread_mutex_lock(&gate->mutex);
        pthread_mutex_unlock(&gate->mutex);
    }
}

static void leave(mg_gate* gate) { atomic_fetch_sub(&gate->active, 1); }

static void close_gate(mg_gate* gate)
{
    struct timespec moment = { 0, 20000 };
    pthread_mutex_lock(&gate->mutex);
    atomic_store(&gate->forking, 1);
    while (atomic_load(&gate->active)) nanosleep(&moment, NULL);
}

static void open_gate(mg_gate* gate)
{
    atomic_store(&gate->forking, 0);
    pthread_mutex_unlock(&gate->mutex);
}

static void renew_gate(mg_gate* gate)
{
    pthread_mutex_init(&gate->mutex, NULL);
    atomic_store(&gate->active, 0);
    atomic_store(&gate->forking, 0);
}

static void enter_blas(void) { enter(&blas_gate); }

static void leave_blas(void) { leave(&blas_gate); }

/* Commits first: their products, on threads of the pool, too, still pass the other gate. */
static void before_fork(void)
{
    close_gate(&commit_gate);
    close_gate(&blas_gate);
}

static void after_fork_in_parent(void)
{
    open_gate(&blas_gate);
    open_gate(&commit_gate);
}

/* Locks may be held by threads that the child has not. */
static void after_fork_in_child(void)
{
    renew_gate(&blas_gate);
    renew_gate(&commit_gate);
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.blas, NULL);
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.started = 0;
    pool.alone = 0;
    atomic_store(&pool.pending, 0);
    atomic_store(&pool.waiting, 0);
    inside = 0;
}

/* After BLAS is loaded: what is registered last is called first before a fork. */
void mg_watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* Set the size of teams, and how long to spin; returns the threads that there are. */
int64_t mg_set_threads(int64_t threads, int64_t spin)
{
    pthread_mutex_lock(&pool.owner);
    int64_t got = start_workers(threads < 1 ? 1 : threads);
    atomic_store(&pool.limit, got);
    atomic_store(&pool.spin, spin);
    pthread_mutex_unlock(&pool.owner);
    return got;
}

const mg_support mg_table = { mg_parallel, mg_share, mg_thread_count, enter_blas, leave_blas };

/* ---- BLAS on the same pool --------------------------------------------------------------

   OpenBLAS hands its jobs to this function where it is told to (openblas_set_threads_callback_
   function). Two pools on the same cores cost milliseconds: each spins while the other works.
   The jobs of a product wait for one another, so all must run at once: never one after another.
   Their scratch memory belongs to the job's number, so two callers take turns. */

typedef struct {
    void (*job)(int, void*, int);
    char* data;
    size_t size;
    int extra;
    int64_t number; /* of the one job that an extra thread runs */
} mg_jobs;

static void run_job(void* context, int64_t thread, int64_t threads)
{
    mg_jobs* jobs = context;
    (void)threads;
    jobs->job((int)thread, jobs->data + (size_t)thread * jobs->size, jobs->extra);
}

static void* run_extra_job(void* context)
{
    inside = 1;
    run_job(context, ((mg_jobs*)context)->number, 0);
    return NULL;
}

/* From inside a body, whose team is taken: threads for this once. */
static void run_jobs_apart(mg_jobs* jobs, int64_t count)
{
    pthread_t threads[MG_MAX_THREADS];
    mg_jobs each[MG_MAX_THREADS];
    for (int64_t i = 1; i < count; i++) {
        each[i] = *jobs;
        each[i].number = i;
        if (pthread_create(&threads[i], NULL, run_extra_job, &each[i])) {
            static const char why[] = "magmagraph: no thread can be started for a matrix product\n";
            if (write(2, why, sizeof why - 1) < 0) {
            }
            __builtin_abort(); /* the jobs that run would wait for this one without end */
        }
    }
    run_job(jobs, 0, 0);
    for (int64_t i = 1; i < count; i++) pthread_join(threads[i], NULL);
}

void mg_blas_jobs(int sync, void (*job)(int, void*, int), int count, size_t size, void* data,
                  int extra)
{
    mg_jobs jobs = { job, data, size, extra, 0 };
    (void)sync;
    pthread_mutex_lock(&pool.blas);
    if (count <= 1) {
        run_job(&jobs, 0, 1);
    } else if (inside || count > MG_MAX_THREADS) {
        run_jobs_apart(&jobs, count);
    } else {
        pthread_mutex_lock(&pool.owner);
        int64_t team = start_workers(count);
        if (team >= count) run_team(run_job, &jobs, count, 1);
        pthread_mutex_unlock(&pool.owner);
        if (team < count) run_jobs_apart(&jobs, count);
    }
    pthread_mutex_unlock(&pool.blas);
}

#endif

/* ---- The list of steps ------------------------------------------------------------------- */

/* Called by a step that cannot give its result: no step runs after it, nor after the loop that it
   is in. The caller learns the step's number from what the run returns. */
void mg_fail(void)
{
    if (ending) return;
    ending = 1;
    atomic_fetch_add(&endings, 1);
}

int64_t mg_run(const mg_step* steps, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        steps[i].function(steps[i].arguments);
        if (ends()) return i;
    }
    return count;
}

/* As mg_run, where steps from `first` on write variables: no fork comes between those. */
int64_t mg_run_commit(const mg_step* steps, int64_t count, int64_t first)
{
    int64_t ran = mg_run(steps, first);
    if (ran < first) return ran;
    enter(&commit_gate);
    ran += mg_run(steps + first, count - first);
    leave(&commit_gate);
    return ran;
}

int64_t mg_run_timed(const mg_step* steps, int64_t count, int64_t* taken)
{
    int64_t before = nanoseconds();
    for (int64_t i = 0; i < count; i++) {
        steps[i].function(steps[i].arguments);
        if (ends()) return i;
        int64_t after = nanoseconds();
        taken[i] = after - before;
        before = after;
    }
    return count;
}

/* As mg_run, for a caller that is no Python: what stopped a run stops no later one. */
int64_t mg_run_alone(const mg_step* steps, int64_t count)
{
    int64_t ran = mg_run(steps, count);
    forget_ending();
    return ran;
}

/* As these, called with Python's lock held, where signals may end a loop. */
int64_t mg_run_listening(const mg_step* steps, int64_t count)
{
    int before;
    void* state = listen_to_signals(&before);
    int64_t ran = mg_run(steps, count);
    stop_listening(state, before);
    return ran;
}

int64_t mg_run_commit_listening(const mg_step* steps, int64_t count, int64_t first)
{
    int before;
    void* state = listen_to_signals(&before);
    int64_t ran = mg_run_commit(steps, count, first);
    stop_listening(state, before);
    return ran;
}

int64_t mg_run_timed_listening(const mg_step* steps, int64_t count, int64_t* taken)
{
    int before;
    void* state = listen_to_signals(&before);
    int64_t ran = mg_run_timed(steps, count, taken);
    stop_listening(state, before);
    return ran;
}

/* ---- Steps that hold bodies --------------------------------------------------------------

   A body is a list of steps whose cells hold addresses; nested.py fills in these tables. A carry
   lies in one of two buffers by turns, so that an iteration reads the one and writes the other;
   the first reads where it starts. */

static void* before(const mg_carry* carry, void** arguments, int64_t ran)
{
    return ran ? carry->buffers[(ran - 1) & 1] : arguments[carry->start];
}

/* Set every cell for one iteration: the row `at`, after `ran` others. */
static void set_cells(const mg_nest* nest, void** arguments, int64_t at, int64_t ran)
{
    for (int64_t i = 0; i < nest->cell_count; i++) {
        const mg_cell* cell = &nest->cells[i];
        switch (cell->kind) {
        case MG_ROW:
            *cell->cell = (char*)arguments[cell->argument] + at * cell->stride;
            break;
        case MG_BEFORE:
            *cell->cell = before(&nest->carries[cell->argument], arguments, ran);
            break;
        case MG_AFTER:
            *cell->cell = nest->carries[cell->argument].buffers[ran & 1];
            break;
        default:
            *cell->cell = arguments[cell->argument];
        }
    }
}

/* Cells: the nest, the results, the carries' starts, the stacks, what is read. */
void mg_loop(void** cells)
{
    mg_nest* nest = cells[0];
    void** arguments = cells + 1;
    const char* flags = NULL;
    int64_t ran = 0;
    if (nest->flag) {
        for (int64_t i = 0; i < nest->row_count; i++)
            memset(arguments[nest->rows[i].argument], 0, (size_t)nest->rows[i].bytes);
    }
    if (nest->flag == MG_FLAG_STACK)
        flags = arguments[nest->carry_count + nest->row_count + nest->carry_count];
    for (int64_t step = 0; nest->length < 0 || step < nest->length; step++) {
        int64_t at = nest->reverse ? nest->length - 1 - step : step;
        if (nest->flag == MG_FLAG_CARRY && !*(const char*)before(nest->carries, arguments, ran))
            break;
        if (flags && !flags[at]) continue;
        set_cells(nest, arguments, at, ran);
        mg_run(nest->steps, nest->count);
        ran++;
        if (ends() || interrupted(&nest->pace)) return;
    }
    for (int64_t i = 0; i < nest->carry_count; i++) {
        const mg_carry* carry = &nest->carries[i];
        memcpy(arguments[carry->end], before(carry, arguments, ran), (size_t)carry->bytes);
    }
}

static int64_t index_of(const mg_choice* choice, const void* place)
{
    int natural = choice->unsigned_index != 0;
    switch (choice->index_bytes) {
    case 1: return natural ? (int64_t)*(const uint8_t*)place : (int64_t)*(const int8_t*)place;
    case 2: return natural ? (int64_t)*(const uint16_t*)place : (int64_t)*(const int16_t*)place;
    case 4: return natural ? (int64_t)*(const uint32_t*)place : (int64_t)*(const int32_t*)place;
    default: {
        int64_t value = *(const int64_t*)place;
        return natural && value < 0 ? INT64_MAX : value;
    }
    }
}

/* Cells: the choice, the results, the index, the operands. */
void mg_branch(void** cells)
{
    const mg_choice* choice = cells[0];
    void** arguments = cells + 1;
    int64_t chosen = index_of(choice, arguments[choice->results]);
    if (chosen >= choice->count) chosen = choice->count - 1;
    const mg_nest* nest = &choice->nests[chosen < 0 ? 0 : chosen];
    set_cells(nest, arguments, 0, 0);
    mg_run(nest->steps, nest->count);
}

/* Of bodies with a step that may call mg_fail. The names tell Python to look how far a run came. */
void mg_loop_may_fail(void** cells) { mg_loop(cells); }
void mg_branch_may_fail(void** cells) { mg_branch(cells); }

/* ---- Copies ------------------------------------------------------------------------------ */

enum { MG_COPY_SHARE = 1 << 19 }; /* bytes that are worth a thread */
enum { MG_COPIED = 3 };            /* bytes that are a unit of work */

typedef struct {
    char* out;
    const char* in; /* NULL: zeros */
    int64_t bytes;
} mg_block;

static void copy_part(void* context, int64_t thread, int64_t threads)
{
    mg_block* block = context;
    int64_t begin, end;
    mg_split(block->bytes, 4096, thread, threads, &begin, &end);
    if (block->in) memcpy(block->out + begin, block->in + begin, (size_t)(end - begin));
    else memset(block->out + begin, 0, (size_t)(end - begin));
}

static void copy_bytes(void* out, const void* in, int64_t bytes)
{
    mg_block block = { out, in, bytes };
    if (bytes <= 0 || out == in) return;
    mg_share(copy_part, &block, bytes / MG_COPY_SHARE, bytes / MG_COPIED);
}

/* arguments: out, in, bytes */
void mg_copy(void** arguments)
{
    copy_bytes(arguments[0], arguments[1], (int64_t)arguments[2]);
}

/* arguments: out, bytes */
void mg_zero(void** arguments) { copy_bytes(arguments[0], NULL, (int64_t)arguments[1]); }

/* ---- Rows at positions -------------------------------------------------------------------- */

typedef struct {
    char* out;
    const char* in;
    const void* positions;
    int64_t parts, extent, count, bytes, wrap, wide;
} mg_taken;

/* `left` rows from row i of a part on. Rows of one number have loops of their own: a copy is no
   call. */
#define MG_TAKE_ROWS(BYTES, INDEX, WRAP)                                                           \
    do {                                                                                           \
        const INDEX* at = t->positions;                                                            \
        const int64_t extent = t->extent, count = t->count, bytes = BYTES;                         \
        for (; left > 0; i = 0, in += extent * bytes) {                                            \
            int64_t end = left < count - i ? i + left : count;                                     \
            left -= end - i;                                                                       \
            for (; i < end; i++, to += bytes)                                                      \
                memcpy(to, in + bytes * mg_position(at[i], extent, WRAP), (size_t)(bytes));        \
        }                                                                                          \
    } while (0)
#define MG_TAKE(INDEX, WRAP)                                                                       \
    do {                                                                                           \
        if (t->bytes == 4) MG_TAKE_ROWS(4, INDEX, WRAP);                                           \
        else if (t->bytes == 8) MG_TAKE_ROWS(8, INDEX, WRAP);                                      \
        else MG_TAKE_ROWS(t->bytes, INDEX, WRAP);                                                  \
    } while (0)

static void take_part(void* context, int64_t thread, int64_t threads)
{
    const mg_taken* t = context;
    int64_t begin, end;
    mg_split(t->parts * t->count, 1, thread, threads, &begin, &end);
    int64_t i = begin % t->count, left = end - begin;
    const char* in = t->in + begin / t->count * t->extent * t->bytes;
    char* to = t->out + begin * t->bytes;
    if (t->wide && t->wrap) MG_TAKE(int64_t, 1);
    else if (t->wide) MG_TAKE(int64_t, 0);
    else if (t->wrap) MG_TAKE(int32_t, 1);
    else MG_TAKE(int32_t, 0);
}

/* arguments: out, in, positions, parts, rows of a part, rows that are taken of each, bytes of a
   row, whether positions wrap around, whether they have 64 bits */
void mg_take(void** arguments)
{
    mg_taken t = {arguments[0],          arguments[1],          arguments[2],
                  (int64_t)arguments[3], (int64_t)arguments[4], (int64_t)arguments[5],
                  (int64_t)arguments[6], (int64_t)arguments[7], (int64_t)arguments[8]};
    int64_t bytes = t.parts * t.count * (t.bytes + 16);
    if (t.parts * t.count > 0)
        mg_share(take_part, &t, bytes / MG_COPY_SHARE, bytes / MG_COPIED);
}

/* ---- Arrays side by side ------------------------------------------------------------------

   Every row of the result takes a block of bytes of each array; what no array fills is zero. */

typedef struct {
    char* out;
    void** parts; /* in, where in a row, bytes of a block, where in a row of in, its bytes */
    int64_t count;
    int64_t rows;
    int64_t width; /* bytes of a row of the result */
} mg_joined;

static void join_part(void* context, int64_t thread, int64_t threads)
{
    mg_joined* joined = context;
    int64_t begin, end;
    mg_split(joined->rows, 1, thread, threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        char* out = joined->out + row * joined->width;
        int64_t filled = 0;
        for (int64_t i = 0; i < joined->count; i++) {
            void** part = joined->parts + 5 * i;
            const char* in = (const char*)part[0] + (int64_t)part[3];
            int64_t at = (int64_t)part[1], bytes = (int64_t)part[2], step = (int64_t)part[4];
            if (at > filled) memset(out + filled, 0, (size_t)(at - filled));
            memcpy(out + at, in + row * step, (size_t)bytes);
            filled = at + bytes;
        }
        if (joined->width > filled) memset(out + filled, 0, (size_t)(joined->width - filled));
    }
}

/* arguments: out, arrays, rows, bytes of a row; for each array in, where in a row, bytes, where
   they are in a row of in, bytes of such a row */
void mg_join(void** arguments)
{
    mg_joined joined = {arguments[0], arguments + 4, (int64_t)arguments[1],
                        (int64_t)arguments[2], (int64_t)arguments[3]};
    int64_t bytes = joined.rows * joined.width;
    mg_share(join_part, &joined, bytes / MG_COPY_SHARE, bytes / MG_COPIED);
}
