/* What a second thread gives is not the program's to say. Two cores of a shared machine may be the
   two threads of one core, for a second or for a day: a team is then as fast as its owner alone, or
   slower, and even a worker that only spins takes from it. So for work that comes again and again
   both ways are measured, seldom, and the faster is taken.

   A kind of work is a body with an amount of work and a size of the team. Of its calls few are timed.
   A millisecond after the first the owner does some alone, until the workers sleep, and is timed; then
   after four times as long, up to a quarter of a second, or earlier where the team has become slow.
   Where one thread is as fast, it does the work for a millisecond; then the team is tried, and where it
   loses again, after twice the time. No result depends on this: a body is right for any number of
   threads, and what it computes is cut alike for all of them. support.c follows this text. */

#include <stddef.h>
#include <stdint.h>

/* Work above this, in units of some 0.05 ns, is not judged: a team loses little of it, and some
   calls alone would be more. */
enum { MG_JUDGED = 1 << 22 };
enum { MG_KINDS = 256 };
enum { MG_LOOKS = 8, MG_FEWEST = 32, MG_TRIED = 3, MG_AWAITED = 64 };   /* calls */
enum { MG_FIRST_CHECK = 2000000, MG_LAST_CHECK = 1 << 28, MG_EARLY = 64 }; /* ns; part of it */
enum { MG_FIRST_PAUSE = 1000000, MG_LAST_PAUSE = 16000000 };            /* ns */
enum { MG_ASLEEP = 80000 }; /* ns: who is awake after it is kept awake by other work */

enum { MG_SHARED, MG_TRIES_ALONE, MG_ALONE, MG_TRIES_TEAM };

typedef struct {
    void (*body)(void*, int64_t, int64_t);
    int64_t work, size;
    int64_t state;
    int64_t left;        /* calls before the state changes */
    int64_t early;       /* as many may be left where it changes early */
    int64_t waited;      /* calls of a trial that could not be timed */
    int64_t period;      /* nanoseconds of sharing before the next check */
    int64_t pause;       /* nanoseconds alone before the team is tried */
    int64_t team, alone; /* nanoseconds of a call, the least lately; 0: not known */
} mg_worth;

static mg_worth kinds[MG_KINDS]; /* changed by the pool's owner */

static int64_t calls_in(int64_t time, int64_t call)
{
    int64_t calls = time / (call + 1);
    return calls < MG_FEWEST ? MG_FEWEST : calls;
}

/* Return what is known of a kind of work; NULL where it is not judged. */
static mg_worth* worth_of(void (*body)(void*, int64_t, int64_t), int64_t work, int64_t size)
{
    if (work >= MG_JUDGED) return NULL;
    uint64_t key = ((uint64_t)(uintptr_t)body >> 4) * 31 + (uint64_t)work * 7 + (uint64_t)size;
    mg_worth* worth = &kinds[(key * 0x9e3779b97f4a7c15u >> 32) % MG_KINDS];
    if (worth->body != body || worth->work != work || worth->size != size)
        *worth = (mg_worth){ .body = body, .work = work, .size = size,
                             .left = calls_in(MG_FIRST_CHECK, work / 20),
                             .period = MG_FIRST_CHECK };
    return worth;
}

/* The least of what was measured lately; where more is measured it rises, not at once. */
static int64_t lately(int64_t known, int64_t taken)
{
    if (known == 0 || taken < known) return taken;
    int64_t more = taken - known < known ? taken - known : known;
    return known + more / 4;
}

/* Whether the owner is to do the work alone now. */
static int alone_now(const mg_worth* worth)
{
    return worth && (worth->state == MG_TRIES_ALONE || worth->state == MG_ALONE);
}

/* Whether this call is to be timed, where so many of the team are awake, the owner among them. */
static int timed_now(const mg_worth* worth, int64_t awake)
{
    if (!worth) return 0;
    switch (worth->state) {
    case MG_SHARED: return awake == worth->size && worth->left % MG_LOOKS == 0;
    case MG_TRIES_ALONE: return awake == 1 || worth->waited * worth->team >= MG_ASLEEP;
    case MG_ALONE: return worth->left <= MG_TRIED;
    default: return awake == worth->size;
    }
}

static void try(mg_worth* worth, int64_t state)
{
    worth->state = state;
    worth->left = MG_TRIED;
    worth->waited = 0;
}

/* Take the way that a trial found faster: the team's only where it takes clearly less. */
static void decide(mg_worth* worth)
{
    if (worth->team && worth->team < worth->alone - worth->alone / 32) {
        worth->state = MG_SHARED;
        worth->left = calls_in(worth->period, worth->team);
        worth->early = worth->left - calls_in(worth->period / MG_EARLY, worth->team);
        worth->pause = MG_FIRST_PAUSE;
    } else {
        worth->state = MG_ALONE;
        worth->left = calls_in(worth->pause, worth->alone);
        worth->period = MG_FIRST_CHECK;
    }
}

/* After a call; taken is 0 where it was not timed. */
static void learn(mg_worth* worth, int64_t taken)
{
    switch (worth->state) {
    case MG_SHARED:
        worth->left--;
        if (taken) worth->team = lately(worth->team, taken);
        if (worth->left <= 0 || (taken && worth->left <= worth->early &&
                                 worth->team > worth->alone - worth->alone / 8)) {
            worth->left = MG_LOOKS; /* as it stands where no call found all awake */
            if (worth->team) try(worth, MG_TRIES_ALONE);
        }
        break;
    case MG_TRIES_ALONE: /* the first that is timed finds data in other caches */
        if (!taken) {
            worth->waited++;
        } else if (--worth->left < MG_TRIED - 1) {
            worth->alone = worth->left == MG_TRIED - 2 ? taken : lately(worth->alone, taken);
            if (worth->left > 0) break;
            if (worth->period < MG_LAST_CHECK) worth->period *= 4;
            if (!worth->pause) worth->pause = MG_FIRST_PAUSE;
            decide(worth);
        }
        break;
    case MG_ALONE:
        if (taken) worth->alone = lately(worth->alone, taken);
        if (--worth->left <= 0) try(worth, MG_TRIES_TEAM);
        break;
    default:
        if (!taken) {
            worth->waited++;
        } else if (--worth->left < MG_TRIED - 1) {
            worth->team = worth->left == MG_TRIED - 2 ? taken : lately(worth->team, taken);
        }
        if (worth->left > 0 && worth->waited < MG_AWAITED) break;
        if (worth->left > 0) worth->team = 0; /* the workers did not come */
        if (worth->pause < MG_LAST_PAUSE) worth->pause *= 2;
        decide(worth);
    }
}
