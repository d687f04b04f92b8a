/* How long calls take, where NVML_STUB_LATENCIES names a table; latencies.txt says what its columns are.
 *
 * Without a table every call answers at once, as tests want it. Benchmarks use one, for a driver without cost flatters
 * whoever asks it much.
 */
#include "stub.h"

typedef struct { char function[64]; double busy, wait, each; } Latency;

static Latency latencies[96];
static size_t latency_count;
static double busy;

__attribute__((constructor)) static void read_latencies(void) {
    const char *path = getenv("NVML_STUB_LATENCIES");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (path && !file) {
        perror(path);
        exit(2);  /* a benchmark without its latencies shall not pass for one with them */
    }
    char line[512];
    while (file && latency_count < LENGTH(latencies) && fgets(line, sizeof line, file)) {
        Latency *row = &latencies[latency_count];
        *row = (Latency){0};
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (sscanf(line, "%63s %lf %lf %lf", row->function, &row->busy, &row->wait, &row->each) < 3) {
            fprintf(stderr, "%s: expected `function busy wait [each]` in microseconds, got: %s", path, line);
            exit(2);
        }
        latency_count++;
    }
    if (file)
        fclose(file);
}

/* The row of the function, else the row `*`, else none. */
static const Latency *latency_of(const char *function) {
    const Latency *other = NULL;
    for (size_t i = 0; i < latency_count; i++) {
        if (strcmp(latencies[i].function, function) == 0)
            return &latencies[i];
        if (strcmp(latencies[i].function, "*") == 0)
            other = &latencies[i];
    }
    return other;
}

static double thread_microseconds(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e6 + (double)used.tv_nsec / 1e3;
}

/* Use the processor for so long, not merely until then: on a loaded machine that differs. */
static void spin(double microseconds) {
    double end = microseconds > 0 ? thread_microseconds() + microseconds : 0;
    while (end > 0 && thread_microseconds() < end)
        ;
    busy += microseconds;
}

void stub_spend(const char *function) {
    const Latency *row = latency_count ? latency_of(function) : NULL;
    if (!row)
        return;
    spin(row->busy);
    if (row->wait > 0)
        usleep((useconds_t)row->wait);
}

void stub_spend_each(const char *function, unsigned entries) {
    const Latency *row = latency_count ? latency_of(function) : NULL;
    if (row)
        spin(row->each * entries);
}

/* One entry of nvmlDeviceGetFieldValues: by a row of its own, such as `field.83`, else as each. */
void stub_spend_field(unsigned field) {
    char name[32];
    snprintf(name, sizeof name, "field.%u", field);
    const Latency *row = latency_count ? latency_of(name) : NULL;
    if (row && row->function[0] != '*')
        spin(row->busy);
    else
        stub_spend_each("nvmlDeviceGetFieldValues", 1);
}

/* How long all calls were busy: a file beside that of the counts. */
__attribute__((destructor)) static void write_busy(void) {
    const char *path = getenv("NVML_STUB_COUNTS");
    char beside[4096];
    if (!path || !latency_count || (size_t)snprintf(beside, sizeof beside, "%s.busy", path) >= sizeof beside)
        return;
    FILE *file = fopen(beside, "w");
    if (file) {
        fprintf(file, "%.0f\n", busy);
        fclose(file);
    }
}
