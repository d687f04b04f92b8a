"""Work for a GPU, through libcuda alone: `python -m tests.gpu.burn BYTES`, on the first GPU of CUDA_VISIBLE_DEVICES.

Obeys the words on its standard input: `context` opens the GPU, `allocate` takes BYTES of its memory, each word of
PATTERNS begins a pattern of use and ends the one before, `rest` ends it, and so does the end of the input. No setting
changes.
"""

import ctypes
import queue
import sys
import threading
from collections.abc import Callable

from gpuwatch.runtime.clock import SystemClock

# `spin` is a chain of multiplications long enough that a launch takes milliseconds, on small and large GPUs. `wait` is
# what a collective does whose peer is gone: one thread of each block polls a flag, the others stand at a barrier.
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
.visible .entry wait(.param .u64 flag)
{
    .reg .pred %others, %unset;
    .reg .u32 %thread, %value;
    .reg .u64 %flag;
    ld.param.u64 %flag, [flag];
    cvta.to.global.u64 %flag, %flag;
    mov.u32 %thread, %tid.x;
    setp.ne.u32 %others, %thread, 0;
    @%others bra barrier;
poll:
    ld.volatile.global.u32 %value, [%flag];
    setp.eq.u32 %unset, %value, 0;
    @%unset bra poll;
barrier:
    bar.sync 0;
    ret;
}
\0"""
_ROUNDS = 50_000
_BLOCKS, _THREADS = 4096, 256
_CHANNELS, _CHANNEL_THREADS = 24, 512  # of a collective over NVLink
_COPY_BYTES = 256 << 20
_NON_BLOCKING, _DEVICE_MAP = 1, 2  # CU_STREAM_NON_BLOCKING, CU_MEMHOSTALLOC_DEVICEMAP


class Cuda:
    """The few functions of libcuda that are needed; each raises RuntimeError with the name of what failed."""

    def __init__(self) -> None:
        """Load the driver's library; OSError where there is none."""
        self._library = ctypes.CDLL("libcuda.so.1")
        self._pointer = ctypes.c_uint64()  # CUdeviceptr
        self._host = ctypes.c_void_p()
        self._flags: dict[bool, ctypes.c_uint64] = {}  # by whether it lies in the host's memory
        self._spin, self._wait = ctypes.c_void_p(), ctypes.c_void_p()
        self._stream, self._copies = ctypes.c_void_p(), ctypes.c_void_p()
        self._waited: ctypes.c_uint64 | None = None

    def open(self) -> None:
        """A context on the first GPU, with the kernels in it."""
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device)
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_PTX))
        for kernel, name in ((self._spin, b"spin"), (self._wait, b"wait")):
            self._call("cuModuleGetFunction", ctypes.byref(kernel), module, ctypes.c_char_p(name))
        for stream in (self._stream, self._copies):
            self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))

    def allocate(self, size: int) -> None:
        """That much of the GPU's memory, written to once."""
        self._call("cuMemAlloc_v2", ctypes.byref(self._pointer), ctypes.c_size_t(size))
        self._call("cuMemsetD8_v2", self._pointer, ctypes.c_ubyte(0), ctypes.c_size_t(size))
        self._call("cuCtxSynchronize")

    def compute(self) -> None:
        """All multiprocessors for some milliseconds."""
        self._launch(self._spin, _BLOCKS, _THREADS, self._pointer, ctypes.c_uint(_ROUNDS))
        self._call("cuCtxSynchronize")

    def trickle(self) -> None:
        """A request of a small model: one multiprocessor for some milliseconds, then a second without one."""
        self._launch(self._spin, 1, _THREADS, self._pointer, ctypes.c_uint(_ROUNDS))
        self._call("cuCtxSynchronize")
        SystemClock().sleep(1.0)

    def blip(self) -> None:
        """The least that can be computed: a warp for a microsecond, then five seconds without."""
        self._launch(self._spin, 1, 32, self._pointer, ctypes.c_uint(1))
        self._call("cuCtxSynchronize")
        SystemClock().sleep(5.0)

    def upload(self) -> None:
        """Data from the host."""
        if self._host.value is None:
            self._call("cuMemHostAlloc", ctypes.byref(self._host), ctypes.c_size_t(_COPY_BYTES), ctypes.c_uint(0))
        self._call("cuMemcpyHtoD_v2", self._pointer, self._host, ctypes.c_size_t(_COPY_BYTES))

    def move(self) -> None:
        """Data from one place of the GPU's memory to another, by its copy engines or multiprocessors."""
        half = ctypes.c_uint64(self._pointer.value + _COPY_BYTES)
        for _ in range(8):
            self._call("cuMemcpyDtoD_v2", half, self._pointer, ctypes.c_size_t(_COPY_BYTES))
        self._call("cuCtxSynchronize")

    def hang(self) -> None:
        """A collective whose peer is gone, over NVLink: it polls the GPU's own memory."""
        self._hang(in_host=False)

    def hang_on_host(self) -> None:
        """The same through the host: it polls memory of the host."""
        self._hang(in_host=True)

    def release(self) -> None:
        """The peer is back."""
        if self._waited is not None:
            one = ctypes.c_uint(1)
            self._call("cuMemcpyHtoDAsync_v2", self._waited, ctypes.byref(one), ctypes.c_size_t(4), self._copies)
            self._waited = None
        self._call("cuCtxSynchronize")

    def _hang(self, *, in_host: bool) -> None:
        if self._waited is None:
            flag = self._flags.get(in_host) or self._flags.setdefault(in_host, self._flag(in_host=in_host))
            self._call("cuMemsetD32Async", flag, ctypes.c_uint(0), ctypes.c_size_t(1), self._copies)
            self._call("cuStreamSynchronize", self._copies)
            self._launch(self._wait, _CHANNELS, _CHANNEL_THREADS, flag)
            self._waited = flag
        SystemClock().sleep(0.1)

    def _flag(self, *, in_host: bool) -> ctypes.c_uint64:
        """Four bytes to wait for."""
        flag, host = ctypes.c_uint64(), ctypes.c_void_p()
        if in_host:
            self._call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(4), ctypes.c_uint(_DEVICE_MAP))
            self._call("cuMemHostGetDevicePointer_v2", ctypes.byref(flag), host, ctypes.c_uint(0))
        else:
            self._call("cuMemAlloc_v2", ctypes.byref(flag), ctypes.c_size_t(4))
        return flag

    def _launch(
        self, kernel: ctypes.c_void_p, blocks: int, threads: int, *parameters: ctypes.c_uint | ctypes.c_uint64
    ) -> None:
        """Begin a kernel."""
        addresses = [ctypes.addressof(parameter) for parameter in parameters]
        arguments = (ctypes.c_void_p * len(addresses))(*addresses)
        sizes = [ctypes.c_uint(size) for size in (blocks, 1, 1, threads, 1, 1, 0)]  # grid, block, shared memory
        self._call("cuLaunchKernel", kernel, *sizes, self._stream, arguments, ctypes.c_void_p(None))

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} answers {code} (cuda.h: CUresult)")


# By its word, what a pattern does again and again.
PATTERNS: dict[str, Callable[[Cuda], None]] = {
    "work": Cuda.compute,
    "trickle": Cuda.trickle,
    "blip": Cuda.blip,
    "upload": Cuda.upload,
    "move": Cuda.move,
    "hang": Cuda.hang,
    "hang_on_host": Cuda.hang_on_host,
}


def main() -> None:
    """Obey until the input ends."""
    cuda, orders = Cuda(), queue.SimpleQueue[str]()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    size, pattern = int(sys.argv[1]), ""
    while True:
        try:
            order = orders.get(block=not pattern)
        except queue.Empty:
            PATTERNS[pattern](cuda)
            continue
        if pattern:
            cuda.release()
            pattern = ""
        match order:
            case "context":
                cuda.open()
            case "allocate":
                cuda.allocate(size)
            case "rest":
                pass
            case _ if order in PATTERNS:
                pattern = order
                PATTERNS[pattern](cuda)
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
