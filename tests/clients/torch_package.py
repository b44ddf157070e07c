"""gmlake_torch without its __init__, which needs a torch with GPUs."""
import os
import sys
import types


def package():
    found = types.ModuleType("gmlake_torch")
    found.__path__ = [os.path.join("examples", "torch", "gmlake_torch")]
    sys.modules["gmlake_torch"] = found
