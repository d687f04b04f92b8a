/* What other exporters ask the driver and the agent does not, so that a benchmark compares exporters that read all. */
#include "stub.h"

int nvmlDeviceGetPowerManagementLimit(Gpu *gpu, unsigned *milliwatts) {
    ENTER(device, __func__, gpu);
    *milliwatts = (unsigned)gpu->power_limit;
    return SUCCESS;
}

/* KiB/s in a window of 20 ms. */
int nvmlDeviceGetPcieThroughput(Gpu *gpu, int counter, unsigned *kibibytes) {
    enum { TX = 0, RX = 1 };
    ENTER(device, __func__, gpu);
    if (counter != TX && counter != RX)
        return INVALID_ARGUMENT;
    *kibibytes = (unsigned)gpu->pcie_throughput;
    return SUCCESS;
}

typedef struct { unsigned pid; unsigned long long timestamp; unsigned sm, memory, encoder, decoder; } ProcessSample;

/* One sample a process; like the driver it lists only processes that use the GPU. */
int nvmlDeviceGetProcessUtilization(Gpu *gpu, ProcessSample *out, unsigned *size, unsigned long long last_seen) {
    (void)last_seen;
    ENTER(device, __func__, gpu);
    if (gpu->instance_count)
        return NOT_SUPPORTED;
    unsigned room = *size;
    *size = gpu->utilization ? (unsigned)gpu->compute.count : 0;
    if (!*size)
        return NOT_FOUND;
    if (!out || room < *size)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *size; i++)
        out[i] = (ProcessSample){.pid = gpu->compute.entry[i].pid, .timestamp = stub_wall_microseconds(),
                                 .sm = (unsigned)gpu->utilization, .memory = (unsigned)gpu->memory_utilization};
    return SUCCESS;
}
