/* MIG. */
#include "stub.h"

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *current, unsigned *pending) {
    ENTER(device, __func__, gpu);
    *current = *pending = (unsigned)gpu->mig;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned *count) {
    ENTER(device, __func__, gpu);
    *count = gpu->mig ? 7 : 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned index, Instance **handle) {
    ENTER(device, __func__, gpu);
    if (!gpu->mig || index >= (unsigned)gpu->instance_count)
        return NOT_FOUND;
    *handle = &gpu->instances[index];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(Instance *instance, unsigned *id) {
    ENTER(identity, __func__, stub_gpu(instance));
    *id = instance->id;
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(Instance *instance, unsigned *id) {
    ENTER(identity, __func__, stub_gpu(instance));
    *id = instance->compute;
    return SUCCESS;
}
