"""As much of torch as the package of examples/torch asks for while it is built and loaded."""
import types

__version__ = "2.12.0"
version = types.SimpleNamespace(cuda="13.0", git_version="stub")
