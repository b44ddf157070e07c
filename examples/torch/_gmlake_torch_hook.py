"""gmlake_torch.pth imports this when Python starts with GMLAKE_TORCH=1. It waits until the program
has imported torch, and imports gmlake_torch then, which makes the lakes torch's allocator. If that
fails, torch is there without lakes, and a warning says so. A program that does not use torch pays
nothing."""
import importlib.abc
import sys
import warnings


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        others = (other for other in sys.meta_path if other is not self)
        specs = (other.find_spec(name, path, target) for other in others)
        spec = next((found for found in specs if found), None)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            if self in sys.meta_path:  # others may only have asked where torch is
                sys.meta_path.remove(self)
                enable()

        spec.loader.exec_module = exec_module
        return spec


def enable():
    try:
        import gmlake_torch  # noqa: F401
    except Exception as error:
        warnings.warn(f"GMLAKE_TORCH=1: torch runs without lakes: {error}", RuntimeWarning)


sys.meta_path.insert(0, _Finder())
