"""Checks the stub of the CUDA driver, and the NVRTC and NCCL beside it: check.py LIBCUDA

Every check runs in a process of its own, because the stub reads its settings once.
"""

import array
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading

INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE, INVALID_CONTEXT = 1, 2, 101, 201
NO_BINARY_FOR_GPU, INVALID_PTX, NOT_FOUND, NOT_SUPPORTED = 209, 218, 500, 801
MIB = 1 << 20
PTX = """//
// A comment, as NVRTC writes one.
.version 9.0
.target {target}
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry plain(
\t.param .u64 plain_param_0
)
.maxntid 256
{{
\tret;
}}
.visible .entry fixed()
{{
\t.shared .align 4 .b8 tile[4096];
\tret;
}}
"""
COUNTERS = (
    "launches modules_loaded streams_created events_created stream_waits stream_syncs event_syncs host_to_device "
    "host_to_device_bytes device_to_host device_to_host_bytes device_to_device device_to_device_bytes allocations "
    "live_bytes peak_bytes memsets"
).split()


class Driver:
    """The stub with a context, a stream and a module."""

    def __init__(self, library, context=True):
        self.cuda = ctypes.CDLL(library)
        assert self.cuda.cuInit(0) == 0
        if context:
            self.make_current()
            self.stream = self.made("cuStreamCreate", 1)
            self.arch = self.attribute(75) * 10 + self.attribute(76)
            self.module = self.made("cuModuleLoadData", self.ptx())

    def __getattr__(self, name):
        """A call whose Python integers are 64-bit, as addresses are."""
        function = getattr(self.cuda, name)
        return lambda *values: function(*(ctypes.c_uint64(v) if isinstance(v, int) else v for v in values))

    def made(self, call, *values):
        """What a successful call writes behind its first argument."""
        result = ctypes.c_uint64()
        assert getattr(self, call)(ctypes.byref(result), *values) == 0, call
        return result.value

    def make_current(self):
        assert self.cuCtxSetCurrent(self.made("cuDevicePrimaryCtxRetain", 0)) == 0

    def attribute(self, number):
        return self.made("cuDeviceGetAttribute", number, 0)

    def name(self):
        text = ctypes.create_string_buffer(64)
        assert self.cuDeviceGetName(text, 64, 0) == 0
        return text.value.decode()

    def ptx(self, target=None):
        return PTX.format(target=target or {80: "sm_80", 90: "sm_90a"}[self.arch]).encode()

    def load(self, image):
        return self.cuModuleLoadData(ctypes.byref(ctypes.c_uint64()), image)

    def allocate(self, size):
        return self.made("cuMemAlloc_v2", size)

    def function(self, kernel):
        return self.made("cuModuleGetFunction", self.module, kernel)

    def launch_handle(self, function):
        return self.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, None, None)

    def launch(self, grid=(1, 1, 1), block=(1, 1, 1), shared=0, ask=None, kernel=b"plain", stream=None):
        function = self.function(kernel)
        if ask is not None:
            assert self.cuFuncSetAttribute(function, 8, ask) == 0
        return self.cuLaunchKernel(function, *grid, *block, shared, self.stream if stream is None else stream, None, None)

    def rows(self, source, target, pitches=(64, 64), width=64, height=4, types=(1, 2)):
        """A copy of rows between the two addresses; a type is 1 for the host and 2 for the device."""
        plan = (ctypes.c_uint64 * 16)(
            0, 0, types[0], source, source, 0, pitches[0],
            0, 0, types[1], target, target, 0, pitches[1],
            width, height,
        )
        return self.cuMemcpy2DAsync_v2(plan, self.stream)


CHECKS = {}


def holds(function, name=None, refusals=(), **environment):
    """A check whose assertions hold, with these refusals on stderr."""
    CHECKS[name or function.__name__] = (function, refusals, environment)
    return function


def refused(name, code, text, call, **environment):
    """A call that answers with a code and says why."""

    def check(library):
        answer = call(Driver(library))
        assert answer == code, answer

    holds(check, name, (text,), **environment)


ZEROS = ctypes.create_string_buffer(4 * MIB)
HOST = ctypes.addressof(ZEROS)

# Launches.
for axis, (blocks, threads) in enumerate(((1 << 31, 1025), (65536, 1025), (65536, 65))):
    for what, most in (("grid", blocks), ("block", threads)):
        for size in (0, most):
            shape = tuple(size if axis == other else 1 for other in range(3))
            refused(f"{what} {shape}", INVALID_VALUE, "grid", lambda d, k=what, s=shape: d.launch(**{k: s}))
