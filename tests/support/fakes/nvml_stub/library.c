/* The library as a whole, and who the GPUs are. */
#include "stub.h"

int nvmlInitWithFlags(unsigned flags) {
    stub_count(__func__);
    return stub_open(flags);
}

int nvmlShutdown(void) {
    stub_count(__func__);
    stub_close();
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    static char text[32];
    snprintf(text, sizeof text, "stub error %d", code);
    return text;
}

int stub_text(char *buffer, unsigned size, const char *value) {
    return (unsigned)snprintf(buffer, size, "%s", value) < size ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlSystemGetDriverVersion(char *buffer, unsigned size) {
    ENTER(system, __func__);
    return stub_text(buffer, size, "580.65.06");
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
    for (int slot = 0; slot < stub_gpu_count && stub_unattached() != NOT_FOUND; slot++)
        *count_ += !stub_gpus[slot].absent;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **handle) {
    ENTER(system, __func__);
    for (int slot = 0; slot < stub_gpu_count; slot++)
        if (!stub_gpus[slot].absent && index-- == 0) {
            *handle = &stub_gpus[slot];
            stub_touch(*handle);
            return stub_gpus[slot].lost ? GPU_IS_LOST : stub_forced(&stub_gpus[slot], __func__);
        }
    return INVALID_ARGUMENT;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Gpu **handle) {
    unsigned domain, bus, device;
    ENTER(system, __func__);
    if (stub_unattached() == NOT_FOUND)
        return NOT_FOUND;
    if (sscanf(bus_id, "%x:%x:%x", &domain, &bus, &device) != 3)
        return INVALID_ARGUMENT;
    int slot = (int)bus - 1;
    if (domain || device || slot < 0 || slot >= stub_gpu_count || stub_gpus[slot].absent)
        return NOT_FOUND;
    *handle = &stub_gpus[slot];
    stub_touch(*handle);
    return stub_gpus[slot].lost ? GPU_IS_LOST : stub_forced(&stub_gpus[slot], __func__);
}

int nvmlDeviceGetIndex(const Gpu *gpu, unsigned *index) {
    ENTER(identity, __func__, gpu);
    *index = 0;
    for (const Gpu *before = stub_gpus; before < gpu; before++)
        *index += !before->absent;
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *buffer, unsigned size) {
    char uuid[64];
    Gpu *gpu = stub_gpu(handle);
    Instance *instance = stub_instance(handle);
    ENTER(identity, __func__, gpu);
    if (gpu->uuid[0])
        return stub_text(buffer, size, gpu->uuid);
    if (instance) {
        snprintf(uuid, sizeof uuid, "MIG-%08d-0000-4000-8000-%04u%08u", (int)(gpu - stub_gpus), instance->id, instance->compute);
        return stub_text(buffer, size, uuid);
    }
    snprintf(uuid, sizeof uuid, "GPU-00000000-0000-4000-8000-%012d", (int)(gpu - stub_gpus));
    return stub_text(buffer, size, uuid);
}

int nvmlDeviceGetName(void *handle, char *buffer, unsigned size) {
    char name[64] = "NVIDIA Stub 80GB";
    Instance *instance = stub_instance(handle);
    ENTER(identity, __func__, stub_gpu(handle));
    if (instance)
        snprintf(name, sizeof name, "NVIDIA Stub 80GB MIG %s", instance->profile);
    return stub_text(buffer, size, name);
}

int nvmlDeviceGetVbiosVersion(Gpu *gpu, char *buffer, unsigned size) {
    ENTER(identity, __func__, gpu);
    return stub_text(buffer, size, "96.00.5E.00.01");
}

int nvmlDeviceGetPciInfo_v3(Gpu *gpu, Pci *pci) {
    ENTER(identity, __func__, gpu);
    *pci = (Pci){.bus = (unsigned)(gpu - stub_gpus) + 1};
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

int nvmlDeviceGetSerial(Gpu *gpu, char *buffer, unsigned size) {
    char serial[32];
    ENTER(identity, __func__, gpu);
    snprintf(serial, sizeof serial, "16500000%05d", (int)(gpu - stub_gpus));
    return stub_text(buffer, size, serial);
}
