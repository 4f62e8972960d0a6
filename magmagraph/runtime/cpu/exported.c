/* The functions of the header: generic code over the tables above. */

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(void*) == 8, "pointers have 64 bits (of WebAssembly: -sMEMORY64=1)");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "constants are little-endian");

static char* memory;              /* of all programs: arenas, variables, carries of loops */
static int ready;                 /* variables have their values */
static _Atomic int used;          /* a call runs */
static char why[640] = "no error";

const char* @P@_message(void) { return why; }

static int fails(int status, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    return status;
}

static char* place_of(const mg_place* place) { return memory + place->offset; }

int @P@_init(int threads)
{
    if (memory) return fails(@P@_BAD_ARGUMENT, "@P@_init is called twice");
    memory = aligned_alloc(64, MG_MEMORY);
    if (!memory) return fails(@P@_NO_MEMORY, "no memory for %lld bytes", (long long)MG_MEMORY);
    memset(memory, 0, MG_MEMORY);
    for (size_t i = 0; i < MG_PLACES; i++) *places[i].cell = place_of(&places[i]);
    join_libraries();
    if (threads > MG_MOST_THREADS) threads = MG_MOST_THREADS;
    mg_set_threads(threads < 1 ? 1 : threads, threads > 1 ? MG_SPIN : 0);
    ready = MG_VARIABLES == 0;
    return @P@_OK;
}

void @P@_end(void)
{
    free(memory);
    memory = NULL;
    ready = 0;
}

/* ---- Variables, and files of them ---- */

const @P@_array* @P@_variables(size_t* count)
{
    if (count) *count = MG_VARIABLES;
    return variables;
}

static int find(const char* name, size_t bytes, size_t* found)
{
    if (!memory) return fails(@P@_NOT_READY, "@P@_init was not called");
    for (*found = 0; *found < MG_VARIABLES; ++*found) {
        const @P@_array* variable = &variables[*found];
        if (!name || strcmp(variable->name, name)) continue;
        if (variable->bytes == bytes) return @P@_OK;
        return fails(@P@_BAD_ARGUMENT, "variable '%s' has %zu bytes, not %zu", name,
                     variable->bytes, bytes);
    }
    return fails(@P@_BAD_ARGUMENT, "there is no variable '%s'", name ? name : "");
}

int @P@_get(const char* name, void* data, size_t bytes)
{
    size_t i;
    int status = find(name, bytes, &i);
    if (!status && bytes) memcpy(data, memory + variable_offsets[i], bytes);
    return status;
}

int @P@_set(const char* name, const void* data, size_t bytes)
{
    size_t i;
    int status = find(name, bytes, &i);
    if (!status && bytes) memcpy(memory + variable_offsets[i], data, bytes);
    return status;
}

int @P@_save(const char* path)
{
    if (!ready) return fails(@P@_NOT_READY, "variables have no values: call @P@_load first");
    FILE* file = fopen(path, "wb");
    if (!file) return fails(@P@_BAD_FILE, "%s cannot be written", path);
    uint64_t length = sizeof file_header - 1;
    int good = fwrite(&length, 8, 1, file) == 1 && fwrite(file_header, length, 1, file) == 1;
    for (size_t i = 0; good && i < MG_VARIABLES; i++)
        good = !variables[i].bytes
            || fwrite(memory + variable_offsets[i], variables[i].bytes, 1, file) == 1;
    if (fclose(file)) good = 0;
    return good ? @P@_OK : fails(@P@_BAD_FILE, "%s cannot be written", path);
}

static int read_whole(FILE* file, char* content, uint64_t size)
{
    uint64_t length;
    if (fread(content, 1, size, file) != size || fgetc(file) != EOF) return 0;
    memcpy(&length, content, 8);
    return length == sizeof file_header - 1 && !memcmp(content + 8, file_header, length);
}

int @P@_load(const char* path)
{
    if (!memory) return fails(@P@_NOT_READY, "@P@_init was not called");
    FILE* file = fopen(path, "rb");
    if (!file) return fails(@P@_BAD_FILE, "%s cannot be read", path);
    uint64_t size = 8 + sizeof file_header - 1;
    for (size_t i = 0; i < MG_VARIABLES; i++) size += variables[i].bytes;
    char* content = malloc(size);
    int good = content && read_whole(file, content, size);
    fclose(file);
    if (good) { /* whole, or not at all */
        const char* at = content + 8 + sizeof file_header - 1;
        for (size_t i = 0; i < MG_VARIABLES; at += variables[i++].bytes)
            memcpy(memory + variable_offsets[i], at, variables[i].bytes);
        ready = 1;
    }
    free(content);
    if (good) return @P@_OK;
    return fails(@P@_BAD_FILE, "%s does not hold the variables of this program", path);
}

/* ---- Calls ---- */