refused("more than 1024 threads", INVALID_VALUE, "block 32 x 33 x 1", lambda d: d.launch(block=(32, 33, 1)))
refused("shared memory not asked for", INVALID_VALUE, "49153 bytes", lambda d: d.launch(shared=49153))
refused("shared memory beyond that asked for", INVALID_VALUE, "at most 60000", lambda d: d.launch(shared=60001, ask=60000))
refused("static and dynamic shared memory", INVALID_VALUE, "at most 45056", lambda d: d.launch(shared=45057, kernel=b"fixed"))
for arch, most in ((80, 166912), (90, 232448)):
    for kernel, static in ((b"plain", 0), (b"fixed", 4096)):
        refused(
            f"shared memory beyond the architecture's, {arch}, {kernel.decode()}", INVALID_VALUE, "shared memory",
            lambda d, k=kernel, n=most - static + 1: d.cuFuncSetAttribute(d.function(k), 8, n),
            CUDA_STUB_ARCH=str(arch),
        )
for name, handle in {
    "no function": lambda d: 0,
    "a stream as a function": lambda d: d.stream,
    "an address within a function": lambda d: d.function(b"plain") + 8,
}.items():
    refused(name, INVALID_VALUE, "unknown function", lambda d, h=handle: d.launch_handle(h(d)))
refused("launch on an unknown stream", INVALID_VALUE, "unknown stream", lambda d: d.launch(stream=4096))

# Streams and events.
refused(
    "a stream after its end", INVALID_VALUE, "unknown stream",
    lambda d: d.cuStreamDestroy_v2(d.stream) or d.cuStreamSynchronize(d.stream),
)
refused("wait for an unknown event", INVALID_VALUE, "unknown event", lambda d: d.cuStreamWaitEvent(d.stream, 4096, 0))
refused("record of an unknown event", INVALID_VALUE, "unknown event", lambda d: d.cuEventRecord(0, d.stream))
refused("a stream as an event", INVALID_VALUE, "unknown event", lambda d: d.cuEventSynchronize(d.stream))

# Copies and memsets.
for name, call in {
    "to the device": lambda d, a, n: d.cuMemcpyHtoDAsync_v2(a, HOST, n, 0),
    "to the host": lambda d, a, n: d.cuMemcpyDtoHAsync_v2(HOST, a, n, 0),
    "from device to device": lambda d, a, n: d.cuMemcpyDtoDAsync_v2(d.allocate(MIB), a, n, 0),
    "into the device from it": lambda d, a, n: d.cuMemcpyDtoDAsync_v2(a, d.allocate(MIB), n, 0),
    "memset": lambda d, a, n: d.cuMemsetD8Async(a, 1, n, 0),
}.items():
    one = "not in one allocation"
    refused(f"{name}: past the end", INVALID_VALUE, one, lambda d, c=call: c(d, d.allocate(8192) + 4096, 4097))
    refused(f"{name}: before the start", INVALID_VALUE, one, lambda d, c=call: c(d, d.allocate(8192) - 1, 2))
    refused(f"{name}: null", INVALID_VALUE, one, lambda d, c=call: c(d, 0, 1))
    refused(f"{name}: the last address", INVALID_VALUE, one, lambda d, c=call: c(d, (1 << 64) - 1, 1))
    refused(f"{name}: memory of the host", INVALID_VALUE, one, lambda d, c=call: c(d, HOST, 1))
    refused(f"{name}: pinned memory", INVALID_VALUE, one, lambda d, c=call: c(d, d.made("cuMemAllocHost_v2", 64), 1))

    def after_free(d, c=call):
        address = d.allocate(8192)
        assert d.cuMemFree_v2(address) == 0
        return c(d, address, 1)

    refused(f"{name}: after the end", INVALID_VALUE, one, after_free)
refused(
    "a copy on an unknown stream", INVALID_VALUE, "unknown stream",
    lambda d: d.cuMemcpyHtoDAsync_v2(d.allocate(64), HOST, 64, 4096),
)
refused("rows past the end", INVALID_VALUE, "not in one", lambda d: d.rows(HOST, d.allocate(447), pitches=(64, 128)))
refused("rows wider than their pitch", INVALID_VALUE, "pitch 63", lambda d: d.rows(HOST, d.allocate(MIB), pitches=(63, 64)))
refused("rows of an array", INVALID_VALUE, "types 3 to 2", lambda d: d.rows(HOST, d.allocate(MIB), types=(3, 2)))

