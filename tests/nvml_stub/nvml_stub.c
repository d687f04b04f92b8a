/* Stands in for libnvidia-ml.so.1, so that tests go through the real binding without a GPU.
 *
 * What it shows is a text file named by NVML_STUB_STATE, read again whenever it changes. A line is `key = value`:
 *
 *   gpus = 8                              slots 0..7 exist (16 at most)
 *   driver = 9                            every call answers this code (9 DRIVER_NOT_LOADED); 0 or absent: loaded
 *   generation = 2                        a change is a driver reload: UNINITIALIZED until the next nvmlInit
 *   gpu.3.temperature = 61                a number of the table NUMBERS below; `gpu.*.` means each GPU
 *   gpu.3.samples = 1000:10 2000:90       utilization samples, microseconds:percent. An empty value means none;
 *                                         without the key six a second show what `utilization` says
 *   gpu.3.compute = 41:1048576 42:-       processes, pid:bytes, `-` is "not available"; also graphics, mps, and
 *                                         compute_v2, which the _v2 list shows instead of compute where it is set
 *   gpu.3.error.nvmlDeviceGetName = 999   this call answers that code (3 NOT_SUPPORTED, 15 GPU_IS_LOST, ...);
 *                                         error.field.82 is the entry of one field value
 *
 * NVML_STUB_COUNTS names a file that gets `function calls` lines at exit. With -DNVML_STUB_OLD the library lacks the
 * functions that came after the R470 drivers.
 */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       GPU_IS_LOST = 15, VERSION_MISMATCH = 25 };
enum { SLOTS = 16, ERRORS = 64, SAMPLES = 120, PROCESSES = 64, FUNCTIONS = 64 };
enum { SAMPLE_PERIOD_US = 166667 };
enum { TYPE_DOUBLE = 0, TYPE_UINT = 1, TYPE_ULLONG = 3, TYPE_INT = 5 };

typedef union { double dVal; unsigned uiVal; unsigned long long ullVal; int siVal; } Value;
typedef struct { unsigned long long timestamp; Value value; } Sample;
typedef struct { unsigned id, scope; long long timestamp, latency; int type, code; Value value; } FieldValue;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned version, sensor; int temperature; } Temperature;
typedef struct { char legacy[16]; unsigned domain, bus, device, device_id, subsystem_id; char id[32]; } Pci;

/* Numbers in the units of NVML: percent, bytes, degrees, milliwatts, millijoules, megahertz. */
#define NUMBERS(X)                                                                                                    \
    X(utilization, 0) X(memory_utilization, 0) X(memory_total, 85899345920LL) X(memory_used, 0)                       \
    X(memory_reserved, 536870912LL) X(temperature, 35) X(memory_temperature, 40) X(power, 70000)                      \
    X(power_limit, 700000) X(energy, 0) X(energy_grows, 0) X(sm_clock, 345) X(memory_clock, 2619) X(clock_events, 1)  \
    X(ecc_volatile, 0) X(ecc_aggregate, 0) X(sample_type, TYPE_UINT) X(lost, 0) X(absent, 0) X(hang, 0)               \
    X(latency_us, 0) X(samples_again, 0)

typedef struct { int set, count; Process entry[PROCESSES]; } Processes;
typedef struct {
#define DECLARE(name, initial) long long name;
    NUMBERS(DECLARE)
    int samples_set, sample_count;
    Sample samples[SAMPLES];
    Processes compute, compute_v2, graphics, mps;
    struct { char function[64]; int code; } errors[ERRORS];
} Gpu;

static const struct { const char *name; size_t offset; } numbers[] = {
#define NUMBER_ROW(name, initial) {#name, offsetof(Gpu, name)},
    NUMBERS(NUMBER_ROW)
};
static const struct { const char *name; size_t offset; } lists[] = {
    {"compute", offsetof(Gpu, compute)}, {"compute_v2", offsetof(Gpu, compute_v2)},
    {"graphics", offsetof(Gpu, graphics)}, {"mps", offsetof(Gpu, mps)},
};
#define LENGTH(table) (sizeof(table) / sizeof *(table))

static Gpu gpus[SLOTS];
static int gpu_count, driver_code, generation, initialised_generation, initialised;
static struct { const char *function; long calls; } counts[FUNCTIONS];
static struct { double millijoules, seconds; } energy[SLOTS];

static double monotonic_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The state file. */

