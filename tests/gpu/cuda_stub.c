/* Stands in for libcuda.so.1 where there is no GPU: it takes what tests/gpu/burn.py calls, and checks the arguments. */
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, CHUNK = 256 << 20 };

static char context, module, spin, wait_for, streams[2];
static int stream_count, waiting;
static unsigned long long memory, flag;
static unsigned pinned[CHUNK / sizeof(unsigned)], mapped;

static int is_stream(void *stream) { return stream == &streams[0] || stream == &streams[1]; }

static int is_flag(unsigned long long pointer) { return pointer && (pointer == flag || pointer == (unsigned long long)&mapped); }

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }

int cuDeviceGet(int *device, int ordinal) {
    *device = 7;
    return ordinal ? INVALID_VALUE : SUCCESS;
}

int cuCtxCreate_v2(void **made, unsigned flags, int device) {
    *made = &context;
    return flags || device != 7 ? INVALID_VALUE : SUCCESS;
}

int cuModuleLoadData(void **made, const char *image) {
    *made = &module;
    return strncmp(image, ".version ", 9) ? INVALID_VALUE : SUCCESS;
}

int cuModuleGetFunction(void **made, void *from, const char *name) {
    *made = strcmp(name, "spin") ? &wait_for : &spin;
    return from != &module || (strcmp(name, "spin") && strcmp(name, "wait")) ? INVALID_VALUE : SUCCESS;
}

int cuStreamCreate(void **made, unsigned flags) {
    if (flags != 1 || stream_count == 2)
        return INVALID_VALUE;
    *made = &streams[stream_count++];
    return SUCCESS;
}

int cuStreamSynchronize(void *stream) { return is_stream(stream) ? SUCCESS : INVALID_VALUE; }

int cuMemAlloc_v2(unsigned long long *pointer, size_t size) {
    *pointer = size == 4 ? (flag = 0x7e0000000000) : (memory = 0x7f0000000000);
    return size ? SUCCESS : INVALID_VALUE;
}

int cuMemHostAlloc(void **pointer, size_t size, unsigned flags) {
    *pointer = size == 4 ? (void *)&mapped : (void *)pinned;
    return size == 4 ? (flags == 2 ? SUCCESS : INVALID_VALUE) : (flags || size != CHUNK ? INVALID_VALUE : SUCCESS);
}

int cuMemHostGetDevicePointer_v2(unsigned long long *pointer, void *host, unsigned flags) {
    *pointer = (unsigned long long)&mapped;
    return flags || host != &mapped ? INVALID_VALUE : SUCCESS;
}

int cuMemsetD8_v2(unsigned long long pointer, unsigned char value, size_t size) {
    return pointer != memory || value || !size ? INVALID_VALUE : SUCCESS;
}

int cuMemsetD32Async(unsigned long long pointer, unsigned value, size_t count, void *stream) {
    return !is_flag(pointer) || value || count != 1 || !is_stream(stream) ? INVALID_VALUE : SUCCESS;
}

int cuMemcpyHtoD_v2(unsigned long long to, void *from, size_t size) {
    usleep(5000);
    return to != memory || from != pinned || size != CHUNK ? INVALID_VALUE : SUCCESS;
}

int cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t size) {
    return from != memory || to != memory + CHUNK || size != CHUNK ? INVALID_VALUE : SUCCESS;
}

int cuMemcpyHtoDAsync_v2(unsigned long long to, unsigned *from, size_t size, void *stream) {
    if (!is_flag(to) || *from != 1 || size != sizeof *from || !is_stream(stream))
        return INVALID_VALUE;
    waiting = 0;
    return SUCCESS;
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, void *stream, void **arguments, void **extra) {
    if (!grid_x || grid_y != 1 || grid_z != 1 || !block_x || block_y != 1 || block_z != 1)
        return INVALID_VALUE;
    if (shared || extra || stream != &streams[0])
        return INVALID_VALUE;
    if (function == &wait_for) {
        waiting = 1;
        return is_flag(*(unsigned long long *)arguments[0]) ? SUCCESS : INVALID_VALUE;
    }
    return function != &spin || *(unsigned long long *)arguments[0] != memory || !*(unsigned *)arguments[1];
}

int cuCtxSynchronize(void) {
    while (waiting)  /* as the real one: it ends when the kernel does, and never before */
        usleep(5000);
    usleep(5000);
    return SUCCESS;
}
