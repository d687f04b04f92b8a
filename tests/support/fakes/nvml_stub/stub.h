/* Shared by the files of the stand-in libnvidia-ml.so.1; see state.c for what it shows. */
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       GPU_IS_LOST = 15, VERSION_MISMATCH = 25 };
enum { SLOTS = 16, ERRORS = 64, SAMPLES = 120, PROCESSES = 64, FUNCTIONS = 128, FIELDS = 64, INSTANCES = 8, DELAYS = 8 };
enum { SAMPLE_PERIOD_US = 166667 };
enum { TYPE_DOUBLE = 0, TYPE_UINT = 1, TYPE_ULLONG = 3, TYPE_INT = 5 };

typedef union { double dVal; unsigned uiVal; unsigned long long ullVal; int siVal; } Value;
typedef struct { unsigned long long timestamp; Value value; } Sample;
typedef struct { unsigned id, scope; long long timestamp, latency; int type, code; Value value; } FieldValue;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned version, sensor; int temperature; } Temperature;
typedef struct { unsigned version; int margin; } Margin;
typedef struct { unsigned version; unsigned long long counts[11]; unsigned exceeded; } SramStatus;
typedef struct { unsigned version; unsigned char cluster[16]; unsigned status, clique, state, mask; } Fabric;
typedef struct { char legacy[16]; unsigned domain, bus, device, device_id, subsystem_id; char id[32]; } Pci;

/* Numbers in the units of NVML: percent, bytes, degrees, milliwatts, millijoules, megahertz. */
#define NUMBERS(X)                                                                                                    \
    X(utilization, 0) X(memory_utilization, 0) X(memory_total, 85899345920LL) X(memory_used, 0)                       \
    X(memory_reserved, 536870912LL) X(temperature, 35) X(memory_temperature, 40) X(power, 70000)                      \
    X(power_limit, 700000) X(energy, 0) X(energy_grows, 0) X(sm_clock, 345) X(memory_clock, 2619) X(clock_events, 1)  \
    X(ecc_volatile, 0) X(ecc_aggregate, 0) X(sample_type, TYPE_UINT) X(lost, 0) X(absent, 0) X(hang, 0)               \
    X(sram_exceeded, 0) X(fabric_state, 3) X(fabric_status, 0) X(fabric_mask, 0x1AA)                                  \
    X(latency_us, 0) X(samples_again, 0) X(encoder, 0) X(decoder, 0) X(jpeg, 0) X(ofa, 0)                             \
    X(bar1_total, 137438953472LL) X(bar1_used, 1048576) X(temperature_margin, 52) X(power_default, 700000)            \
    X(power_min, 200000) X(power_max, 700000) X(graphics_clock, 345) X(video_clock, 765) X(clock_max, 1980)           \
    X(pstate, 0) X(fan, 30) X(pcie_generation, 5) X(pcie_generation_max, 5) X(pcie_width, 16) X(pcie_width_max, 16)   \
    X(persistence, 1) X(compute_mode, 0) X(mig, 0) X(gpm, 1) X(gpm_newest, 0) X(xid, 0)                               \
    X(xid_count, 0) X(pcie_throughput, 0) X(nvlink_grows, 0) X(block, 0) X(attach_blocks, 0) X(call_us, 0)

typedef struct { int set, count; Process entry[PROCESSES]; } Processes;
typedef struct { unsigned id, scope; long long value; } Number;
typedef struct { int count; Number entry[FIELDS]; } Numbers;
typedef struct { unsigned id, compute; char profile[32]; long long total, used, sm; } Instance;
typedef struct {
#define DECLARE(name, initial) long long name;
    NUMBERS(DECLARE)
    char uuid[64];
    int samples_set, sample_count;
    Sample samples[SAMPLES];
    Processes compute, compute_v2, graphics, mps;
    Numbers fields, metrics;
    int instance_count;
    Instance instances[INSTANCES];
    struct { char function[64]; int code; } errors[ERRORS];
    struct { char function[64]; long long microseconds; } delays[DELAYS];
} Gpu;

#define LENGTH(table) (sizeof(table) / sizeof *(table))

extern Gpu stub_gpus[SLOTS];
extern int stub_gpu_count;

/* What every call passes: it is counted, sees the latest state, and gives the answer that the state asks for. */
void stub_count(const char *function);
int stub_open(unsigned flags);
void stub_touch(const Gpu *gpu);
void stub_close(void);
int enter_system(const char *function);
int enter_identity(const char *function, const Gpu *gpu);
int enter_device(const char *function, const Gpu *gpu);
int stub_forced(const Gpu *gpu, const char *function);

#define ENTER(kind, ...)                                                                                              \
    do {                                                                                                              \
        int code_ = enter_##kind(__VA_ARGS__);                                                                        \
        if (code_)                                                                                                    \
            return code_;                                                                                             \
    } while (0)

/* The time that the function takes by the table of latencies, and that of so many entries. */
int stub_unattached(void);
void stub_spend(const char *function);
void stub_spend_field(unsigned field);
void stub_spend_each(const char *function, unsigned entries);

double stub_monotonic_seconds(void);
unsigned long long stub_wall_microseconds(void);
Value stub_typed(int type, long long number);
const long long *stub_number(const Numbers *numbers, unsigned id, unsigned scope);
int stub_text(char *buffer, unsigned size, const char *value);

/* A MIG handle points at an instance within its GPU. */
Instance *stub_instance(void *handle);
Gpu *stub_gpu(void *handle);