# Memory.
refused("free of nothing", INVALID_VALUE, "free of 0,", lambda d: d.cuMemFree_v2(0))
refused("free within an allocation", INVALID_VALUE, "free of 0x", lambda d: d.cuMemFree_v2(d.allocate(64) + 1))
refused("free of pinned memory", INVALID_VALUE, "free of 0x", lambda d: d.cuMemFree_v2(d.made("cuMemAllocHost_v2", 64)))
refused("free on a stream", INVALID_VALUE, "free of 0x", lambda d: d.cuMemFreeAsync(HOST, d.stream))
refused("free of device memory as the host's", INVALID_VALUE, "no host", lambda d: d.cuMemFreeHost(d.allocate(64)))
refused("no bytes", INVALID_VALUE, "no bytes", lambda d: d.cuMemAlloc_v2(HOST, 0))
for call in ("cuMemAlloc_v2", "cuMemAllocAsync"):
    refused(
        f"more than the memory, {call}", OUT_OF_MEMORY, "67108865 bytes, 0 of 67108864",
        lambda d, c=call: getattr(d, c)(HOST, 64 * MIB + 1, d.stream), CUDA_STUB_MEMORY_MIB="64",
    )
refused(
    "more than is free", OUT_OF_MEMORY, "16777216 bytes, 58720256",
    lambda d: d.allocate(56 * MIB) and d.cuMemAlloc_v2(HOST, 16 * MIB), CUDA_STUB_MEMORY_MIB="64",
)

# Modules.
refused("a binary", INVALID_PTX, "no PTX", lambda d: d.load(b"\x7fELF\x02\x01\x01"))
refused("no image", INVALID_PTX, "no PTX", lambda d: d.load(None))
refused("PTX without a kernel", INVALID_PTX, "without", lambda d: d.load(b".version 9.0\n.target sm_90a\n"))
refused("too much static shared memory", INVALID_PTX, "49153", lambda d: d.load(d.ptx().replace(b"4096", b"49153")))
for arch, target in ((80, "sm_90a"), (80, "sm_80a"), (90, "sm_80"), (90, "sm_100a")):
    refused(f"{target} on {arch}", NO_BINARY_FOR_GPU, target, lambda d, t=target: d.load(d.ptx(t)), CUDA_STUB_ARCH=str(arch))
refused("an unknown kernel", NOT_FOUND, "no kernel plai", lambda d: d.cuModuleGetFunction(HOST, d.module, b"plai"))
refused(
    "a tensor map on 80", NOT_SUPPORTED, "sm_80",
    lambda d: d.cuTensorMapEncodeTiled(HOST, 0, 2, d.allocate(64)), CUDA_STUB_ARCH="80",
)
refused("a tensor map of the host", INVALID_VALUE, "allocation", lambda d: d.cuTensorMapEncodeIm2col(HOST, 0, 2, HOST))


def freed_twice(driver):
    address = driver.allocate(64)
    return driver.cuMemFree_v2(address) or driver.cuMemFree_v2(address)


refused("a second free", INVALID_VALUE, "free of 0x", freed_twice)


@holds
def device_90(library):
    driver = Driver(library)
    assert (driver.arch, driver.name()) == (90, "NVIDIA H200 (stub)")
    assert [driver.attribute(n) for n in (16, 97, 81)] == [132, 232448, 233472]
    assert [driver.attribute(n) for n in (1, 2, 3, 4, 5, 6, 7, 10)] == [1024, 1024, 1024, 64, 2**31 - 1, 65535, 65535, 32]
    assert driver.made("cuDeviceTotalMem_v2", 0) == 143771 * MIB
    assert driver.load(driver.ptx("sm_90")) == 0
    assert driver.launch(shared=232448, ask=232448) == 0
    assert driver.launch(shared=228352, ask=228352, kernel=b"fixed") == 0
    assert driver.cuTensorMapEncodeTiled(HOST, 0, 2, driver.allocate(64)) == 0
    assert driver.cuDeviceGet(HOST, 1) == INVALID_DEVICE


def device_80(library):
    driver = Driver(library)
    assert (driver.arch, driver.name()) == (80, "NVIDIA A100 (stub)")
    assert [driver.attribute(n) for n in (16, 97, 81)] == [108, 166912, 167936]
    assert driver.made("cuDeviceTotalMem_v2", 0) == 81920 * MIB
    assert driver.launch(grid=(2**31 - 1, 65535, 65535), block=(16, 1, 64), shared=166912, ask=166912) == 0


