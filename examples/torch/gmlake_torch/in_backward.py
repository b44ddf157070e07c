"""An optimizer's step inside the backward pass: each parameter is updated as soon as its gradient
is there, and the gradient goes. So gradients are never there together, and where a session
offloads, the optimizer's states come and go one by one while the backward pass computes, not all
behind it.

    optimizer = torch.optim.AdamW(model.parameters())
    gmlake_torch.step_in_backward(optimizer)

The program stays as it is: its optimizer.step() finds no gradients, and ends the iteration;
learning rates are read at each update. The results are those of a step behind the backward pass,
as long as an optimizer updates each parameter by its own gradient and state alone, and nobody
needs a gradient later. Elsewhere it is an error:

- in the second one of several backward passes before a step, which accumulate gradients;
- where a program clips gradients by torch.nn.utils (torch's own functions, called by that name);
- for LBFGS, and among several processes of torch.distributed, which reduce gradients first.

It cannot be seen where a program reads gradients, throws them away, as those that a generator's
loss makes for the critic, or scales losses with a GradScaler: leave those as they are. A Trainer
clips unless max_grad_norm is 0, and accumulates if it is told to. After a backward pass that
ended with an error some parameters are updated: the program calls step() before the next one.
"""
import functools
import threading
import types

import torch

CLIPS = ("clip_grad_norm_", "clip_grad_value_")


class StepInBackward:
    """What step_in_backward returns. remove() ends it."""

    def __init__(self, optimizer):
        if type(optimizer).__name__ == "LBFGS":
            raise ValueError("gmlake_torch.step_in_backward: LBFGS needs all gradients at once")
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            if distributed.get_world_size() > 1:
                raise RuntimeError(
                    "gmlake_torch.step_in_backward: torch.distributed has "
                    f"{distributed.get_world_size()} processes, which reduce gradients behind the "
                    "backward pass: call it in a program of one process"
                )
        self._optimizer, self._groups, self._group_of = optimizer, None, {}
        self._updated = set()  # ids of parameters, since the program's last step
        self._known = set()  # and of those that were updated before
        self._lock = threading.Lock()  # autograd has a thread for each device
        self._nodes, self._handles, self._undo = [], [], []
        self._owned = set()  # ids of parameters that are watched
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad:
                    self._watch(parameter)
        step, updated = optimizer.step, self._updated

        @functools.wraps(step)
        def program_step(_, *args, **kwargs):
            updated.clear()
            return step(*args, **kwargs)

        # A method, with the former one's attributes: a scheduler, made before or after, looks.
        self._replace(optimizer, "step", types.MethodType(program_step, optimizer))
        for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
            for name in CLIPS:
                self._replace(owner, name, self._refusing(name, getattr(owner, name)))

    def remove(self):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._nodes.clear()
        self._owned.clear()  # what has been replaced since stays, and does as before
        for owner, name, former, own in reversed(self._undo):
            if vars(owner).get(name) is not own:
                continue
            if former is None:
                delattr(owner, name)
            else:
                setattr(owner, name, former)
        self._undo.clear()

    def _replace(self, owner, name, own):
        self._undo.append((owner, name, vars(owner).get(name), own))
        setattr(owner, name, own)

    def _watch(self, parameter):
        def update(*_):
            with self._lock:
                self._update(parameter)

        self._owned.add(id(parameter))
        if hasattr(parameter, "register_post_accumulate_grad_hook"):
            self._handles.append(parameter.register_post_accumulate_grad_hook(update))
        else:  # torch 2.0 or older
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            self._nodes.append(node)  # without it the hook would go
            self._handles.append(node.register_hook(update))

    def _update(self, parameter):
        if id(parameter) in self._updated:
            raise RuntimeError(
                "gmlake_torch.step_in_backward: a second backward pass before the optimizer's "
                "step: its parameters are updated already; do without step_in_backward where "
                "gradients are accumulated"
            )
        optimizer = self._optimizer
        groups = optimizer.param_groups
        if self._groups is not groups:  # others, since load_state_dict
            self._groups = groups
            self._group_of = {id(p): group for group in groups for p in group["params"]}
        group = self._group_of.get(id(parameter))
        if group is None:  # the optimizer has it no more
            return
        one = {**group, "params": [parameter]}
        optimizer.param_groups = [one]
        try:
            with torch.no_grad():
                (step_of(optimizer) if id(parameter) in self._known else self._make)(optimizer)
        finally:
            optimizer.param_groups = groups
        self._known.add(id(parameter))
        self._updated.add(id(parameter))
        group.update((key, value) for key, value in one.items() if key != "params")
        parameter.grad = None

    def _make(self, optimizer):
        """The first update of a parameter, which makes what the optimizer keeps of it."""
        step_of(optimizer)(optimizer)

    def _refusing(self, name, former):
        owned = self._owned

        def clip(parameters, *args, **kwargs):
            if not isinstance(parameters, torch.Tensor):
                parameters = list(parameters)
            some = [parameters] if isinstance(parameters, torch.Tensor) else parameters
            if any(id(parameter) in owned for parameter in some):
                raise RuntimeError(
                    f"gmlake_torch.step_in_backward: {name} finds no gradients, since the backward "
                    "pass has updated the parameters: do without one of both"
                )
            return former(parameters, *args, **kwargs)

        return clip


def step_of(optimizer):
    """Its class's, without hooks, which tell of the program's steps."""
    step = type(optimizer).step
    return step.__wrapped__ if getattr(step, "hooked", False) else step