static int64_t label_at(const mg_labels* labels, const void* data, int64_t i, int* negative)
{
    int64_t value = 0;
    *negative = 0;
    switch (labels->bytes * (labels->is_signed ? -1 : 1)) {
    case 1: return ((const uint8_t*)data)[i];
    case 2: return ((const uint16_t*)data)[i];
    case 4: return ((const uint32_t*)data)[i];
    case 8: value = ((const int64_t*)data)[i]; return value < 0 ? INT64_MAX : value;
    case -1: value = ((const int8_t*)data)[i]; break;
    case -2: value = ((const int16_t*)data)[i]; break;
    case -4: value = ((const int32_t*)data)[i]; break;
    default: value = ((const int64_t*)data)[i];
    }
    *negative = value < 0;
    return value;
}

/* The labels that a call is fed, or what a small program makes of them. */
static int check_labels(const mg_labels* labels, const void* const* feeds)
{
    const void* data = feeds[labels->feed];
    if (labels->steps) {
        for (int64_t i = 0; i < labels->cell_count; i++)
            *labels->cells[i] = (void*)(uintptr_t)data;
        mg_run_alone(labels->steps, labels->step_count);
        data = memory + labels->result;
    }
    for (int64_t i = 0; i < labels->count; i++) {
        int negative;
        int64_t label = label_at(labels, data, i, &negative);
        if (!negative && label < labels->classes) continue;
        if (labels->ignores && label == labels->ignored) continue;
        return fails(@P@_BAD_LABEL, "input '%s' is fed the label %lld at element %lld, and %s has "
                     "%lld classes", labels->input, (long long)label, (long long)i,
                     labels->function, (long long)labels->classes);
    }
    return @P@_OK;
}

static double widened(const char* data, int kind, int64_t i)
{
    uint32_t bits;
    float single;
    double wide;
    switch (kind) {
    case MG_FLOAT64: memcpy(&wide, data + 8 * i, 8); return wide;
    case MG_FLOAT32: memcpy(&single, data + 4 * i, 4); return single;
    default: { /* 16 bits: those of the exponent tell */
        uint16_t half;
        memcpy(&half, data + 2 * i, 2);
        bits = kind == MG_FLOAT16 ? 0x7c00u : 0x7f80u;
        return (half & bits) == bits ? HUGE_VAL : 0;
    }
    }
}

static int check_finite(const mg_finite* check, const void* const* feeds, void* const* results)
{
    const char* data = check->place == MG_IN_MEMORY ? memory + check->at
                     : check->place == MG_IN_FEED   ? feeds[check->at]
                                                    : results[check->at];
    for (int64_t i = 0; i < check->count; i++) {
        double value = widened(data, check->kind, i);
        if (value - value == 0) continue;
        return fails(@P@_NOT_FINITE, "%s holds a value that is not finite, at element %lld; "
                     "no variable was changed", check->what, (long long)i);
    }
    return @P@_OK;
}

static int run_checked(const mg_program* program, const void* const* feeds, void* const* results)
{
    for (int64_t i = 0; i < program->label_count; i++) {
        int status = check_labels(&program->labels[i], feeds);
        if (status) return status;
    }
    for (int64_t i = 0; i < program->cell_count; i++) {
        const mg_call_cell* cell = &program->cells[i];
        *cell->cell = cell->result ? results[cell->argument]
                                   : (void*)(uintptr_t)feeds[cell->argument];
    }
    int64_t ran = mg_run_alone(program->steps, program->before);
    if (ran < program->before)
        return fails(@P@_STEP_FAILED, "step %lld has no result for these values (a singular or "
                     "indefinite matrix, say): %s; no variable was changed", (long long)ran,
                     program->texts[ran]);
    for (int64_t i = 0; i < program->finite_count; i++) {
        int status = check_finite(&program->finite[i], feeds, results);
        if (status) return status;
    }
    mg_run_alone(program->steps + program->before, program->count - program->before);
    return @P@_OK;
}

static int run(const mg_program* program, const void* const* feeds, void* const* results)
{
    if (!ready) {
        if (!memory) return fails(@P@_NOT_READY, "@P@_init was not called");
        return fails(@P@_NOT_READY, "variables have no values: call @P@_load first");
    }
    for (int64_t i = 0; i < program->feed_count + program->result_count; i++) {
        int fed = i < program->feed_count;
        const void* given = fed ? feeds[i] : results[i - program->feed_count];
        if (!given && program->arrays[i].bytes)
            return fails(@P@_BAD_ARGUMENT, "%s '%s' is NULL", fed ? "input" : "result",
                         program->arrays[i].name);
    }
    if (atomic_exchange(&used, 1))
        return fails(@P@_BUSY, "another thread is in a call: one at a time");
    int status = run_checked(program, feeds, results);
    atomic_store(&used, 0);
    return status;
}