holds(device_80, CUDA_STUB_ARCH="80")


def no_device(library):
    driver = Driver(library, context=False)
    assert driver.made("cuDeviceGetCount") == 0
    assert driver.cuDeviceGet(HOST, 0) == INVALID_DEVICE


holds(no_device, CUDA_STUB_DEVICES="0")


def two_devices(library):
    driver = Driver(library)
    assert driver.made("cuDeviceGetCount") == 2
    assert driver.allocate(60 * MIB)
    assert driver.cuCtxSetCurrent(driver.made("cuDevicePrimaryCtxRetain", 1)) == 0
    assert driver.allocate(60 * MIB)


holds(two_devices, CUDA_STUB_DEVICES="2", CUDA_STUB_MEMORY_MIB="64")


def a_thread_without_a_context(library):
    driver, answers = Driver(library), []
    thread = threading.Thread(target=lambda: answers.append(driver.cuMemAlloc_v2(HOST, 64)))
    thread.start()
    thread.join()
    assert answers == [INVALID_CONTEXT], answers


holds(a_thread_without_a_context, refusals=("cuMemAlloc_v2 without a context",))


@holds
def copies_copy(library):
    driver = Driver(library)
    source = ctypes.create_string_buffer(bytes(range(256)), 256)
    target = ctypes.create_string_buffer(256)
    near, far = driver.allocate(256), driver.allocate(4 * 128)
    assert driver.cuMemcpyHtoDAsync_v2(near, source, 256, driver.stream) == 0
    assert driver.rows(near, far, pitches=(64, 128), types=(2, 2)) == 0
    assert driver.cuMemsetD8Async(far + 128, 7, 64, driver.stream) == 0
    assert driver.rows(far, ctypes.addressof(target), pitches=(128, 64), types=(2, 1)) == 0
    assert target.raw == source.raw[:64] + b"\x07" * 64 + source.raw[128:]
    assert driver.cuMemcpyDtoDAsync_v2(near + 128, near, 128, driver.stream) == 0
    assert driver.cuMemcpyDtoHAsync_v2(target, near, 256, driver.stream) == 0
    assert target.raw == source.raw[:128] * 2
    assert driver.cuMemcpyHtoDAsync_v2(0, source, 0, driver.stream) == 0


@holds
def untouched_and_freed_memory_costs_nothing(library):
    driver = Driver(library)
    for _ in range(16):
        address = driver.allocate(64 * MIB)
        assert driver.cuMemsetD8Async(address, 1, 64 * MIB, 0) == driver.cuMemFree_v2(address) == 0
    address = driver.allocate(120 << 30)
    assert driver.cuMemcpyHtoDAsync_v2(address + (120 << 30) - 64, HOST, 64, driver.stream) == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 512 << 10


@holds
def graphs_and_export_tables(library):
    driver = Driver(library)
    assert driver.cuStreamBeginCapture_v2(driver.stream, 0) == NOT_SUPPORTED
    assert driver.cuStreamEndCapture(driver.stream, HOST) == NOT_SUPPORTED
    assert driver.cuGetExportTable(HOST, HOST) == NOT_FOUND


def read_counters():
    with open(os.environ["CUDA_STUB_COUNTERS"], "rb") as file:
        return dict(zip(COUNTERS, array.array("Q", file.read()), strict=True))


