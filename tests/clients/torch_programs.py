"""Small programs that reach torch's operators in other ways than one after the other, as
torch_operators.py does: what torch_dispatch.py compares inside a session and outside. Each takes
nothing and returns numbers."""
import threading

import torch
from torch.utils._python_dispatch import TorchDispatchMode

vmap = getattr(torch, "vmap", None) or torch._vmap_internals.vmap  # torch 1.13

N = 160  # a square matrix of so many floats is large enough to leave


def matrix(seed=1, grad=False):
    torch.manual_seed(seed)
    return torch.randn(N, N).requires_grad_(grad)


def total(*tensors):
    return [tensor.detach().double().abs().sum().item() for tensor in tensors]


# ---- What dispatches in Python ----


class Mode(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def modes():
    with Mode() as mode:
        x = matrix()
        with Mode():
            y = x @ x + x
        found = total(y)
    assert mode.count > 3
    return found + total(x.mul_(2))


class Wrapper(torch.Tensor):
    """Has no memory: another tensor has."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        inner = [a.inner if isinstance(a, cls) else a for a in args]
        result = func(*inner, **(kwargs or {}))
        return cls(result) if isinstance(result, torch.Tensor) else result


def wrappers():
    x = Wrapper(matrix())
    y = torch.relu(x @ x).add_(x)
    return total(y.inner, x.inner)


class Own(torch.Tensor):
    """Has its own memory, and sees operators."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return super().__torch_dispatch__(func, types, args, kwargs or {})


def subclasses():
    x = torch.Tensor._make_subclass(Own, matrix())
    y = torch.relu(x @ x).add_(x)
    return total(y, x)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(context, grad):
        (x,) = context.saved_tensors
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            y.exp().backward(grad)
        return y.grad


def functions():
    x = matrix(grad=True)
    x.register_hook(lambda grad: grad.clamp(-1, 1))
    Function.apply(x).tanh().sum().backward()
    (second,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    second.square().sum().backward()
    return total(x.grad)


def activations():
    """Some have a kernel though they are made of other operators, too."""
    kinds = torch.nn.SiLU, torch.nn.Mish, torch.nn.GELU, torch.nn.Softplus, torch.nn.Hardswish
    found = []
    for kind in kinds:
        x = matrix(grad=True)
        y = kind()(x @ x)
        (y * y.detach().roll(1, 0)).sum().backward()
        found += total(y, x.grad)
    return found + total(torch.native_channel_shuffle(matrix().view(1, 4, -1, N), 2))


def transforms():
    x = matrix()
    jacobian = torch.autograd.functional.vjp(lambda x: (x @ x).tanh(), x, torch.ones_like(x))[1]
    return total(jacobian, vmap(lambda row: row.softmax(0) * 2)(x))


def scripts():
    @torch.jit.script
    def run(x, count: int):
        for i in range(count):
            x = torch.sigmoid(x @ x) + i
        return x

    return total(run(matrix(), 3))


# ---- Operators that programs define ----

libraries = []


def define(space, key):
    """An operator that reaches memory without torch's operators, and one that writes beside a
    result."""
    library = torch.library.Library(space, "DEF")
    libraries.append(library)
    library.define("twice(Tensor x) -> Tensor")
    library.define("add_to(Tensor x, Tensor(a!) sum) -> Tensor")

    def twice(x):
        return torch.from_numpy(x.numpy() * 2)

    def add_to(x, sum):
        sum.numpy()[...] += x.numpy()
        return x + 1

    library.impl("twice", twice, key)
    library.impl("add_to", add_to, key)
    return getattr(torch.ops, space)


KEYS = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


def away(x):
    """What an operator names is there until the next one."""
    x.add_(1)
    torch.ones(8).add_(1)
    return x


def customs():
    """Defined when the session is open already, and called at once."""
    found = []
    for key in KEYS:
        x, total_of = away(matrix()), torch.zeros(N, N)
        ops = define(f"gmlake_test_{len(libraries)}", key)
        y = ops.twice(x)
        z = ops.add_to(y, total_of)
        found += total(y, z, total_of)
        with torch.inference_mode():
            found += total(ops.twice(away(matrix())))
    return found


def collections():
    """Tensors in arguments and results of other kinds."""
    library = torch.library.Library(f"gmlake_test_{len(libraries)}", "DEF")
    libraries.append(library)
    library.define("pair((Tensor, Tensor) both) -> Tensor")
    library.define("named(Dict(str, Tensor) all) -> Tensor")
    library.define("maybe(Tensor?[] some, *, Tensor(a!) sum) -> ()")
    pair = lambda both: torch.from_numpy(both[0].numpy() + both[1].numpy())  # noqa: E731
    named = lambda all: torch.from_numpy(all["a"].numpy() - all["b"].numpy())  # noqa: E731
    library.impl("pair", pair, "CompositeExplicitAutograd")
    library.impl("named", named, "CompositeExplicitAutograd")

    def maybe(some, *, sum):
        for x in some:
            if x is not None:
                sum.numpy()[...] += x.numpy()

    library.impl("maybe", maybe, "CPU")
    ops = getattr(torch.ops, library.ns)
    a, b, sum = matrix(), matrix(2), torch.zeros(N, N)
    found = total(ops.pair((away(a), b)), ops.named({"a": away(a), "b": b}))
    ops.maybe([None, away(a), b], sum=sum)
    return found + total(sum)


def closures():
    """An operator made of others, with a tensor that it is not given."""
    library = torch.library.Library(f"gmlake_test_{len(libraries)}", "DEF")
    libraries.append(library)
    held = matrix(3)
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: (x @ held).tanh(), "CompositeImplicitAutograd")
    ops, x = getattr(torch.ops, library.ns), matrix(grad=True)
    away(held)
    y = ops.f(x)
    y.sum().backward()
    with torch.inference_mode():
        away(held)
        return total(y, x.grad, ops.f(x))


def definitions():
    """A name that means something else later."""
    found = []
    for schema, argument in (("Tensor x, Tensor y", 1), ("Tensor x, Tensor(a!) y", 2)):
        library = torch.library.Library("gmlake_test_again", "DEF")
        library.define(f"f({schema}) -> ()")

        def f(x, y, argument=argument):
            if argument == 2:
                y.numpy()[...] = x.numpy() * 2

        library.impl("f", f, "CPU")
        x, y = away(matrix()), away(matrix(2))
        torch._C._jit_get_operation("gmlake_test_again::f")[0](x, away(y))
        found += total(y)
        del library
    return found


def unmarked():
    """Operators that write what their schemas do not mark."""
    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(1))
    mean, variance = torch.zeros(512), torch.ones(512)
    wide = torch.zeros(1 << 15), torch.ones(1 << 15)
    images = matrix()[:2].repeat(1, 103)[:, : 1 << 14].repeat(1, 2)
    torch.batch_norm_update_stats(images, *(away(w) for w in wide), 0.1)
    torch.batch_norm(x, None, None, mean, variance, True, 0.1, 1e-5, False)
    noise = away(torch.zeros(N, N))
    torch.manual_seed(3)
    y = torch._C._nn.rrelu_with_noise(matrix(), noise, 0.1, 0.3, True)
    return total(*wide, mean, variance, noise, y)


