/* Stands in for libcuda.so.1 where there is no GPU: it takes what tests/gpu/burn.py calls, and checks the arguments. */
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1 };

static char context, module, kernel;
static unsigned long long memory;

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
    *made = &kernel;
    return from != &module || strcmp(name, "spin") ? INVALID_VALUE : SUCCESS;
}

int cuMemAlloc_v2(unsigned long long *pointer, size_t size) {
    memory = *pointer = 0x7f0000000000;
    return size ? SUCCESS : INVALID_VALUE;
}

int cuMemsetD8_v2(unsigned long long pointer, unsigned char value, size_t size) {
    return pointer != memory || value || !size ? INVALID_VALUE : SUCCESS;
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, void *stream, void **arguments, void **extra) {
    unsigned rounds = *(unsigned *)arguments[1];
    if (function != &kernel || !grid_x || grid_y != 1 || grid_z != 1 || !block_x || block_y != 1 || block_z != 1)
        return INVALID_VALUE;
    if (shared || stream || extra || *(unsigned long long *)arguments[0] != memory || !rounds)
        return INVALID_VALUE;
    return SUCCESS;
}

int cuCtxSynchronize(void) {
    usleep(5000);
    return SUCCESS;
}