def counted(library):
    driver = Driver(library)
    event = driver.made("cuEventCreate", 0)
    first, second = driver.allocate(4096), driver.made("cuMemAllocAsync", 1000, driver.stream)
    for _ in range(3):
        assert driver.launch() == 0
    assert driver.launch(kernel=b"fixed") == 0
    assert driver.launch(block=(0, 1, 1)) == INVALID_VALUE
    assert read_counters()["launches"] == 4
    assert driver.cuEventRecord(event, driver.stream) == 0
    assert driver.cuStreamWaitEvent(driver.stream, event, 0) == 0
    assert driver.cuStreamSynchronize(driver.stream) == driver.cuCtxSynchronize() == 0
    assert driver.cuEventSynchronize(event) == 0
    milliseconds = ctypes.c_float()
    assert driver.cuEventElapsedTime_v2(ctypes.byref(milliseconds), event, event) == 0
    assert 0 < milliseconds.value < 1
    assert driver.cuMemcpyHtoDAsync_v2(first, HOST, 100, 0) == 0
    assert driver.cuMemcpyHtoDAsync_v2(first, HOST, 4097, 0) == INVALID_VALUE
    assert driver.rows(HOST, first) == 0
    assert driver.cuMemcpyDtoHAsync_v2(HOST, first, 30, 0) == 0
    assert driver.cuMemcpyDtoDAsync_v2(second, first, 7, 0) == 0
    assert driver.cuMemsetD8Async(first, 1, 4096, 0) == 0
    assert driver.cuMemFree_v2(first) == 0
    assert driver.cuEventDestroy_v2(event) == driver.cuStreamDestroy_v2(driver.stream) == 0
    expected = [4, 1, 1, 1, 1, 2, 1, 2, 356, 1, 30, 1, 7, 2, 1000, 5096, 1]
    assert read_counters() == dict(zip(COUNTERS, expected, strict=True)), read_counters()


holds(counted, refusals=("block 0 x 1 x 1", "not in one"), CUDA_STUB_COUNTERS="counters", CUDA_STUB_KERNELS="kernels")


def threads_count_together(library):
    driver = Driver(library)

    def work():
        driver.make_current()
        for size in range(1, 200):
            address = driver.allocate(size)
            event = driver.made("cuEventCreate", 0)
            assert driver.cuMemcpyHtoDAsync_v2(address + size - 1, HOST, 1, 0) == 0
            assert driver.launch() == driver.cuEventDestroy_v2(event) == driver.cuMemFree_v2(address) == 0

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counters = read_counters()
    for name in ("launches", "events_created", "host_to_device", "host_to_device_bytes", "allocations"):
        assert counters[name] == 8 * 199, counters
    assert counters["live_bytes"] == 0 and 199 <= counters["peak_bytes"] <= 8 * 199, counters


holds(threads_count_together, CUDA_STUB_COUNTERS="counters")


def blank_reads(library):
    driver = Driver(library)
    source, target = ctypes.create_string_buffer(b"\x07" * 64, 64), ctypes.create_string_buffer(b"\x07" * 64, 64)
    address = driver.allocate(64)
    assert driver.cuMemcpyHtoDAsync_v2(address, source, 64, driver.stream) == 0
    assert ctypes.string_at(address, 64) == source.raw
    assert driver.cuMemcpyDtoHAsync_v2(target, address, 64, driver.stream) == 0
    assert target.raw == bytes(64)


holds(blank_reads, CUDA_STUB_BLANK="1")


class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


F32, BF16, I32, SUM, MAX = 7, 9, 2, 0, 2
INVALID_ARGUMENT = 4


def reduced(library, ranks, calls):
    """What each of so many ranks is answered, every one on a thread of its own. `calls` makes the calls of a rank: from, to, count, type
    and operation."""
    nccl = ctypes.CDLL(os.path.join(os.path.dirname(library), "libnccl.so"))
    identifier, answers = Id(), [[] for _ in range(ranks)]
    assert nccl.ncclGetUniqueId(ctypes.byref(identifier)) == 0

    def work(rank):
        communicator = ctypes.c_void_p()
        assert nccl.ncclCommInitRank(ctypes.byref(communicator), ranks, identifier, rank) == 0
        for source, target, count, kind, operation in calls(rank):
            answers[rank].append(nccl.ncclAllReduce(source, target, ctypes.c_size_t(count), kind, operation, communicator, None))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def tensors_are_summed(library):
    floats = [(ctypes.c_float * 3)(rank, 0.5, -(2.0**99)) for rank in range(3)]
    others = [(ctypes.c_float * 3)() for _ in range(3)]
    # 1 + 2 x 2^-9 and 1 + 2^-7 + 2 x 2^-9 lie halfway between two numbers of bf16, of which the even one is meant.
    halves = [(ctypes.c_uint16 * 2)(*((0x3B00, 0x3B00) if rank else (0x3F80, 0x3F81))) for rank in range(3)]

    def calls(rank):
        yield floats[rank], others[rank], 3, F32, SUM
        yield floats[rank], floats[rank], 2, F32, SUM
        yield halves[rank], halves[rank], 2, BF16, SUM

    assert reduced(library, 3, calls) == [[0, 0, 0]] * 3
    for rank in range(3):
        assert list(others[rank]) == [3.0, 1.5, -3 * 2.0**99], list(others[rank])
        assert list(floats[rank])[:2] == [3.0, 1.5] and floats[rank][2] < 0
        assert list(halves[rank]) == [0x3F80, 0x3F82], [hex(half) for half in halves[rank]]
    with open(os.environ["CUDA_STUB_COLLECTIVES"]) as file:
        lines = [json.loads(line) for line in file]
    expected = [("f32", 3, False), ("f32", 2, True), ("bf16", 2, True)]
    for rank in range(3):
        own = [(line["type"], line["count"], line["in_place"]) for line in lines if line["rank"] == rank]
        assert own == expected, own
    assert len(lines) == 9 and {line["ranks"] for line in lines} == {3}