# ---- Layouts and kinds of tensors ----


def sparse():
    dense = matrix() * (matrix(2) > 0)
    coo, csr = dense.to_sparse(), dense.to_sparse_csr()
    other = matrix(3)
    found = total(torch.sparse.mm(coo, other), csr @ other, coo.to_dense(), (coo * 2).to_dense())
    made = torch.sparse_coo_tensor(coo.coalesce().indices(), coo.coalesce().values() + 1, (N, N))
    net = torch.nn.Embedding(N, N, sparse=True)
    net.weight.data.copy_(other)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.arange(0, N, 2)).square().sum().backward()
    optimizer.step()
    return found + total(made.coalesce().values(), net.weight, torch.sparse.sum(made, 0).to_dense())


def shapes():
    x = matrix()
    y = torch.empty(0)
    y.resize_(N, N).copy_(x)
    y.set_(x.clone())
    z = x.as_strided((N // 2, N), (2 * N, 1)).clone()
    w = x.t().contiguous()
    w[w > 0] = 0
    w.index_put_((torch.arange(4),), torch.ones(4, N), accumulate=True)
    u = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()
    return total(y, z, w, u, x.to(torch.bfloat16).float(), x.double(), x.unfold(0, 4, 2).sum(-1))


# ---- Networks ----


def recurrent():
    torch.manual_seed(4)
    net = torch.nn.LSTM(N, N, 2, batch_first=True)
    with torch.backends.mkldnn.flags(enabled=False):  # it writes what its schema does not mark
        y, _ = net(matrix().view(4, -1, N))
        y.square().sum().backward()
    return total(y, *[p.grad for p in net.parameters()])


def attention():
    torch.manual_seed(5)
    net = torch.nn.TransformerEncoderLayer(N, 4, 2 * N, batch_first=True)
    x = matrix().view(4, -1, N)
    y = net(x)
    y.square().sum().backward()
    net.eval()
    with torch.inference_mode():
        fast = net(x)
    return total(y, fast, *[p.grad for p in net.parameters()])


# ---- Threads ----


def threads():
    """Others work on tensors of this one, while it goes on."""
    x, found = matrix(), [None] * 3

    def work(i):
        y = x
        for _ in range(20):
            y = torch.sigmoid(y @ x) - 0.5
        found[i] = total(y)[0]

    workers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    y = matrix(7)
    for _ in range(50):
        y = (y @ y).tanh()
    for worker in workers:
        worker.join()
    return found + total(y, x + 1)


def backward_thread():
    """A thread's own backward pass."""
    x, found = matrix(grad=True), []

    def work():
        (x @ x).tanh().sum().backward()
        found.extend(total(x.grad))

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    return found + total(x.grad * 2)


PROGRAMS = [
    modes,
    wrappers,
    subclasses,
    functions,
    activations,
    transforms,
    scripts,
    customs,
    collections,
    closures,
    definitions,
    unmarked,
    sparse,
    shapes,
    recurrent,
    attention,
    threads,
    backward_thread,
]
