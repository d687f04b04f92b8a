/* Stands in for libnvidia-ml.so.1, so that tests go through the real binding without a GPU.
 *
 * What it shows is a text file named by NVML_STUB_STATE, read again whenever it changes. A line is `key = value`:
 *
 *   gpus = 8                              slots 0..7 exist (16 at most)
 *   driver = 9                            every call answers this code (9 DRIVER_NOT_LOADED); 0 or absent: loaded
 *   init = 3000000                        nvmlInit takes so many microseconds, -1 is for ever
 *   unattached = 999                      each call about a GPU answers this code after an nvmlInit with NO_ATTACH;
 *                                         with 6 (not found) no GPU is listed then
 *   deaf = 1                              a call that never returns ignores SIGTERM, too
 *   generation = 2                        a change is a driver reload: UNINITIALIZED until the next nvmlInit
 *   gpu.3.temperature = 61                a number of the table NUMBERS below; `gpu.*.` means each GPU
 *   gpu.3.samples = 1000:10 2000:90       utilization samples, microseconds:percent. An empty value means none;
 *                                         without the key six a second show what `utilization` says
 *   gpu.3.compute = 41:1048576 42:-       processes, pid:bytes, `-` is "not available"; also graphics, mps, and
 *                                         compute_v2, which the _v2 list shows instead of compute where it is set
 *   gpu.3.field.194 = -2                  a field value, for scope 0 (field.186.1: for scope 1), over the defaults; also
 *                                         gpm.2 = 37, a GPM metric in the units of NVML: percent, MiB/s
 *   gpu.3.mig = 1                         MIG is on, with these GPU instances, id:profile:bytes:used:SM percent each;
 *   gpu.3.instances = 1:1g.10gb:9:1:37    an id that comes twice is one GPU instance with two compute instances
 *   gpu.3.error.nvmlDeviceGetName = 999   this call answers that code (3 NOT_SUPPORTED, 15 GPU_IS_LOST, ...);
 *                                         error.field.82 is the entry of one field value, error.gpm.2 of a GPM
 *                                         metric; error.mig.nvmlDeviceGetComputeRunningProcesses_v3 is that call
 *                                         through a MIG handle; error.* is every call that measures
 *   gpu.3.delay.nvmlDeviceGetName = 5000  this call takes so many microseconds, -1 is for ever
 *   gpu.3.block = 1                       no call about this GPU ever returns, in no process: also who it is, its handle
 *   gpu.3.attach_blocks = 1               nor does nvmlInit, unless it leaves the GPUs alone (NO_ATTACH)
 *   gpu.3.call_us = 3000000               each call about this GPU takes that long, in microseconds
 *   gpu.3.uuid = garbage                  instead of a good one; the other kinds of garbage are numbers of the table
 *
 * NVML_STUB_LATENCIES names a table of how long calls take, see latency.c; without it they answer at once.
 * NVML_STUB_COUNTS names a file that gets `function calls` lines at exit. With -DNVML_STUB_OLD the library lacks the
 * functions that came after the R470 drivers.
 */
#include "stub.h"

static const struct { const char *name; size_t offset; } numbers[] = {
#define NUMBER_ROW(name, initial) {#name, offsetof(Gpu, name)},
    NUMBERS(NUMBER_ROW)
};
static const struct { const char *name; size_t offset; } lists[] = {
    {"compute", offsetof(Gpu, compute)}, {"compute_v2", offsetof(Gpu, compute_v2)},
    {"graphics", offsetof(Gpu, graphics)}, {"mps", offsetof(Gpu, mps)},
};
Gpu stub_gpus[SLOTS];
int stub_gpu_count;
static int driver_code, generation, initialised_generation, initialised, deaf, attached, unattached_code;
static long long init_us;
static struct { const char *function; long calls; } counts[FUNCTIONS];

unsigned long long stub_wall_microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

double stub_monotonic_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The state file. */

static void set_processes(Processes *list, char *value) {
    list->set = 1;
    list->count = 0;
    for (char *word = strtok(value, " \n"); word && list->count < PROCESSES; word = strtok(NULL, " \n")) {
        char *memory = strchr(word, ':'), *gpu = memory ? strchr(memory + 1, ':') : NULL;
        char *compute = gpu ? strchr(gpu + 1, ':') : NULL;
        list->entry[list->count++] = (Process){
            .pid = (unsigned)strtoul(word, NULL, 10),
            .memory = memory && memory[1] != '-' ? strtoull(memory + 1, NULL, 10) : ULLONG_MAX,
            .gpu_instance = gpu ? (unsigned)strtoul(gpu + 1, NULL, 10) : UINT_MAX,
            .compute_instance = compute ? (unsigned)strtoul(compute + 1, NULL, 10) : UINT_MAX};
    }
}

