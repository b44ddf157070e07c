"""Runs examples/adapters/rmm.py as RMM would: with a stand-in for the module rmm."""
import importlib.util
import sys
import types

FIRST = 0  # the legacy stream


class Stream:
    def __cuda_stream__(self):
        return 0, FIRST


class CallbackMemoryResource:
    def __init__(self, allocate, deallocate):
        self.allocate, self.deallocate = allocate, deallocate


rmm = sys.modules["rmm"] = types.ModuleType("rmm")
rmm.mr = types.SimpleNamespace(CallbackMemoryResource=CallbackMemoryResource)
spec = importlib.util.spec_from_file_location("gmlake_rmm", "examples/adapters/rmm.py")
gmlake_rmm = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gmlake_rmm)

resource, stream = gmlake_rmm.resource(sys.argv[1]), Stream()
ptr = resource.allocate(3 << 20, stream)
assert ptr and ptr % 256 == 0
resource.deallocate(ptr, 3 << 20, stream)
assert resource.allocate(3 << 20, stream) == ptr  # behind its own work
resource.deallocate(ptr, 3 << 20, stream)
assert resource.allocate(0, stream) is not None
try:
    resource.allocate(10 << 20, stream)
except MemoryError as error:
    print(error)
