"""The driver without a device (tests/gpu/fake_cuda.h) for programs in Python, which find it on the
library path."""
import ctypes

driver = ctypes.CDLL("libcuda.so.1")
P, N = ctypes.c_void_p, ctypes.c_size_t
CENSUS = ("handles mappings reservations allocations events streams modules graphs hosts "
          "physical_bytes retains pushed pending").split()  # its first fields, in their order
control = (P * 7).in_dll(driver, "fake_cuda_control")


def cu(name, *arguments):
    result = getattr(driver, name)(*arguments)
    assert result == 0, (name, result)


def given(name, *arguments):
    """What the function writes to its first argument."""
    out = P()
    cu(name, ctypes.byref(out), *arguments)
    return out.value


def make_current(device=0):
    """As the runtime library does before it allocates."""
    cu("cuInit", 0)
    context = given("cuDevicePrimaryCtxRetain", device)
    cu("cuCtxSetCurrent", P(context))
    return context


def new_stream():
    return given("cuStreamCreate", 1)


def destroy_stream(stream):
    cu("cuStreamDestroy_v2", P(stream))


def synchronize():
    cu("cuCtxSynchronize")


def fill(ptr, value, words, stream=None):
    cu("cuMemsetD32Async", P(ptr), value, N(words), P(stream))


def word_at(ptr):
    word = ctypes.c_uint32()
    synchronize()
    cu("cuMemcpyDtoH_v2", ctypes.byref(word), P(ptr), N(4))
    return word.value


def hold(stream):
    """Work that does not end before somebody waits for it."""
    ns = ctypes.c_uint64(10**10)
    spin = given("cuModuleGetFunction", P(given("cuModuleLoadData", b".version")), b"spin")
    parameters = (P * 1)(ctypes.addressof(ns))
    cu("cuLaunchKernel", P(spin), 1, 1, 1, 1, 1, 1, 0, P(stream), parameters, None)


def can_write(ptr, device):
    flags, location = ctypes.c_uint64(), (ctypes.c_int * 2)(1, device)
    cu("cuMemGetAccess", ctypes.byref(flags), location, P(ptr))
    return flags.value == 3


def calls():
    return ctypes.CFUNCTYPE(ctypes.c_uint64)(control[1])()


def fail(name, code, nth=1):
    """The nth next call of the function answers the code."""
    function = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_int)
    function(control[2])(name.encode(), nth, code, 0)


def census():
    found = (N * (control[6] // ctypes.sizeof(N)))()
    ctypes.CFUNCTYPE(None, P)(control[5])(found)
    return dict(zip(CENSUS, found))