static void set_samples(Gpu *gpu, char *value) {
    gpu->samples_set = 1;
    gpu->sample_count = 0;
    for (char *word = strtok(value, " \n"); word && gpu->sample_count < SAMPLES; word = strtok(NULL, " \n")) {
        char *percent = strchr(word, ':');
        gpu->samples[gpu->sample_count++] = (Sample){
            .timestamp = strtoull(word, NULL, 10), .value.uiVal = percent ? (unsigned)atoi(percent + 1) : 0};
    }
}

static void set_number(Numbers *numbers, const char *key, long long value) {
    char *rest;
    unsigned id = (unsigned)strtoul(key, &rest, 10), scope = *rest == '.' ? (unsigned)strtoul(rest + 1, NULL, 10) : 0;
    if (numbers->count < FIELDS)
        numbers->entry[numbers->count++] = (Number){id, scope, value};
}

static void set_instances(Gpu *gpu, char *value) {
    gpu->instance_count = 0;
    for (char *word = strtok(value, " \n"); word && gpu->instance_count < INSTANCES; word = strtok(NULL, " \n")) {
        Instance *instance = &gpu->instances[gpu->instance_count];
        *instance = (Instance){0};
        sscanf(word, "%u:%31[^:]:%lld:%lld:%lld", &instance->id, instance->profile, &instance->total, &instance->used,
               &instance->sm);
        for (int i = 0; i < gpu->instance_count; i++)
            instance->compute += gpu->instances[i].id == instance->id;
        gpu->instance_count++;
    }
}

static void set_error(Gpu *gpu, const char *function, int code) {
    for (size_t i = 0; i < ERRORS; i++) {
        const char *known = gpu->errors[i].function;
        if (known[0] != '\0' && strcmp(known, function) != 0)
            continue;
        snprintf(gpu->errors[i].function, sizeof gpu->errors[i].function, "%s", function);
        gpu->errors[i].code = code;
        return;
    }
}

static void set_delay(Gpu *gpu, const char *function, long long microseconds) {
    size_t i = 0;
    while (i < DELAYS - 1 && gpu->delays[i].function[0] && strcmp(gpu->delays[i].function, function) != 0)
        i++;
    snprintf(gpu->delays[i].function, sizeof gpu->delays[i].function, "%s", function);
    gpu->delays[i].microseconds = microseconds;
}

static void set_gpu(Gpu *gpu, const char *key, char *value) {
    if (strncmp(key, "error.", 6) == 0)
        set_error(gpu, key + 6, atoi(value));
    if (strncmp(key, "delay.", 6) == 0)
        set_delay(gpu, key + 6, atoll(value));
    if (strcmp(key, "uuid") == 0)
        snprintf(gpu->uuid, sizeof gpu->uuid, "%.*s", (int)strcspn(value, "\n"), value);
    if (strcmp(key, "samples") == 0)
        set_samples(gpu, value);
    if (strcmp(key, "instances") == 0)
        set_instances(gpu, value);
    if (strncmp(key, "field.", 6) == 0)
        set_number(&gpu->fields, key + 6, atoll(value));
    if (strncmp(key, "gpm.", 4) == 0)
        set_number(&gpu->metrics, key + 4, atoll(value));
    for (size_t i = 0; i < LENGTH(lists); i++)
        if (strcmp(key, lists[i].name) == 0)
            set_processes((Processes *)((char *)gpu + lists[i].offset), value);
    for (size_t i = 0; i < LENGTH(numbers); i++)
        if (strcmp(key, numbers[i].name) == 0)
            *(long long *)((char *)gpu + numbers[i].offset) = atoll(value);
}

static void set(char *key, char *value) {
    if (strcmp(key, "gpus") == 0)
        stub_gpu_count = atoi(value) < SLOTS ? atoi(value) : SLOTS;
    else if (strcmp(key, "driver") == 0)
        driver_code = atoi(value);
    else if (strcmp(key, "init") == 0)
        init_us = atoll(value);
    else if (strcmp(key, "unattached") == 0)
        unattached_code = atoi(value);
    else if (strcmp(key, "deaf") == 0)
        deaf = atoi(value);
    else if (strcmp(key, "generation") == 0)
        generation = atoi(value);
    else if (strncmp(key, "gpu.*.", 6) == 0)
        for (int slot = 0; slot < SLOTS; slot++) {
            char copy[4096];  /* strtok eats it */
            snprintf(copy, sizeof copy, "%s", value);
            set_gpu(&stub_gpus[slot], key + 6, copy);
        }
    else if (strncmp(key, "gpu.", 4) == 0) {
        char *rest;
        unsigned long slot = strtoul(key + 4, &rest, 10);
        if (slot < SLOTS && *rest == '.')
            set_gpu(&stub_gpus[slot], rest + 1, value);
    }
}

