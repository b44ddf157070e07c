"""gmlake_torch.pth imports this when Python starts with GMLAKE_TORCH=1. It waits until the program
imports torch, and imports gmlake_torch then, which makes the lakes torch's allocator. A program
that does not use torch pays nothing."""
import importlib.abc
import importlib.util
import sys


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            import gmlake_torch  # noqa: F401

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Finder())