holds(tensors_are_summed, CUDA_STUB_COLLECTIVES="collectives")


def unequal(name, text, odd, **rest):
    """Calls of which that of rank 1 is another are refused to all."""

    def check(library):
        numbers = [(ctypes.c_float * 8)() for _ in range(2)]
        plain = (4, F32, SUM)
        own = [rest.get("both", plain), rest.get("both", odd)]
        answers = reduced(library, 2, lambda rank: [(numbers[rank], numbers[rank], *own[rank])])
        assert answers == [[INVALID_ARGUMENT]] * 2, answers

    holds(check, name, (text,))


unequal("a sum of another count", "rank 1 reduces 5 numbers", (5, F32, SUM))
unequal("a sum of another type", "of type 9", (4, BF16, SUM))
unequal("another operation", "by 2", (4, F32, MAX))
unequal("a sum of integers", "of type 2", None, both=(4, I32, SUM))


def fails_to_start(library):
    assert ctypes.CDLL(library).cuInit(0) == INVALID_VALUE


SETTINGS = {
    "ARCH": ("70", "sm_90", "", "-80"),
    "MEMORY_MIB": ("64M", "-1", "99999999999999999999"),
    "DEVICES": ("two", "17", "-1"),
    "BLANK": ("yes", "2"),
    "COUNTERS": ("no/such/folder",),
}
for variable, values in SETTINGS.items():
    for value in values:
        holds(fails_to_start, f"CUDA_STUB_{variable}={value}", None, **{f"CUDA_STUB_{variable}": value})


def run(name, library):
    """Runs a check in a process and a folder of its own; returns what is wrong."""
    _, refusals, settings = CHECKS[name]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_STUB_")}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, os.path.abspath(__file__), library, name]
        done = subprocess.run(command, cwd=folder, env=clean | settings, capture_output=True, text=True, timeout=120)
        lines = done.stderr.splitlines()
        if done.returncode != 0:
            return done.stderr or f"exit status {done.returncode}"
        if refusals is None:
            right = len(lines) == 1 and lines[0].startswith(f"cuda stub: {name} ")
        else:
            right = len(lines) == len(refusals)
            right &= all(line.startswith("cuda stub: refused: ") and text in line for line, text in zip(lines, refusals))
        if not right:
            return f"stderr:\n{done.stderr}"
        if "CUDA_STUB_KERNELS" in settings:
            with open(os.path.join(folder, "kernels")) as file:
                kernels = list(json.load(file).items())
            if kernels != [("plain", 3), ("fixed", 1)]:
                return f"kernels: {kernels}"
    return None


COMPILE = """
import ctypes, sys
nvrtc, program = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()
assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), sys.argv[2].encode(), None, 0, None, None) == 0
assert nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90")) == 0
"""


def compiler(library):
    """A source that NVRTC refuses ends the process; returns what is wrong."""
    nvrtc = os.path.join(os.path.dirname(library), "libnvrtc.so")
    compiled, lacking = (
        subprocess.run([sys.executable, "-c", COMPILE, nvrtc, source], capture_output=True, text=True)
        for source in ("__global__ void plain() {}", "__global__ void lacking(tf8 x) {}"))
    right = compiled.returncode == 0 and lacking.returncode == 1 and "nvrtc: refused: " in lacking.stderr
    return None if right else compiled.stderr + lacking.stderr


def main():
    library = os.path.abspath(sys.argv[1])
    if len(sys.argv) == 3:
        CHECKS[sys.argv[2]][0](library)
        return
    wrong = {name: run(name, library) for name in CHECKS} | {"compiler": compiler(library)}
    failed = {name: why for name, why in wrong.items() if why}
    for name, why in failed.items():
        print(f"{name}: {why}")
    print(f"{len(wrong) - len(failed)} passed, {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