static void refresh(void) {
    static struct stat seen;
    struct stat now;
    const char *path = getenv("NVML_STUB_STATE");
    if (!path || stat(path, &now) != 0)
        return;
    if (now.st_ino == seen.st_ino && now.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec && now.st_size == seen.st_size)
        return;
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    seen = now;
    memset(stub_gpus, 0, sizeof stub_gpus);
    stub_gpu_count = driver_code = generation = deaf = unattached_code = 0;
    init_us = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
#define INITIAL(name, initial) stub_gpus[slot].name = initial;
        NUMBERS(INITIAL)
    }
    char line[4096];
    while (fgets(line, sizeof line, file)) {
        char *value = strstr(line, " = ");
        if (value) {
            *value = '\0';
            set(line, value + 3);
        }
    }
    fclose(file);
}

/* What every call passes: it is counted, sees the latest state, and gives the answer that the state asks for. */

int stub_forced(const Gpu *gpu, const char *function) {
    for (size_t i = 0; i < ERRORS && gpu->errors[i].function[0] != '\0'; i++)
        if (strcmp(gpu->errors[i].function, function) == 0)
            return gpu->errors[i].code;
    return SUCCESS;
}

void stub_count(const char *function) {
    stub_spend(function);
    for (size_t i = 0; i < FUNCTIONS; i++)
        if (!counts[i].function || counts[i].function == function) {
            counts[i].function = function;
            counts[i].calls++;
            return;
        }
}

long stub_calls(void) {
    long calls = 0;
    for (size_t i = 0; i < FUNCTIONS; i++)
        calls += counts[i].calls;
    return calls;
}

int enter_system(const char *function) {
    stub_count(function);
    refresh();
    if (driver_code)
        return driver_code;
    return initialised && initialised_generation == generation ? SUCCESS : UNINITIALIZED;
}

static void stall(long long microseconds) {
    if (microseconds < 0 && deaf) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigprocmask(SIG_BLOCK, &set, NULL);
    }
    while (microseconds < 0)  /* for ever */
        pause();
    while (microseconds > 0) {  /* usleep takes less than a second */
        long long part = microseconds < 500000 ? microseconds : 500000;
        usleep((useconds_t)part);
        microseconds -= part;
    }
}

/* What a sick GPU does to each call about it. */
void stub_touch(const Gpu *gpu) {
    if (gpu->block)
        stall(-1);
    stall(gpu->call_us);
}

/* The code of calls about GPUs while none is attached, 0 if that does not matter. */
int stub_unattached(void) { return attached ? SUCCESS : unattached_code; }

int enter_identity(const char *function, const Gpu *gpu) {
    int code = enter_system(function);
    if (code)
        return code;
    if (stub_unattached())
        return stub_unattached();
    stub_touch(gpu);
    for (size_t i = 0; i < DELAYS && gpu->delays[i].function[0]; i++)
        if (strcmp(gpu->delays[i].function, function) == 0)
            stall(gpu->delays[i].microseconds);
    if (gpu->lost)
        return GPU_IS_LOST;
    return stub_forced(gpu, function);
}

int enter_device(const char *function, const Gpu *gpu) {
    int code = enter_identity(function, gpu);
    if (gpu->hang)  /* only measurements hang: what a GPU is called, the driver may know without asking it */
        stall(-1);
    if (gpu->latency_us)
        usleep((useconds_t)gpu->latency_us);
    return code ? code : stub_forced(gpu, "*");
}

__attribute__((destructor)) static void write_counts(void) {
    const char *path = getenv("NVML_STUB_COUNTS");
    FILE *file = path ? fopen(path, "w") : NULL;
    for (size_t i = 0; file && i < FUNCTIONS && counts[i].function; i++)
        fprintf(file, "%s %ld\n", counts[i].function, counts[i].calls);
    if (file)
        fclose(file);
}

int stub_open(unsigned flags) {
    enum { NO_ATTACH = 2 };
    refresh();
    stall(init_us);
    for (int slot = 0; slot < stub_gpu_count && !(flags & NO_ATTACH); slot++)
        if (stub_gpus[slot].attach_blocks && !stub_gpus[slot].absent)
            stall(-1);
    if (driver_code)
        return driver_code;
    attached = !(flags & NO_ATTACH);
    initialised = 1;
    initialised_generation = generation;
    return SUCCESS;
}

void stub_close(void) {
    initialised = 0;
}

/* What the files share. */

const long long *stub_number(const Numbers *numbers, unsigned id, unsigned scope) {
    for (int i = numbers->count - 1; i >= 0; i--)  /* the last line of the state file wins */
        if (numbers->entry[i].id == id && numbers->entry[i].scope == scope)
            return &numbers->entry[i].value;
    return NULL;
}

Instance *stub_instance(void *handle) {
    for (int slot = 0; slot < SLOTS; slot++)
        if ((Instance *)handle >= stub_gpus[slot].instances && (Instance *)handle < stub_gpus[slot].instances + INSTANCES)
            return handle;
    return NULL;
}

Gpu *stub_gpu(void *handle) {
    return &stub_gpus[((char *)handle - (char *)stub_gpus) / (ptrdiff_t)sizeof *stub_gpus];
}
