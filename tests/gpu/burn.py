"""Work for a GPU, through libcuda alone: `python -m tests.gpu.burn BYTES`, on the first GPU of CUDA_VISIBLE_DEVICES.

Obeys the words on its standard input, and repeats each as soon as it is done: `context` opens the GPU, `allocate` takes
BYTES of its memory, `work` begins to compute, `rest` ends that. The end of its input ends it. It changes no setting.
"""

import ctypes
import queue
import sys
import threading

# A chain of multiplications long enough that a launch takes milliseconds, on small and large GPUs.
_PTX = b"""\
.version 6.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 out, .param .u32 rounds)
{
    .reg .pred %again;
    .reg .u32 %round, %rounds;
    .reg .u64 %out;
    .reg .f32 %a, %b;
    ld.param.u64 %out, [out];
    ld.param.u32 %rounds, [rounds];
    cvta.to.global.u64 %out, %out;
    mov.u32 %round, 0;
    mov.f32 %a, 0f3F800000;
    mov.f32 %b, 0f3F000000;
loop:
    fma.rn.f32 %a, %a, %b, %b;
    fma.rn.f32 %a, %a, %b, %b;
    fma.rn.f32 %a, %a, %b, %b;
    fma.rn.f32 %a, %a, %b, %b;
    add.u32 %round, %round, 1;
    setp.lt.u32 %again, %round, %rounds;
    @%again bra loop;
    st.global.f32 [%out], %a;
    ret;
}
\0"""
_ROUNDS = 50_000
_BLOCKS, _THREADS = 4096, 256


class Cuda:
    """The few functions of libcuda that are needed; each raises RuntimeError with the name of what failed."""

    def __init__(self) -> None:
        """Load the driver's library; OSError where there is none."""
        self._library = ctypes.CDLL("libcuda.so.1")
        self._pointer = ctypes.c_uint64()  # CUdeviceptr
        self._kernel = ctypes.c_void_p()

    def open(self) -> None:
        """A context on the first GPU, with the kernel in it."""
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device)
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_PTX))
        self._call("cuModuleGetFunction", ctypes.byref(self._kernel), module, ctypes.c_char_p(b"spin"))

    def allocate(self, size: int) -> None:
        """That much of the GPU's memory, written to once."""
        self._call("cuMemAlloc_v2", ctypes.byref(self._pointer), ctypes.c_size_t(size))
        self._call("cuMemsetD8_v2", self._pointer, ctypes.c_ubyte(0), ctypes.c_size_t(size))
        self._call("cuCtxSynchronize")

    def launch(self) -> None:
        """The kernel once, until it is done."""
        rounds = ctypes.c_uint(_ROUNDS)
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(self._pointer), ctypes.addressof(rounds))
        sizes = [ctypes.c_uint(size) for size in (_BLOCKS, 1, 1, _THREADS, 1, 1, 0)]  # grid, block, shared memory
        self._call("cuLaunchKernel", self._kernel, *sizes, ctypes.c_void_p(None), arguments, ctypes.c_void_p(None))
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} answers {code} (cuda.h: CUresult)")


def main() -> None:
    """Obey until the input ends."""
    cuda, orders = Cuda(), queue.SimpleQueue[str]()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    size, working = int(sys.argv[1]), False
    while True:
        try:
            order = orders.get(block=not working)
        except queue.Empty:
            cuda.launch()
            continue
        match order:
            case "context":
                cuda.open()
            case "allocate":
                cuda.allocate(size)
            case "work":
                cuda.launch()
                working = True
            case "rest":
                working = False
            case _:
                return
        sys.stdout.write(f"{order}\n")
        sys.stdout.flush()


def _listen(orders: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        orders.put(line.strip())
    orders.put("end")


if __name__ == "__main__":
    main()
