"""Checks that a session sees every access of torch's operators, with torch's own list of operators
and arguments, on the CPU:

    LD_PRELOAD=judge.so python3 tests/clients/torch_operators.py judge.so operators.so [NAME...]

judge.so is torch_judge.c with -DLARGE=1: every storage can be accessed only by operators that name
it. Each operator runs forwards and backwards in a process of its own, and has to give what it gives
without a session.
"""
import os
import signal
import sys
import types
import unittest
import warnings

import torch

from torch_package import package

package()
from gmlake_torch import session  # noqa: E402: a package that package() makes

# Of each operator, and of all operators one in so many; all, with TEST_WHOLE=yes, as each night.
SAMPLES, PART = (4, 1) if os.environ.get("TEST_WHOLE") else (1, 6)
# Some of what they return is not set; of as_strided_scatter it is the gradient, in torch 1.13.
RANDOM = (
    "empty",
    "empty_like",
    "new_empty",
    "new_empty_strided",
    "linalg.lstsq",
    "as_strided_scatter",
)
# Reads the lengths, which on a GPU's machine are the host's, by their address.
UNSEEN = ("nn.functional.ctc_loss",)


def operators():
    """torch's list needs a package that Debian's torch comes without, and only its names."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        made = types.ModuleType("expecttest")
        made.TestCase, made.ACCEPT = unittest.TestCase, False
        sys.modules["expecttest"] = made
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def clone(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(clone(item) for item in value)
    if type(value) is dict:
        return {key: clone(item) for key, item in value.items()}
    return value


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)


def execute(op, sample):
    torch.manual_seed(0)
    first, args, kwargs = clone(sample.input), clone(sample.args), clone(sample.kwargs)
    results = list(tensors(op(first, *args, **kwargs)))
    found = [result.detach().clone() for result in results]
    ends = [y for y in results if y.requires_grad and y.layout == torch.strided]
    if ends:
        leaves = [x for x in tensors((first, args, list(kwargs.values()))) if x.requires_grad]
        total = sum((y.abs() if y.is_complex() else y).sum() for y in ends)
        found += [g for g in torch.autograd.grad(total, leaves, allow_unused=True) if g is not None]
    return [x if x.layout == torch.strided else x.to_dense() for x in found]


def is_same(left, right):
    return len(left) == len(right) and all(
        torch.allclose(x, y, equal_nan=True) for x, y in zip(left, right)
    )


def check(op, judge):
    """How many samples were compared."""
    kinds, count = op.supported_dtypes("cpu"), 0
    try:
        kind = torch.float32 if torch.float32 in kinds else sorted(kinds, key=str)[0]
        samples = list(op.sample_inputs("cpu", kind, requires_grad=kind.is_floating_point))
    except Exception:  # it needs a GPU
        return 0
    for sample in samples[:SAMPLES]:
        try:
            expected = execute(op, sample)
            is_fixed = is_same(expected, execute(op, sample))
        except Exception:  # not with these arguments, or not on a CPU
            continue
        with session.Session(judge, torch.device("cpu"), 1 << 30):
            got = [x.clone() for x in execute(op, sample)]
        assert op.name in RANDOM or not is_fixed or is_same(expected, got), "other values"
        count += 1
    return count


def run_apart(op, judge):
    """(status of the process, what it says): samples, or what went wrong."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(60)
        status, text = 1, "?"
        try:
            status, text = 0, str(check(op, judge))
        except BaseException as error:
            text = f"{type(error).__name__} {error}"[:200]
        finally:
            os.write(writer, text.encode())
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    return os.waitpid(child, 0)[1], text


def main():
    judge, names = session.Calls(*sys.argv[1:3]), sys.argv[3:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    count, failures = 0, []
    for i, op in enumerate(operators()):
        if op.name in UNSEEN or (op.name not in names if names else i % PART):
            continue
        status, text = run_apart(op, judge)
        if status:
            failures.append(f"{op.name} {op.variant_test_name}: status {status} {text}")
        elif text != "0":
            count += 1
    print(f"{count} operators give the same in a session")
    assert not failures, failures
    assert names or count > 300 // PART, count


if __name__ == "__main__":
    main()
