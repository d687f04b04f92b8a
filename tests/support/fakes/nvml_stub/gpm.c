/* GPM, of Hopper and newer, as in R520 drivers and later. */
#include "stub.h"

#ifndef NVML_STUB_OLD
enum { GRAPHICS = 1, SM = 2, OCCUPANCY = 3, NO_INSTANCE = -1 };

typedef struct { const Gpu *gpu; int instance; double seconds; } GpmSample;
typedef struct { unsigned id; int code; double value; const char *names[3]; } Metric;
typedef struct { unsigned version, count; GpmSample *first, *second; Metric metrics[]; } MetricsGet;
typedef struct { unsigned version, supported; } Support;

static int live_samples;

int stub_live_samples(void) {
    return live_samples;
}

int nvmlGpmQueryDeviceSupport(Gpu *gpu, Support *support) {
    ENTER(device, __func__, gpu);
    support->supported = gpu->gpm != 0;
    return SUCCESS;
}

int nvmlGpmSampleAlloc(GpmSample **sample) {
    ENTER(system, __func__);
    *sample = calloc(1, sizeof **sample);
    live_samples++;
    return SUCCESS;
}

int nvmlGpmSampleFree(GpmSample *sample) {
    stub_count(__func__);
    free(sample);
    live_samples--;
    return SUCCESS;
}

int nvmlGpmSampleGet(Gpu *gpu, GpmSample *sample) {
    ENTER(device, __func__, gpu);
    *sample = (GpmSample){gpu, NO_INSTANCE, stub_monotonic_seconds()};
    return gpu->gpm ? SUCCESS : NOT_SUPPORTED;
}

static const Instance *found(const Gpu *gpu, int id) {
    for (int i = 0; i < gpu->instance_count; i++)
        if ((int)gpu->instances[i].id == id)
            return &gpu->instances[i];
    return NULL;
}

int nvmlGpmMigSampleGet(Gpu *gpu, unsigned instance, GpmSample *sample) {
    ENTER(device, __func__, gpu);
    if (!found(gpu, (int)instance))
        return NOT_FOUND;
    *sample = (GpmSample){gpu, (int)instance, stub_monotonic_seconds()};
    return gpu->gpm ? SUCCESS : NOT_SUPPORTED;
}

static int measure(const Gpu *gpu, int instance, Metric *metric) {
    char name[16];
    snprintf(name, sizeof name, "gpm.%u", metric->id);
    metric->value = -1;  /* a failed entry's value is rubbish */
    if (stub_forced(gpu, name))
        return stub_forced(gpu, name);
    const Instance *within = found(gpu, instance);
    const long long *set = stub_number(&gpu->metrics, metric->id, 0);
    long long busy = within ? within->sm : gpu->utilization;
    metric->value = (double)(set ? *set : metric->id == GRAPHICS || metric->id == SM ? busy : 0);
    return SUCCESS;
}

int nvmlGpmMetricsGet(MetricsGet *request) {
    enum { VERSION = 1 };
    GpmSample *first = request->first, *second = request->second;
    if (!first || !second || !first->gpu || first->gpu != second->gpu || first->instance != second->instance ||
        first->seconds >= second->seconds)
        return INVALID_ARGUMENT;
    ENTER(device, __func__, first->gpu);
    if (request->version != VERSION)
        return VERSION_MISMATCH;
    stub_spend_each(__func__, request->count);
    for (unsigned i = 0; i < request->count; i++)  /* one id that it does not know spoils the whole */
        if (first->gpu->gpm_newest && (long long)request->metrics[i].id > first->gpu->gpm_newest)
            return INVALID_ARGUMENT;
    for (unsigned i = 0; i < request->count; i++)
        request->metrics[i].code = measure(first->gpu, first->instance, &request->metrics[i]);
    return SUCCESS;
}
#endif
