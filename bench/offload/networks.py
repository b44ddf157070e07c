"""Describes networks that nobody recorded as graphs, in files as bench/graph.h reads them.

usage: networks.py NETWORK [GPU]    writes the graph; GPU: 2080ti by default, h200, a100, p100

NETWORK is one of
  vgg16:BATCH, resnet50:BATCH, densenet121:BATCH, inception_v3:BATCH, inception_v4:BATCH
                              a training step with Adam, in single precision, operators as in torch
  vgg16_fused:BATCH           the same, but Adam is one operator for each parameter
  mlp:BATCH:WIDTH:LAYERS      likewise: layers of WIDTH by WIDTH numbers
  prefill:SIZE:BATCH:LENGTH:DEVICES   LLaMA up to the first token, in half precision; SIZE: 7b, 65b
  lora:SIZE:BATCH:LENGTH:DEVICES      LLaMA forward and backward, in single precision, adaptors of
                              rank 16 for Q, K, V and the feed-forward matrices, each layer's
                              forward pass again before its backward pass
LLaMA is cut by heads; rows of tokens are added up, and normed, on the devices in turn. Not every
GPU has the rates for it: prefill needs that of half precision, several devices that of copies.

An operator takes what is longer, its arithmetic or the traffic of its tensors, at the parts of the
GPU's stated rates that GPUS has, and the time of a launch.
"""
import itertools
import math
import sys

DEVICES_MAX = 8

# In a second: arithmetic in single and half precision, bytes of memory, bytes to another GPU. Each
# is the stated rate times the part that is reached. On an H200's tensor cores that is the part of
# the recorded VGG-16 and LLaMA; elsewhere it is taken to be .8 of single precision and .7 of the
# rest. Then seconds of a launch.
GPUS = {
    "h200": {"single": .36 * 494e12, "half": .77 * 989e12,
             "memory": .7 * 4.8e12, "launch": 5e-6},
    "2080ti": {"single": .8 * 13.45e12, "memory": .7 * 616e9, "launch": 5e-6},
    "a100": {"single": .8 * 19.5e12, "half": .7 * 312e12, "memory": .7 * 1555e9, "peer": 300e9,
             "launch": 5e-6},
    "p100": {"single": .8 * 9.3e12, "half": .7 * 18.7e12, "memory": .7 * 732e9, "peer": 12e9,
             "launch": 5e-6},
}


class Graph:
    """Tensors and operators; what a file of them says."""

    def __init__(self, gpu):
        self.gpu, self.tensors, self.ops = GPUS[gpu], [], []

    def tensor(self, size, kind="a", device=0):
        self.tensors.append((int(size), kind, device))
        return len(self.tensors) - 1

    def op(self, name, reads, writes, flops=0, passes=1, rate="single"):
        """passes: how often its tensors are read or written."""
        moved = passes * sum(self.tensors[t][0] for t in reads + writes)
        seconds = max(flops / self.gpu[rate], moved / self.gpu["memory"]) + self.gpu["launch"]
        self.ops.append((name, round(seconds * 1e9), tuple(reads), tuple(writes)))

    def make(self, name, reads, size, device=0, **how):
        made = self.tensor(size, device=device)
        self.op(name, reads, [made], **how)
        return made

    def bring(self, tensor, device):
        """The tensor on that device: itself, or a copy."""
        size, _, home = self.tensors[tensor]
        if home == device:
            return tensor
        copy = self.tensor(size, device=device)
        seconds = size / self.gpu["peer"] + self.gpu["launch"]
        self.ops.append(("transfer", round(seconds * 1e9), [tensor], [copy]))
        return copy

    def peak(self):
        """Most bytes on one device when nothing moves."""
        last, first = {}, {}
        for at, (_, _, reads, writes) in enumerate(self.ops):
            for tensor in reads + writes:
                first.setdefault(tensor, at)
                last[tensor] = at
        change = [[0] * (len(self.ops) + 1) for _ in range(DEVICES_MAX)]
        for number, (size, kind, device) in enumerate(self.tensors):
            change[device][first[number] if kind == "a" else 0] += size
            if kind == "a":
                change[device][last[number] + 1] -= size
        return max(max(itertools.accumulate(steps)) for steps in change)

    def text(self):
        lines = ["gmgraph 1"]
        for number, (size, kind, device) in enumerate(self.tensors):
            lines.append(f"t {number} {size} {kind}" + (f" {device}" if device else ""))
        for name, ns, reads, writes in self.ops:
            lines.append(f"o {name} {ns} r {' '.join(map(str, reads))} "
                         f"w {' '.join(map(str, writes))}")
        return "\n".join(lines) + "\n"


