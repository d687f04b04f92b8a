/* What the GPUs show. */
#include "stub.h"

int nvmlDeviceGetUtilizationRates(Gpu *gpu, unsigned rates[2]) {
    ENTER(device, __func__, gpu);
    if (gpu->instance_count)
        return NOT_SUPPORTED;  /* its instances have the engines */
    rates[0] = (unsigned)gpu->utilization;
    rates[1] = (unsigned)gpu->memory_utilization;
    return SUCCESS;
}

int nvmlDeviceGetSamples(Gpu *gpu, int type, unsigned long long last_seen, int *value_type, unsigned *size, Sample *out) {
    enum { GPU_UTILIZATION = 1 };
    ENTER(device, __func__, gpu);
    if (type != GPU_UTILIZATION || gpu->instance_count)
        return NOT_SUPPORTED;
    Sample live[SAMPLES], *from = gpu->samples_set ? gpu->samples : live;
    int available = gpu->samples_set ? gpu->sample_count : SAMPLES;
    unsigned long long newest = (unsigned long long)(stub_monotonic_seconds() * 1e6) / SAMPLE_PERIOD_US;
    for (unsigned i = 0; i < SAMPLES; i++)
        live[i] = (Sample){(newest - SAMPLES + 1 + i) * SAMPLE_PERIOD_US, {.uiVal = (unsigned)gpu->utilization}};
    unsigned fresh = 0;
    for (int i = 0; i < available; i++) {
        if (from[i].timestamp <= last_seen && !gpu->samples_again)
            continue;
        if (out && fresh < *size)
            out[fresh] = (Sample){from[i].timestamp, stub_typed((int)gpu->sample_type, from[i].value.uiVal)};
        fresh++;
    }
    *value_type = (int)gpu->sample_type;
    *size = out && fresh > *size ? *size : fresh;
    return fresh ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory *memory) {
    enum { VERSION_2 = 0x02000028 };
    Gpu *gpu = stub_gpu(handle);
    Instance *instance = stub_instance(handle);
    ENTER(device, __func__, gpu);
    if (memory->version != VERSION_2)
        return VERSION_MISMATCH;
    if (instance) {
        *memory = (Memory){VERSION_2, (unsigned long long)instance->total, 0,
                           (unsigned long long)(instance->total - instance->used), (unsigned long long)instance->used};
        return SUCCESS;
    }
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
    const long long clocks[] = {gpu->graphics_clock, gpu->sm_clock, gpu->memory_clock, gpu->video_clock};
    ENTER(device, __func__, gpu);
    if (clock < 0 || (size_t)clock >= LENGTH(clocks))
        return INVALID_ARGUMENT;
    *megahertz = (unsigned)clocks[clock];
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu *gpu, unsigned long long *mask) {
    ENTER(device, __func__, gpu);
    *mask = (unsigned long long)gpu->clock_events;
    return SUCCESS;
}

/* Functions that answer one number of the state. */
#define NUMBER(function, type, number)                                                                                \
    int function(Gpu *gpu, type *out) {                                                                               \
        ENTER(device, __func__, gpu);                                                                                 \
        *out = (type)gpu->number;                                                                                     \
        return SUCCESS;                                                                                               \
    }
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, power_default)
NUMBER(nvmlDeviceGetPerformanceState, unsigned, pstate)
NUMBER(nvmlDeviceGetFanSpeed, unsigned, fan)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, pcie_generation)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, pcie_generation_max)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, pcie_width)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, pcie_width_max)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, persistence)
NUMBER(nvmlDeviceGetComputeMode, unsigned, compute_mode)

#define ENGINE(function, number)                                                                                      \
    int function(Gpu *gpu, unsigned *percent, unsigned *period_us) {                                                  \
        ENTER(device, __func__, gpu);                                                                                 \
        if (gpu->instance_count)                                                                                      \
            return NOT_SUPPORTED;                                                                                     \
        *percent = (unsigned)gpu->number;                                                                             \
        *period_us = SAMPLE_PERIOD_US;                                                                                \
        return SUCCESS;                                                                                               \
    }
