/* The steps of linalg.c: each shares the groups of its batch among threads. */

typedef struct {
    const mg_matrices* job;
    void (*many)(const mg_matrices*, int64_t, int64_t);
    void (*one)(const mg_matrices*, int64_t, int64_t);
} mg_shared_job;

static void run_share(void* context, int64_t thread, int64_t threads)
{
    const mg_shared_job* shared = context;
    int64_t groups = (shared->job->count + MG_WIDE - 1) / MG_WIDE, begin, end;
    mg_split(groups, 1, thread, threads, &begin, &end);
    if (begin < end) shared->many(shared->job, begin, end);
}

/* arguments: the function that stops the program; those of mg_matrices but its state */
static void run_job(void** arguments, void (*many)(const mg_matrices*, int64_t, int64_t),
                    void (*one)(const mg_matrices*, int64_t, int64_t))
{
    mg_state state = {0};
    mg_matrices job;
    memcpy((char*)&job + sizeof(job.state), arguments + 1, sizeof(job) - sizeof(job.state));
    job.state = &state;
    if (job.count < MG_WIDE / 2) one(&job, 0, job.count);
    else {
        mg_shared_job shared = {&job, many, one};
        int64_t groups = (job.count + MG_WIDE - 1) / MG_WIDE;
        int64_t work = groups * (job.n * job.n * (job.n + 3 * job.columns) * 20 + 400);
        mg_share(run_share, &shared, groups / 4, work);
    }
    if (atomic_load(&state.failed)) ((void (*)(void))arguments[0])();
}

void mg_lu(void** arguments) { run_job(arguments, lu_many, lu_one); }
void mg_systems(void** arguments) { run_job(arguments, systems_many, systems_one); }
void mg_cholesky(void** arguments) { run_job(arguments, choleskys_many, choleskys_one); }
void mg_determinants(void** arguments) { run_job(arguments, determinants_many, determinants_one); }

/* arguments: the function that stops the program, out, exchanges, batch, exchanges of one, rows */
void mg_permutation(void** arguments)
{
    int32_t* out = arguments[1];
    const int32_t* pivots = arguments[2];
    int64_t batch = (int64_t)arguments[3], count = (int64_t)arguments[4];
    int64_t rows = (int64_t)arguments[5];
    for (int64_t i = 0; i < batch; i++, out += rows, pivots += count) {
        for (int64_t r = 0; r < rows; r++) out[r] = (int32_t)r;
        for (int64_t k = 0; k < count; k++) {
            if ((uint32_t)pivots[k] >= (uint64_t)rows) {
                ((void (*)(void))arguments[0])();
                return;
            }
            int32_t held = out[k];
            out[k] = out[pivots[k]];
            out[pivots[k]] = held;
        }
    }
}