class Map:
    """A tensor of `channels` maps of height by width numbers for each image."""

    def __init__(self, tensor, channels, height, width):
        self.tensor, self.channels, self.height, self.width = tensor, channels, height, width


class Training(Graph):
    """A training step: layers forward; then the tape, backward; then Adam."""

    def __init__(self, gpu, batch):
        super().__init__(gpu)
        self.batch, self.tape, self.gradients, self.parameters = batch, [], {}, []
        self.fused = False

    def parameter(self, count):
        self.parameters.append(self.tensor(4 * count, "p"))
        return self.parameters[-1]

    def maps(self, channels, height, width):
        size = 4 * self.batch * channels * height * width
        return Map(self.tensor(size), channels, height, width)

    def like(self, tensor):
        return self.tensor(self.tensors[tensor][0])

    def give(self, tensor, gradient):
        """Adds to the gradient of a tensor."""
        if tensor in self.gradients:
            total = self.like(tensor)
            self.op("add.Tensor", [self.gradients[tensor], gradient], [total])
            gradient = total
        self.gradients[tensor] = gradient

    def backward(self, name, of, saved, to, **how):
        """Puts an operator on the tape: it reads the gradient of `of` and what was saved, and makes
        the gradients of the tensors `to`."""
        def step():
            made = [self.like(t) for t in to]
            self.op(name, [self.gradients.pop(of)] + saved, made, **how)
            for tensor, gradient in zip(to, made):
                self.give(tensor, gradient)
        self.tape.append(step)

    def weighted(self, name, x, y, count, bias, flops):
        """A layer with `count` weights and `bias` biases, x to y."""
        weights = [self.parameter(count)] + ([self.parameter(bias)] if bias else [])
        self.op(name, [x] + weights, [y], flops=flops)
        to = ([] if self.tensors[x][1] == "i" else [x]) + weights
        self.backward(name.replace(".", "_backward."), y, [x, weights[0]], to,
                      flops=flops * (1 if to[0] != x else 2))

    def conv(self, x, out, size, stride=1, pad=None, bias=False):
        high, wide = size if isinstance(size, tuple) else (size, size)
        up, left = (pad, pad) if pad is not None else (high // 2, wide // 2)
        y = self.maps(out, (x.height + 2 * up - high) // stride + 1,
                      (x.width + 2 * left - wide) // stride + 1)
        count = x.channels * out * high * wide
        self.weighted("convolution.default", x.tensor, y.tensor, count, out * bias,
                      2 * self.batch * y.height * y.width * count)
        return y

    def norm(self, x):
        scale, shift = self.parameter(x.channels), self.parameter(x.channels)
        y, saved = self.maps(x.channels, x.height, x.width), self.tensor(8 * x.channels)
        self.op("cudnn_batch_norm.default", [x.tensor, scale, shift], [y.tensor, saved], passes=2)
        self.backward("cudnn_batch_norm_backward.default", y.tensor, [x.tensor, scale, saved],
                      [x.tensor, scale, shift], passes=2)
        return y

    def relu(self, x):
        """In place: so its gradient takes the place of the one behind it."""
        self.op("relu_.default", [x.tensor], [x.tensor])
        def step():
            made = self.like(x.tensor)
            self.op("threshold_backward.default", [self.gradients.pop(x.tensor), x.tensor], [made])
            self.gradients[x.tensor] = made
        self.tape.append(step)
        return x

    def cell(self, x, out, size, stride=1, pad=None):
        """What most networks repeat."""
        return self.relu(self.norm(self.conv(x, out, size, stride, pad)))

    def pool(self, x, size, stride, pad=0, kind="max_pool2d"):
        y = self.maps(x.channels, (x.height + 2 * pad - size) // stride + 1,
                      (x.width + 2 * pad - size) // stride + 1)
        where = [self.tensor(2 * self.tensors[y.tensor][0])] if kind == "max_pool2d" else []
        self.op(kind + ".default", [x.tensor], [y.tensor] + where)
        self.backward(kind + "_backward.default", y.tensor, [x.tensor] + where, [x.tensor])
        return y

    def average(self, x):
        return self.pool(x, x.height, 1, kind="avg_pool2d")

    def join(self, parts):
        y = self.maps(sum(p.channels for p in parts), parts[0].height, parts[0].width)
        self.op("cat.default", [p.tensor for p in parts], [y.tensor])
        self.backward("slice_backward.default", y.tensor, [], [p.tensor for p in parts])
        return y

    def add(self, a, b):
        y = self.maps(a.channels, a.height, a.width)
        self.op("add.Tensor", [a.tensor, b.tensor], [y.tensor])
        def step():
            gradient = self.gradients.pop(y.tensor)
            self.give(a.tensor, gradient)
            self.give(b.tensor, gradient)
        self.tape.append(step)
        return y

    def linear(self, x, out, bias=True):
        count = x.channels * x.height * x.width * out
        y = self.maps(out, 1, 1)
        self.weighted("addmm.default", x.tensor, y.tensor, count, out * bias,
                      2 * self.batch * count)
        return y

    def drop(self, x):
        y, mask = self.maps(x.channels, x.height, x.width), self.like(x.tensor)
        self.op("native_dropout.default", [x.tensor], [y.tensor, mask])
        self.backward("native_dropout_backward.default", y.tensor, [mask], [x.tensor])
        return y

    def finish(self, *outputs):
        for y in outputs:
            self.give(y.tensor, self.make("nll_loss_backward.default", [y.tensor],
                                          self.tensors[y.tensor][0]))
        for step in reversed(self.tape):
            step()
        for parameter in self.parameters:
            size, gradient = self.tensors[parameter][0], self.gradients[parameter]
            mean, square = self.tensor(size, "p"), self.tensor(size, "p")
            if self.fused:
                self.op("adam", [parameter, gradient, mean, square], [parameter, mean, square])
                continue
            self.op("lerp_.Scalar", [mean, gradient], [mean])
            self.op("mul_.Tensor", [square], [square])
            self.op("addcmul_.default", [square, gradient], [square])
            root = self.make("sqrt.default", [square], size)
            below = self.make("div.Tensor", [root], size)
            self.op("add_.Tensor", [below], [below])
            self.op("addcdiv_.default", [parameter, mean, below], [parameter])
        return self


def images(gpu, batch, size):
    n = Training(gpu, batch)
    return n, Map(n.tensor(4 * batch * 3 * size * size, "i"), 3, size, size)


def vgg16(gpu, batch):
    return vgg16_with(gpu, batch, False)


def vgg16_with(gpu, batch, fused):
    n, x = images(gpu, batch, 224)
    n.fused = fused
    for out in 64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0:
        x = n.relu(n.conv(x, out, 3, bias=True)) if out else n.pool(x, 2, 2)
    for out in 4096, 4096:
        x = n.drop(n.relu(n.linear(x, out)))
    return n.finish(n.linear(x, 1000))


def vgg16_fused(gpu, batch):
    return vgg16_with(gpu, batch, True)


def resnet50(gpu, batch):
    n, x = images(gpu, batch, 224)
    x = n.pool(n.cell(x, 64, 7, 2), 3, 2, 1)
    for out, blocks in (64, 3), (128, 4), (256, 6), (512, 3):
        for block in range(blocks):
            stride = 2 if block == 0 and out > 64 else 1
            y = n.norm(n.conv(n.cell(n.cell(x, out, 1), out, 3, stride), 4 * out, 1))
            side = n.norm(n.conv(x, 4 * out, 1, stride)) if block == 0 else x
            x = n.relu(n.add(y, side))
    return n.finish(n.linear(n.average(x), 1000))


def densenet121(gpu, batch):
    n, x = images(gpu, batch, 224)
    x = n.pool(n.cell(x, 64, 7, 2), 3, 2, 1)
    for layers in 6, 12, 24, 16:
        if layers != 6:
            x = n.pool(n.conv(n.relu(n.norm(x)), x.channels // 2, 1), 2, 2, kind="avg_pool2d")
        parts = [x]
        for _ in range(layers):
            x = n.join(parts) if len(parts) > 1 else parts[0]
            parts.append(n.conv(n.relu(n.norm(n.conv(n.relu(n.norm(x)), 128, 1))), 32, 3))
        x = n.join(parts)
    return n.finish(n.linear(n.average(n.relu(n.norm(x))), 1000))


def branches(n, x, *rows):
    """Joined branches. A row is a chain of (channels, size[, stride, pad]); "max" and "average" are
    poolings of 3 by 3; a list has branches of its own."""
    parts = []
    for row in rows:
        y = x
        for item in row:
            if item == "max":
                y = n.pool(y, 3, 2)
            elif item == "average":
                y = n.pool(y, 3, 1, 1, kind="avg_pool2d")
            elif isinstance(item, list):
                y = branches(n, y, *item)
            else:
                y = n.cell(y, *item)
        parts.append(y)
    return n.join(parts)


def inception_v3(gpu, batch):
    """Szegedy et al., 2015 (arXiv 1512.00567), with its side head."""
    n, x = images(gpu, batch, 299)
    x = n.cell(n.cell(n.cell(x, 32, 3, 2, 0), 32, 3, 1, 0), 64, 3)
    x = n.cell(n.cell(n.pool(x, 3, 2), 80, 1), 192, 3, 1, 0)
    x = n.pool(x, 3, 2)
    for out in 32, 64, 64:
        x = branches(n, x, [(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)],
                     ["average", (out, 1)])
    x = branches(n, x, [(384, 3, 2, 0)], [(64, 1), (96, 3), (96, 3, 2, 0)], ["max"])
    row, column = (1, 7), (7, 1)
    for c in 128, 160, 160, 192:
        x = branches(n, x, [(192, 1)], [(c, 1), (c, row), (192, column)],
                     [(c, 1), (c, column), (c, row), (c, column), (192, row)],
                     ["average", (192, 1)])
    side = n.cell(n.cell(n.pool(x, 5, 3, kind="avg_pool2d"), 128, 1), 768, 5, 1, 0)
    side = n.linear(side, 1000)
    x = branches(n, x, [(192, 1), (320, 3, 2, 0)],
                 [(192, 1), (192, row), (192, column), (192, 3, 2, 0)], ["max"])
    split = [[(384, (1, 3))], [(384, (3, 1))]]
    for _ in range(2):
        x = branches(n, x, [(320, 1)], [(384, 1), split], [(448, 1), (384, 3), split],
                     ["average", (192, 1)])
    return n.finish(n.linear(n.drop(n.average(x)), 1000), side)


def inception_v4(gpu, batch):
    """Szegedy et al., 2016 (arXiv 1602.07261)."""
    n, x = images(gpu, batch, 299)
    row, column = (1, 7), (7, 1)
    x = n.cell(n.cell(n.cell(x, 32, 3, 2, 0), 32, 3, 1, 0), 64, 3)
    x = branches(n, x, ["max"], [(96, 3, 2, 0)])
    x = branches(n, x, [(64, 1), (96, 3, 1, 0)], [(64, 1), (64, row), (64, column), (96, 3, 1, 0)])
    x = branches(n, x, [(192, 3, 2, 0)], ["max"])
    for _ in range(4):
        x = branches(n, x, ["average", (96, 1)], [(96, 1)], [(64, 1), (96, 3)],
                     [(64, 1), (96, 3), (96, 3)])
    x = branches(n, x, ["max"], [(384, 3, 2, 0)], [(192, 1), (224, 3), (256, 3, 2, 0)])
    for _ in range(7):
        x = branches(n, x, ["average", (128, 1)], [(384, 1)],
                     [(192, 1), (224, row), (256, column)],
                     [(192, 1), (192, row), (224, column), (224, row), (256, column)])
    x = branches(n, x, ["max"], [(192, 1), (192, 3, 2, 0)],
                 [(256, 1), (256, row), (320, column), (320, 3, 2, 0)])
    for _ in range(3):
        x = branches(n, x, ["average", (256, 1)], [(256, 1)],
                     [(384, 1), [[(256, (1, 3))], [(256, (3, 1))]]],
                     [(384, 1), (448, (1, 3)), (512, (3, 1)),
                      [[(256, (3, 1))], [(256, (1, 3))]]])
    return n.finish(n.linear(n.drop(n.average(x)), 1000))


def mlp(gpu, batch, width, layers):
    n = Training(gpu, batch)
    x = Map(n.tensor(4 * batch * width, "i"), width, 1, 1)
    for _ in range(layers - 1):
        x = n.relu(n.linear(x, width))
    return n.finish(n.linear(x, width))


# ---- LLaMA --------------------------------------------------------------------------------------

SIZES = {"7b": (32, 4096, 11008, 32), "65b": (80, 8192, 22016, 64)}  # layers, width, inner, heads
SCORES_MAX = 1 << 31  # bytes: heads and sequences are computed together up to so large scores
RANK = 16


class Llama(Graph):
    def __init__(self, gpu, size, batch, length, devices, number):
        super().__init__(gpu)
        self.layers, self.width, self.inner, self.heads = SIZES[size]
        self.batch, self.length, self.devices = batch, length, devices
        self.number, self.rate = number, {2: "half", 4: "single"}[number]  # bytes of a number
        self.tokens = batch * length
        self.all = range(devices)
        part = self.heads // devices  # heads of a device
        self.groups = min(part * batch, math.ceil(self.scores(part) / SCORES_MAX))
        self.grouped = part / self.groups  # below 1: a head of a part of the sequences

    def scores(self, heads):
        return self.number * self.batch * heads * self.length ** 2

    def rows(self, columns):
        """Bytes of a number for each token and column."""
        return self.number * self.tokens * columns

    def weight(self, rows, columns, device, adapted=False):
        count = rows * columns
        pieces = [self.tensor(self.number * count, "p", device)]
        if adapted:
            pieces += [self.tensor(self.number * RANK * rows, "p", device),
                       self.tensor(self.number * RANK * columns, "p", device)]
        return pieces

    def product(self, name, reads, weight, columns_in, columns_out, device, parts=1):
        """Tokens times a weight; several tensors if it is cut by rows of tokens."""
        made = [self.tensor(self.rows(columns_out) / parts, device=device) for _ in range(parts)]
        self.op(name, reads + weight, made, flops=2 * self.tokens * columns_in * columns_out,
                rate=self.rate)
        return made

    def spread(self, rows):
        """Each device's copies of all rows."""
        copies = [list(rows) for _ in self.all]
        for step in range(1, self.devices):
            for d in self.all:
                piece = (d - step) % self.devices
                copies[d][piece] = self.bring(rows[piece], d)
        return copies

    def total(self, partials, rows):
        """Adds partials[device][piece] up and to the rows, each piece on its device."""
        for step in range(1, self.devices):
            for d in self.all:
                piece = (d + step) % self.devices
                partials[d][piece] = self.bring(partials[d][piece], piece)
        return [self.make("sum", [p[piece] for p in partials] + [rows[piece]],
                          self.rows(self.width) / self.devices, piece) for piece in self.all]

    def normed(self, rows):
        """On each device."""
        return [self.make("norm", copies, self.rows(self.width), d)
                for d, copies in enumerate(self.spread(rows))]

    def attend(self, qkv, device):
        """Probabilities of each group of heads, one group after another."""
        for _ in range(self.groups):
            flops = 2 * self.batch * self.grouped * self.length ** 2 * self.width / self.heads
            scores = self.make("scores", [qkv], self.scores(self.grouped), device, flops=flops,
                               rate=self.rate)
            self.op("softmax", [scores], [scores])
            yield scores, flops

    def attention(self, rows, weights):
        """One layer's; returns the rows behind it, and each device's normed rows and QKV."""
        wide, partials, kept = self.width // self.devices, [], []
        for d, normed in enumerate(self.normed(rows)):
            qkv, = self.product("qkv", [normed], weights[d]["qkv"], self.width, 3 * wide, d)
            values = [self.make("values", [scores, qkv], self.rows(wide) / self.groups, d,
                                flops=flops, rate=self.rate)
                      for scores, flops in self.attend(qkv, d)]
            partials.append(self.product("out", values, weights[d]["out"], wide, self.width, d,
                                         self.devices))
            kept.append((normed, qkv))
        return self.total(partials, rows), kept

    def forward(self, rows, weights, whole=True):
        """One layer's feed-forward part; not `whole`: up to what the backward pass needs."""
        wide, partials, kept = self.inner // self.devices, [], []
        for d, normed in enumerate(self.normed(rows)):
            up, = self.product("up", [normed], weights[d]["up"], self.width, 2 * wide, d)
            gated = self.make("silu", [up], self.rows(wide), d)
            if whole:
                partials.append(self.product("down", [gated], weights[d]["down"], wide, self.width,
                                             d, self.devices))
            kept.append((normed, up, gated))
        return self.total(partials, rows) if whole else None, kept

    def layer_weights(self, adapted):
        wide, inner = self.width // self.devices, self.inner // self.devices
        return [{"qkv": self.weight(self.width, 3 * wide, d, adapted),
                 "out": self.weight(wide, self.width, d),
                 "up": self.weight(self.width, 2 * inner, d, adapted),
                 "down": self.weight(inner, self.width, d, adapted)} for d in self.all]

    def inputs(self):
        return [self.tensor(self.rows(self.width) / self.devices, "i", d) for d in self.all]

    def adapt(self, name, reads, weight, device):
        """Gradients of the adaptor's two matrices."""
        made = [self.tensor(self.tensors[t][0], device=device) for t in weight[1:]]
        self.op(name, reads + weight[1:], made)

    def backward(self, rows, gradient, weights):
        """One layer's, from its input rows and the gradient behind it."""
        middle, first = self.attention(rows, weights)
        _, second = self.forward(middle, weights, False)
        wide, partials, copies = self.inner // self.devices, [], self.spread(gradient)
        for d, (normed, up, gated) in enumerate(second):
            w = weights[d]
            turned, = self.product("down_backward", copies[d], w["down"], self.width, wide, d)
            self.adapt("down_adaptor", copies[d] + [gated], w["down"], d)
            turned = self.make("silu_backward", [turned, up], self.rows(2 * wide), d)
            self.adapt("up_adaptor", [turned, normed], w["up"], d)
            partials.append(self.product("up_backward", [turned], w["up"], 2 * wide, self.width, d,
                                         self.devices))
        gradient = self.total(partials, gradient)
        wide, partials, copies = self.width // self.devices, [], self.spread(gradient)
        for d, (normed, qkv) in enumerate(first):
            w = weights[d]
            turned, = self.product("out_backward", copies[d], w["out"], self.width, wide, d)
            pieces = [self.make("heads_backward", [scores, qkv, turned],
                                self.rows(3 * wide) / self.groups, d, flops=4 * flops,
                                rate=self.rate) for scores, flops in self.attend(qkv, d)]
            self.adapt("qkv_adaptor", pieces + [normed], w["qkv"], d)
            partials.append(self.product("qkv_backward", pieces, w["qkv"], 3 * wide, self.width, d,
                                         self.devices))
        return self.total(partials, gradient)


def prefill(gpu, size, batch, length, devices):
    n = Llama(gpu, size, batch, length, devices, 2)
    rows = n.inputs()
    for _ in range(n.layers):
        weights = n.layer_weights(False)
        rows, _ = n.attention(rows, weights)
        rows, _ = n.forward(rows, weights)
    return n


def lora(gpu, size, batch, length, devices):
    n = Llama(gpu, size, batch, length, devices, 4)
    rows, layers = n.inputs(), []
    for _ in range(n.layers):
        weights = n.layer_weights(True)
        layers.append((rows, weights))
        rows, _ = n.attention(rows, weights)
        rows, _ = n.forward(rows, weights)
    for rows_in, weights in reversed(layers):
        rows = n.backward(rows_in, rows, weights)
    return n


NETWORKS = {f.__name__: f for f in (vgg16, vgg16_fused, resnet50, densenet121, inception_v3,
                                    inception_v4, mlp, prefill, lora)}


def describe(words, gpu="2080ti"):
    """The graph that words like vgg16:2 name."""
    name, *numbers = words.split(":")
    return NETWORKS[name](gpu, *(int(n) if n.isdigit() else n for n in numbers))


def main(words="", gpu="2080ti", *more):
    name, *numbers = words.split(":")
    network = NETWORKS.get(name)
    if more or gpu not in GPUS or not network or len(numbers) + 1 != network.__code__.co_argcount:
        sys.exit(__doc__)
    try:
        graph = describe(words, gpu)
    except KeyError as lacks:
        sys.exit(f"{words} {gpu}: there is no {lacks}")
    except (ValueError, TypeError):
        sys.exit(f"{words}: numbers stand behind the network's name")
    sys.stdout.write(graph.text())


if __name__ == "__main__":
    main(*sys.argv[1:])
