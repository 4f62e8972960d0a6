/* The steps of linalg.c: each shares the groups of its batch among threads. */

typedef void (*mg_solver)(const mg_matrices*, int64_t begin, int64_t end);

typedef struct {
    const mg_matrices* job;
    mg_solver solver;
    int64_t groups;
} mg_shared_job;

static void run_share(void* context, int64_t thread, int64_t threads)
{
    const mg_shared_job* shared = context;
    int64_t begin, end;
    mg_split(shared->groups, 1, thread, threads, &begin, &end);
    if (begin < end) shared->solver(shared->job, begin, end);
}

/* arguments: the function that stops the program; those of mg_matrices but its state */
static void run_job(void** arguments, mg_solver many, mg_solver one)
{
    mg_state state = {0};
    mg_matrices job;
    memcpy((char*)&job + sizeof(job.state), arguments + 1, sizeof(job) - sizeof(job.state));
    job.state = &state;
    int together = job.count >= MG_WIDE / 2;
    mg_shared_job shared = {&job, one, job.count};
    if (together) {
        shared.solver = many;
        shared.groups = (job.count + MG_WIDE - 1) / MG_WIDE;
    }
    int64_t work = job.count * job.n * job.n * (job.n + 3 * job.columns) * (together ? 3 : 6);
    mg_share(run_share, &shared, shared.groups, work);
    if (atomic_load(&state.failed)) ((void (*)(void))arguments[0])();
}

void mg_lu(void** arguments) { run_job(arguments, lu_many, lu_one); }
void mg_systems(void** arguments) { run_job(arguments, systems_many, systems_one); }
void mg_qr(void** arguments) { run_job(arguments, qr_many, qr_one); }
void mg_cholesky(void** arguments) { run_job(arguments, choleskys_many, choleskys_one); }
void mg_eigenvalues(void** arguments) { run_job(arguments, eigenvalues_many, eigenvalues_one); }
void mg_determinants(void** arguments) { run_job(arguments, determinants_many, determinants_one); }

/* arguments: the function that stops the program, out, exchanges, batch, exchanges of one, rows,
   whether the order is the inverse one */
void mg_permutation(void** arguments)
{
    int32_t* out = arguments[1];
    const int32_t* pivots = arguments[2];
    int64_t batch = (int64_t)arguments[3], count = (int64_t)arguments[4];
    int64_t rows = (int64_t)arguments[5], inverse = (int64_t)arguments[6];
    for (int64_t i = 0; i < batch; i++, out += rows, pivots += count) {
        for (int64_t r = 0; r < rows; r++) out[r] = (int32_t)r;
        for (int64_t step = 0; step < count; step++) {
            int64_t k = inverse ? count - 1 - step : step;
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
