"""gmlake_torch without its __init__, which needs a torch with GPUs; and what tests of its sessions
have in common."""
import contextlib
import os
import sys
import types


def package():
    found = types.ModuleType("gmlake_torch")
    found.__path__ = [os.path.join("examples", "torch", "gmlake_torch")]
    sys.modules["gmlake_torch"] = found


@contextlib.contextmanager
def refused(words, *errors):
    """What is done inside raises one of the errors, with these words."""
    try:
        yield
    except errors or RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no error: {words}")


def opened(session, paths, limit=1 << 30, **options):
    """A session on the CPU's memory. It has not begun."""
    import torch

    return session.Session(session.Calls(*paths), torch.device("cpu"), limit, **options)