static void set_processes(Processes *list, char *value) {
    list->set = 1;
    list->count = 0;
    for (char *word = strtok(value, " \n"); word && list->count < PROCESSES; word = strtok(NULL, " \n")) {
        char *memory = strchr(word, ':');
        list->entry[list->count++] = (Process){
            .pid = (unsigned)strtoul(word, NULL, 10),
            .memory = memory && memory[1] != '-' ? strtoull(memory + 1, NULL, 10) : ULLONG_MAX,
            .gpu_instance = UINT_MAX, .compute_instance = UINT_MAX};
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

static void set_gpu(Gpu *gpu, const char *key, char *value) {
    if (strncmp(key, "error.", 6) == 0)
        set_error(gpu, key + 6, atoi(value));
    if (strcmp(key, "samples") == 0)
        set_samples(gpu, value);
    for (size_t i = 0; i < LENGTH(lists); i++)
        if (strcmp(key, lists[i].name) == 0)
            set_processes((Processes *)((char *)gpu + lists[i].offset), value);
    for (size_t i = 0; i < LENGTH(numbers); i++)
        if (strcmp(key, numbers[i].name) == 0)
            *(long long *)((char *)gpu + numbers[i].offset) = atoll(value);
}

static void set(char *key, char *value) {
    if (strcmp(key, "gpus") == 0)
        gpu_count = atoi(value) < SLOTS ? atoi(value) : SLOTS;
    else if (strcmp(key, "driver") == 0)
        driver_code = atoi(value);
    else if (strcmp(key, "generation") == 0)
        generation = atoi(value);
    else if (strncmp(key, "gpu.*.", 6) == 0)
        for (int slot = 0; slot < SLOTS; slot++) {
            char copy[4096];  /* strtok eats it */
            snprintf(copy, sizeof copy, "%s", value);
            set_gpu(&gpus[slot], key + 6, copy);
        }
    else if (strncmp(key, "gpu.", 4) == 0) {
        char *rest;
        unsigned long slot = strtoul(key + 4, &rest, 10);
        if (slot < SLOTS && *rest == '.')
            set_gpu(&gpus[slot], rest + 1, value);
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
    memset(gpus, 0, sizeof gpus);
    gpu_count = driver_code = generation = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
#define INITIAL(name, initial) gpus[slot].name = initial;
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

static int forced(const Gpu *gpu, const char *function) {
    for (size_t i = 0; i < ERRORS && gpu->errors[i].function[0] != '\0'; i++)
        if (strcmp(gpu->errors[i].function, function) == 0)
            return gpu->errors[i].code;
    return SUCCESS;
}

static void count(const char *function) {
    for (size_t i = 0; i < FUNCTIONS; i++)
        if (!counts[i].function || counts[i].function == function) {
            counts[i].function = function;
            counts[i].calls++;
            return;
        }
}

static int enter_system(const char *function) {
    count(function);
    refresh();
    if (driver_code)
        return driver_code;
    return initialised && initialised_generation == generation ? SUCCESS : UNINITIALIZED;
}

static int enter_identity(const char *function, const Gpu *gpu) {
    int code = enter_system(function);
    if (code)
        return code;
    if (gpu->lost)
        return GPU_IS_LOST;
    return forced(gpu, function);
}

static int enter_device(const char *function, const Gpu *gpu) {
    int code = enter_identity(function, gpu);
    while (gpu->hang)  /* only measurements hang: what a GPU is called, the driver knows without asking it */
        pause();
    if (gpu->latency_us)
        usleep((useconds_t)gpu->latency_us);
    return code;
}

#define ENTER(kind, ...)                                                                                              \
    do {                                                                                                              \
        int code_ = enter_##kind(__VA_ARGS__);                                                                        \
        if (code_)                                                                                                    \
            return code_;                                                                                             \
    } while (0)

__attribute__((destructor)) static void write_counts(void) {
    const char *path = getenv("NVML_STUB_COUNTS");
    FILE *file = path ? fopen(path, "w") : NULL;
    for (size_t i = 0; file && i < FUNCTIONS && counts[i].function; i++)
        fprintf(file, "%s %ld\n", counts[i].function, counts[i].calls);
    if (file)
        fclose(file);
}

/* The library as a whole. */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    count(__func__);
    refresh();
    if (driver_code)
        return driver_code;
    initialised = 1;
    initialised_generation = generation;
    return SUCCESS;
}

int nvmlShutdown(void) {
    count(__func__);
    initialised = 0;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    static char text[32];
    snprintf(text, sizeof text, "stub error %d", code);
    return text;
}

static int text(char *buffer, unsigned size, const char *value) {
    return (unsigned)snprintf(buffer, size, "%s", value) < size ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlSystemGetDriverVersion(char *buffer, unsigned size) {
    ENTER(system, __func__);
    return text(buffer, size, "580.65.06");
}

int nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER(system, __func__);
    *version = 13000;
    return SUCCESS;
}

/* Who the GPUs are. */

int nvmlDeviceGetCount_v2(unsigned *count_) {
    ENTER(system, __func__);
    *count_ = 0;
    for (int slot = 0; slot < gpu_count; slot++)
        *count_ += !gpus[slot].absent;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **handle) {
    ENTER(system, __func__);
    for (int slot = 0; slot < gpu_count; slot++)
        if (!gpus[slot].absent && index-- == 0) {
            *handle = &gpus[slot];
            return gpus[slot].lost ? GPU_IS_LOST : forced(&gpus[slot], __func__);
        }
    return INVALID_ARGUMENT;
}

int nvmlDeviceGetUUID(Gpu *gpu, char *buffer, unsigned size) {
    char uuid[64];
    ENTER(identity, __func__, gpu);
    snprintf(uuid, sizeof uuid, "GPU-00000000-0000-4000-8000-%012d", (int)(gpu - gpus));
    return text(buffer, size, uuid);
}

int nvmlDeviceGetName(Gpu *gpu, char *buffer, unsigned size) {
    ENTER(identity, __func__, gpu);
    return text(buffer, size, "NVIDIA Stub 80GB");
}

int nvmlDeviceGetVbiosVersion(Gpu *gpu, char *buffer, unsigned size) {
    ENTER(identity, __func__, gpu);
    return text(buffer, size, "96.00.5E.00.01");
}

int nvmlDeviceGetPciInfo_v3(Gpu *gpu, Pci *pci) {
    ENTER(identity, __func__, gpu);
    *pci = (Pci){.bus = (unsigned)(gpu - gpus) + 1};
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

/* What they show. */

int nvmlDeviceGetUtilizationRates(Gpu *gpu, unsigned rates[2]) {
    ENTER(device, __func__, gpu);
    rates[0] = (unsigned)gpu->utilization;
    rates[1] = (unsigned)gpu->memory_utilization;
    return SUCCESS;
}

static Value typed(int type, long long number) {
    Value value;
    memset(&value, 0xA5, sizeof value);  /* so that reading the wrong member shows */
    if (type == TYPE_DOUBLE)
        value.dVal = (double)number;
    else if (type == TYPE_UINT)
        value.uiVal = (unsigned)number;
    else if (type == TYPE_INT)
        value.siVal = (int)number;
    else
        value.ullVal = (unsigned long long)number;
    return value;
}

int nvmlDeviceGetSamples(Gpu *gpu, int type, unsigned long long last_seen, int *value_type, unsigned *size, Sample *out) {
    enum { GPU_UTILIZATION = 1 };
    ENTER(device, __func__, gpu);
    if (type != GPU_UTILIZATION)
        return NOT_SUPPORTED;
    Sample live[SAMPLES], *from = gpu->samples_set ? gpu->samples : live;
    int available = gpu->samples_set ? gpu->sample_count : SAMPLES;
    unsigned long long newest = (unsigned long long)(monotonic_seconds() * 1e6) / SAMPLE_PERIOD_US;
    for (unsigned i = 0; i < SAMPLES; i++)
        live[i] = (Sample){(newest - SAMPLES + 1 + i) * SAMPLE_PERIOD_US, {.uiVal = (unsigned)gpu->utilization}};
    unsigned fresh = 0;
    for (int i = 0; i < available; i++) {
        if (from[i].timestamp <= last_seen && !gpu->samples_again)
            continue;
        if (out && fresh < *size)
            out[fresh] = (Sample){from[i].timestamp, typed((int)gpu->sample_type, from[i].value.uiVal)};
        fresh++;
    }
    *value_type = (int)gpu->sample_type;
    *size = out && fresh > *size ? *size : fresh;
    return fresh ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, Memory *memory) {
    enum { VERSION_2 = 0x02000028 };
    ENTER(device, __func__, gpu);
    if (memory->version != VERSION_2)
        return VERSION_MISMATCH;
    memory->total = (unsigned long long)gpu->memory_total;
    memory->reserved = (unsigned long long)gpu->memory_reserved;
    memory->used = (unsigned long long)gpu->memory_used;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(Gpu *gpu, int sensor, unsigned *celsius) {
    (void)sensor;
    ENTER(device, __func__, gpu);
    *celsius = (unsigned)gpu->temperature;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *milliwatts) {
    ENTER(device, __func__, gpu);
    *milliwatts = (unsigned)gpu->power;
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(Gpu *gpu, unsigned *milliwatts) {
    ENTER(device, __func__, gpu);
    *milliwatts = (unsigned)gpu->power_limit;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(Gpu *gpu, int clock, unsigned *megahertz) {
    enum { CLOCK_MEMORY = 2 };
    ENTER(device, __func__, gpu);
    *megahertz = (unsigned)(clock == CLOCK_MEMORY ? gpu->memory_clock : gpu->sm_clock);
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu *gpu, unsigned long long *mask) {
    ENTER(device, __func__, gpu);
    *mask = (unsigned long long)gpu->clock_events;
    return SUCCESS;
}

static long long energy_millijoules(Gpu *gpu) {
    size_t slot = (size_t)(gpu - gpus);
    double now = monotonic_seconds();
    if (gpu->energy_grows && energy[slot].seconds > 0)
        energy[slot].millijoules += (double)gpu->power * (now - energy[slot].seconds);
    energy[slot].seconds = now;
    return gpu->energy + (long long)energy[slot].millijoules;
}

static int read_field(Gpu *gpu, FieldValue *field) {
    enum { ECC_DBE_VOL = 4, ECC_DBE_AGG = 6, MEMORY_TEMP = 82, ENERGY = 83, POWER_AVERAGE = 185, SCOPE_GPU = 0 };
    const struct { unsigned id; int type; long long value; } rows[] = {
        {ECC_DBE_VOL, TYPE_ULLONG, gpu->ecc_volatile},
        {ECC_DBE_AGG, TYPE_ULLONG, gpu->ecc_aggregate},
        {MEMORY_TEMP, gpu->memory_temperature < 0 ? TYPE_INT : TYPE_UINT, gpu->memory_temperature},
        {ENERGY, TYPE_ULLONG, field->id == ENERGY ? energy_millijoules(gpu) : 0},
        {POWER_AVERAGE, TYPE_UINT, gpu->power},
    };
    char name[16];
    snprintf(name, sizeof name, "field.%u", field->id);
    field->value = typed(TYPE_ULLONG, -1);  /* a failed entry's value is rubbish */
    if (forced(gpu, name))
        return forced(gpu, name);
    for (size_t i = 0; i < LENGTH(rows); i++)
        if (rows[i].id == field->id && field->scope == SCOPE_GPU) {
            field->type = rows[i].type;
            field->value = typed(rows[i].type, rows[i].value);
            return SUCCESS;
        }
    return NOT_SUPPORTED;
}

int nvmlDeviceGetFieldValues(Gpu *gpu, int size, FieldValue *fields) {
    ENTER(device, __func__, gpu);
    for (int i = 0; i < size; i++)
        fields[i].code = read_field(gpu, &fields[i]);
    return SUCCESS;
}

static int list(const Processes *processes, unsigned *size, Process *out) {
    unsigned room = *size, there = (unsigned)processes->count;
    *size = there;
    if (there > room || (there && !out))
        return INSUFFICIENT_SIZE;
    if (there)
        memcpy(out, processes->entry, there * sizeof *out);
    return SUCCESS;
}

#define PROCESS_LIST(function, processes)                                                                             \
    int function(Gpu *gpu, unsigned *size, Process *out) {                                                            \
        ENTER(device, __func__, gpu);                                                                                 \
        return list(processes, size, out);                                                                            \
    }
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, gpu->compute_v2.set ? &gpu->compute_v2 : &gpu->compute)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, &gpu->graphics)

/* What drivers before R510 lack. */
#ifndef NVML_STUB_OLD
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, &gpu->compute)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, &gpu->graphics)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, &gpu->mps)

int nvmlDeviceGetTemperatureV(Gpu *gpu, Temperature *reading) {
    enum { VERSION_1 = 0x0100000C };
    ENTER(device, __func__, gpu);
    if (reading->version != VERSION_1)
        return VERSION_MISMATCH;
    reading->temperature = (int)gpu->temperature;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, unsigned long long *mask) {
    ENTER(device, __func__, gpu);
    *mask = (unsigned long long)gpu->clock_events;
    return SUCCESS;
}
#endif
