/* Event sets: each step of `gpu.3.xid_count` is one event with the number `gpu.3.xid`; those before it is registered,
 * or before the set was made, are never told. Only a wait of no time is played. */
#include "stub.h"

enum { TIMEOUT = 10 };
enum { XID_CRITICAL = 0x8 };

typedef struct { Gpu *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } Event;

static struct { int registered; long long told; } sets[SLOTS];

int nvmlEventSetCreate(void **set) {
    ENTER(system, __func__);
    memset(sets, 0, sizeof sets);
    *set = sets;
    return stub_forced(&stub_gpus[0], __func__);
}

int nvmlDeviceRegisterEvents(Gpu *gpu, unsigned long long types, void *set) {
    ENTER(identity, __func__, gpu);
    if (set != sets || types != XID_CRITICAL)
        return INVALID_ARGUMENT;
    sets[gpu - stub_gpus].registered = 1;
    sets[gpu - stub_gpus].told = gpu->xid_count;
    return SUCCESS;
}

int nvmlEventSetWait_v2(void *set, Event *event, unsigned milliseconds) {
    ENTER(system, __func__);
    if (set != sets || milliseconds)
        return INVALID_ARGUMENT;
    int code = stub_forced(&stub_gpus[0], __func__);
    if (code)
        return code;
    for (int slot = 0; slot < SLOTS; slot++)
        if (sets[slot].registered && sets[slot].told < stub_gpus[slot].xid_count) {
            sets[slot].told++;
            *event = (Event){&stub_gpus[slot], XID_CRITICAL, (unsigned long long)stub_gpus[slot].xid, UINT_MAX, UINT_MAX};
            return SUCCESS;
        }
    return TIMEOUT;
}

int nvmlEventSetFree(void *set) {
    ENTER(system, __func__);
    (void)set;
    memset(sets, 0, sizeof sets);
    return SUCCESS;
}
