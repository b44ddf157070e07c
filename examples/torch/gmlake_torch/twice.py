"""Executes a function twice: what it saves for the backward pass is not kept, and is made again
when that asks for it.

torch's non-reentrant checkpoint does so, too. For each saved tensor it makes objects that Python's
garbage collector counts. Here a saved tensor is a number, so that a small block costs the host
less.
"""
import contextlib
import sys

import torch

DIFFERS = (
    "gmlake_torch.offload: a block was executed for the second time and saved other tensors for "
    'the backward pass than for the first time: open the session with recomputes="never"'
)


class Enough(BaseException):
    """All that was saved is made again. `except Exception` does not handle it."""


# The number of the backward pass that is under way in this thread; -1: none is.
backward_pass = getattr(torch._C, "_current_graph_task_id", lambda: 0)


def random_states(devices):
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]


def set_random_states(devices, states):
    torch.set_rng_state(states[0])
    for device, state in zip(devices, states[1:]):
        torch.cuda.set_rng_state(state, device)


def casts():
    """What autocast does now, as arguments of torch.autocast."""
    if hasattr(torch, "get_autocast_dtype"):
        now = [(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
               for kind in ("cuda", "cpu")]
    else:  # torch 2.3 or older
        now = [("cuda", torch.get_autocast_gpu_dtype(), torch.is_autocast_enabled()),
               ("cpu", torch.get_autocast_cpu_dtype(), torch.is_autocast_cpu_enabled())]
    is_cached = torch.is_autocast_cache_enabled()
    return [(*cast, is_cached) for cast in now]


def cast_as(former):
    """For `with`: autocast does that."""
    with contextlib.ExitStack() as stack:
        for then, now in zip(former, casts()):
            if then != now and (then[2] or now[2]):
                stack.enter_context(torch.autocast(*then))
        return stack.pop_all()


def is_in_apply():
    """Whether an autograd.Function saves now. Behind an error it and what it has made would hold
    each other, until Python's garbage collector comes."""
    return sys._getframe(2).f_code.co_name == "apply"  # a function of Python from torch 2 on


def run(first, second, devices):
    """Returns what first() returns. second() saves the same tensors as first() did; a backward pass
    calls it, with gradients on and the random numbers and autocast of the first time. It is left
    as soon as all is made, and once more for another pass, if the graph was retained. devices: the
    GPUs whose random numbers it may draw."""
    sizes = []  # of the saved tensors
    made, of_pass = [], None  # in which backward pass
    states, former = random_states(devices), casts()

    def save(tensor):
        sizes.append(tensor.numel())
        return len(sizes) - 1

    def load(number):
        nonlocal made, of_pass
        now = backward_pass()
        if of_pass != now or number >= len(made) or made[number] is None:
            made, of_pass = execute(), now
        tensor, made[number] = made[number], None
        return tensor

    def execute():
        found, count = [], len(sizes)  # so far: first() may ask for gradients itself

        def save_again(tensor):
            if len(found) == count:  # the function goes on: it handles any error
                raise Enough
            if tensor.numel() != sizes[len(found)]:
                raise RuntimeError(DIFFERS)
            found.append(tensor if tensor.is_leaf else tensor.detach())
            if len(found) == count and not is_in_apply():
                raise Enough
            return len(found) - 1

        states_now = random_states(devices)
        set_random_states(devices, states)
        try:
            with torch.enable_grad(), cast_as(former):
                with torch.autograd.graph.saved_tensors_hooks(save_again, found.__getitem__):
                    second()
        except (Enough, RuntimeError):  # which torch 1.13 makes of it
            if len(found) < count:
                raise
        finally:
            set_random_states(devices, states_now)
        if len(found) < count:
            raise RuntimeError(DIFFERS)
        return found

    with torch.autograd.graph.saved_tensors_hooks(save, load):
        result = first()
    made = []  # what it asked for itself may go
    return result
