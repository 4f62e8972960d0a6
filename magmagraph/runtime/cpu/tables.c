/* The tables of loops and branches, which nested.py fills in and support.c runs. */

/* How many iterations pass before the clock is read, by how long they took. */
typedef struct {
    int64_t left;
    int64_t pace;
    int64_t read;
} mg_pace;

enum { MG_READ, MG_ROW, MG_BEFORE, MG_AFTER };
enum { MG_EVERY, MG_FLAG_CARRY, MG_FLAG_STACK };

typedef struct {
    void** cell;
    int64_t kind;
    int64_t argument;
    int64_t stride;
} mg_cell;

typedef struct {
    int64_t start;
    int64_t end;
    void* buffers[2];
    int64_t bytes;
} mg_carry;

typedef struct {
    int64_t argument;
    int64_t bytes;
} mg_rows;

typedef struct {
    const mg_step* steps;
    int64_t count;
    const mg_cell* cells;
    int64_t cell_count;
    const mg_carry* carries;
    int64_t carry_count;
    const mg_rows* rows;
    int64_t row_count;
    int64_t length; /* -1: no bound */
    int64_t reverse;
    int64_t flag;
    mg_pace pace;
} mg_nest;

typedef struct {
    const mg_nest* nests;
    int64_t count;
    int64_t results;
    int64_t index_bytes;
    int64_t unsigned_index;
} mg_choice;