ENGINE(nvmlDeviceGetEncoderUtilization, encoder)
ENGINE(nvmlDeviceGetDecoderUtilization, decoder)

int nvmlDeviceGetPowerManagementLimitConstraints(Gpu *gpu, unsigned *min, unsigned *max) {
    ENTER(device, __func__, gpu);
    *min = (unsigned)gpu->power_min;
    *max = (unsigned)gpu->power_max;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(Gpu *gpu, int clock, unsigned *megahertz) {
    enum { CLOCK_MEMORY = 2 };
    ENTER(device, __func__, gpu);
    *megahertz = (unsigned)(clock == CLOCK_MEMORY ? gpu->memory_clock : gpu->clock_max);
    return SUCCESS;
}

int nvmlDeviceGetBAR1MemoryInfo(Gpu *gpu, unsigned long long memory[3]) {
    ENTER(device, __func__, gpu);
    memory[0] = (unsigned long long)gpu->bar1_total;
    memory[1] = (unsigned long long)(gpu->bar1_total - gpu->bar1_used);
    memory[2] = (unsigned long long)gpu->bar1_used;
    return SUCCESS;
}

/* Through the handle of a MIG device only the processes in that device are listed. */
static int list(const Processes *processes, const Instance *within, unsigned *size, Process *out) {
    Process listed[PROCESSES];
    unsigned room = *size, there = 0;
    for (int i = 0; i < processes->count; i++) {
        const Process *process = &processes->entry[i];
        if (!within || (process->gpu_instance == within->id && process->compute_instance == within->compute))
            listed[there++] = *process;
    }
    *size = there;
    if (there > room || (there && !out))
        return INSUFFICIENT_SIZE;
    if (there)
        memcpy(out, listed, there * sizeof *out);
    return SUCCESS;
}

#define PROCESS_LIST(function, processes)                                                                             \
    int function(void *handle, unsigned *size, Process *out) {                                                        \
        Gpu *gpu = stub_gpu(handle);                                                                                  \
        Instance *within = stub_instance(handle);                                                                     \
        ENTER(device, within ? "mig." #function : #function, gpu);                                                    \
        return list(processes, within, size, out);                                                                    \
    }
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, gpu->compute_v2.set ? &gpu->compute_v2 : &gpu->compute)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, &gpu->graphics)

/* What drivers before R510 lack. */
#ifndef NVML_STUB_OLD
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, &gpu->compute)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, &gpu->graphics)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, &gpu->mps)

ENGINE(nvmlDeviceGetJpgUtilization, jpeg)
ENGINE(nvmlDeviceGetOfaUtilization, ofa)

int nvmlDeviceGetMarginTemperature(Gpu *gpu, Margin *reading) {
    enum { VERSION_1 = 0x01000008 };
    ENTER(device, __func__, gpu);
    if (reading->version != VERSION_1)
        return VERSION_MISMATCH;
    reading->margin = (int)gpu->temperature_margin;
    return SUCCESS;
}

int nvmlDeviceGetSramEccErrorStatus(Gpu *gpu, SramStatus *status) {
    enum { VERSION_1 = 0x01000068 };
    ENTER(device, __func__, gpu);
    if (status->version != VERSION_1)
        return VERSION_MISMATCH;
    status->exceeded = (unsigned)gpu->sram_exceeded;
    return SUCCESS;
}

int nvmlDeviceGetGpuFabricInfoV(Gpu *gpu, Fabric *fabric) {
    enum { VERSION_2 = 0x02000024 };
    ENTER(device, __func__, gpu);
    if (fabric->version != VERSION_2)
        return VERSION_MISMATCH;
    fabric->state = (unsigned)gpu->fabric_state;
    fabric->status = (unsigned)gpu->fabric_status;
    fabric->mask = (unsigned)gpu->fabric_mask;
    return SUCCESS;
}

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
