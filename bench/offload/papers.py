"""Writes the page of the papers' tables beside ours, PAPERS.md: describes the networks
(networks.py), plans and runs them on the mock's clock (build/offload, build/turnip).

usage: papers.py [--link GB] [--ratio PART] [--build FOLDER] [--only SECTION]
  --link    GB/s of a GPU's link to the host in each direction; 12 by default
  --ratio   a job swaps at most that part of its tensors; 1 by default
  --only    one section alone: one of the words before its function in SECTIONS
"""
import argparse
import concurrent.futures
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import networks  # noqa: E402

GIB = 1 << 30
PAPER = "paper"  # a row of build/offload, and an option of build/turnip


class Bench:
    """Runs the two programs; the same question is answered once."""

    def __init__(self, options):
        self.options, self.known = options, {}
        self.folder = tempfile.TemporaryDirectory()
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())

    def rows(self, program, words, gpu, slower, arguments):
        """What a program prints of a graph file or of a network, whose operators take so many times
        as long: one row a line of JSON."""
        with tempfile.TemporaryDirectory(dir=self.folder.name) as folder:
            path = words
            if not os.path.exists(words):
                path = os.path.join(folder, "x.gmgraph")
                graph = networks.describe(words, gpu)
                graph.ops = [(name, slower * ns, r, w) for name, ns, r, w in graph.ops]
                with open(path, "w", encoding="ascii") as file:
                    file.write(graph.text())
            command = [os.path.join(self.options.build, program), "--json", *arguments, path]
            run = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        return [json.loads(line) for line in run.stdout.splitlines()]

    def ask(self, *question):
        if question not in self.known:
            self.known[question] = self.pool.submit(self.rows, *question)
        return self.known[question]

    def tensile(self, words, gpu="2080ti", slower=1, jobs=1, ratio=None, link=None):
        """A future of the rows of build/offload."""
        return self.ask("offload", words, gpu, slower,
                        ("--iterations", "2", "--jobs", str(jobs),
                         "--link", str(link or self.options.link),
                         "--ratio", str(ratio or self.options.ratio)))

    def turnip(self, words, gpu, budget, paper):
        """A future of the row of build/turnip; of none where an operator has no room."""
        return self.ask("turnip", words, gpu, 1,
                        ("--seeds", "1", "--divisor", "65536", "--budget", str(budget),
                         "--link", str(self.options.link), *(["--" + PAPER] if paper else [])))


def number(value):
    """As in the other tables: .123."""
    text = f"{abs(value):.3f}"
    return ("-" if value < 0 and float(text) else "") + (text[1:] if text[0] == "0" else text)


def table(head, rows):
    lines = ["| " + " | ".join(line) + " |" for line in [head] + rows]
    return "\n".join([lines[0], "|" + "---|" * len(head)] + lines[1:])


def prose(text):
    """A paragraph, or the points of a list, in lines of at most 100 characters; `code` is whole."""
    def fill(part):
        code = re.sub(r"`[^`]*`", lambda m: "\0".join(m[0].split()), part)
        return textwrap.fill(" ".join(code.split()), 100, break_long_words=False,
                             break_on_hyphens=False,
                             subsequent_indent="  " if part.startswith("- ") else "")
    return "\n".join(map(fill, re.split(r"\n(?=- )", text.strip()))).replace("\0", " ")


def way(rows, name):
    """Of rows of build/offload `saved at overhead`."""
    for row in rows:
        if row["way"] == name:
            assert row["state"] == "ok", row
            if row["overhead"] is None:
                return "-"
            return f"{number(row['saved'])} at {number(row['overhead'])}"
    return "-"


# ---- Descriptions beside what was measured -------------------------------------------------------

RECORDED = (("vgg16:64", "vgg16-b64"), ("vgg16:2", "vgg16-b2"), ("resnet50:64", "resnet50-b64"),
            ("densenet121:64", "densenet121-b64"), ("prefill:7b:1:4096:1", "llama-7b-prefill-4k"))
# Images a second, training in single precision, RTX 2080 Ti, TensorFlow 1.12, CUDA 10.0:
# https://lambdalabs.com/blog/2080-ti-deep-learning-benchmarks
PUBLISHED = (("resnet50:64", 294), ("inception_v3:64", 194), ("inception_v4:64", 79))


def recorded(path):
    """Milliseconds of a file's last iteration, operator by operator, and of a step without the
    recorder."""
    total, step = 0, 0
    with gzip.open(path, "rt", encoding="ascii") as file:
        for line in file:
            words = line.split()
            if words[0] == "m":
                total, last = 0, total
            elif words[0] == "o":
                total += int(words[2])
            elif words[:2] == ["#", "step_seconds:"]:
                step = 1e3 * float(words[2])
    return (total or last) / 1e6, step


def described(bench):
    rows = []
    asked = [(words, name, bench.tensile(words, "h200", link=55),
              bench.tensile(f"bench/graphs/{name}.gmgraph.gz", "", link=55))
             for words, name in RECORDED]
    for words, name, ours, theirs in asked:
        ours, theirs = ours.result()[0], theirs.result()[0]
        operators, step = recorded(f"bench/graphs/{name}.gmgraph.gz")
        rows.append([words, f"{theirs['peak_bytes'] / 1e9:.2f}", f"{ours['peak_bytes'] / 1e9:.2f}",
                     f"{operators:.1f}", f"{step:.1f}", f"{ours['time_ms']:.1f}",
                     f"{ours['time_ms'] / step - 1:+.0%}"])
    speeds = []
    for words, published in PUBLISHED:
        graph = networks.describe(words)
        ours = graph.batch * 1e9 / sum(op[1] for op in graph.ops)
        speeds.append([words, str(published), f"{ours:.0f}", f"{published / ours - 1:+.0%}"])
    return [
        "## How far the descriptions are off",
        prose("""A described operator takes what is longer, its arithmetic or the traffic of its
            tensors, at parts of the GPU's stated rates, which [networks.py](networks.py) has.
            Beside graphs that were recorded on an H200: memory, and ms of a step. *operators*
            is the sum of the recorded times, which the recorder made longer where operators are
            short; *step* is without the recorder."""),
        table(["network", "recorded GB", "described GB", "operators", "step", "described", "off"],
              rows),
        prose("""So memory is right to 3 %, and times to a tenth, but for steps of short
            operators, where the host is too slow for the GPU. On an RTX 2080 Ti (13.45 TFLOP/s,
            616 GB/s) nothing was recorded. Others have published images a second, in single
            precision with TensorFlow (lambdalabs.com/blog/2080-ti-deep-learning-benchmarks), of
            batches that we do not know. *off*: the described time beside that:"""),
        table(["network", "published", "described", "off"], speeds)]


# ---- TENSILE -------------------------------------------------------------------------------------

# Table 1, then Table 2: MSR and EOR.
VDNN = ".273 at .858, .282 at .851", ".237 at .910", ".261 at .920"
CAPUCHIN = ".100 at .897, .100 at .892", ".006 at .921", ".111 at .922"
TENSILE = ".224 at .097, .200 at .084", ".230 at .102", ".277 at .279"
SLOWER = 1, 4, 8


def vgg(bench):
    ask = {(words, slower, jobs): bench.tensile(words, slower=slower, jobs=jobs)
           for words in ("vgg16:2", "vgg16_fused:2") for slower in SLOWER for jobs in (1, 2, 3)}

    def row(text, words, slower, name):
        return [text] + [way(ask[words, slower, jobs].result(), name) for jobs in (1, 2, 3)]

    def ms(words, slower):
        return f"{ask[words, slower, 1].result()[0]['time_ms']:.0f}"

    rows = [["paper: TENSILE", *TENSILE]]
    for words, adam in ("vgg16:2", ""), ("vgg16_fused:2", ", Adam fused"):
        for name, text in ((PAPER, "paper mode"), ("tensile", "default, no added time"),
                           ("tensile+", "default, 5 % allowed")):
            rows += [row(f"{text}{adam}, {ms(words, slower)} ms", words, slower, name)
                     for slower in SLOWER]
    rows.append(["paper: vDNN", *VDNN])
    rows.append(row("vDNN here, all feature maps", "vgg16:2", 1, "vdnn-all"))
    rows.append(["paper: Capuchin", *CAPUCHIN])
    rows.append(row("Capuchin here, in the default's memory", "vgg16:2", 1, "capuchin"))
    peak, link = ask["vgg16:2", 1, 1].result()[0]["peak_bytes"] / 1e9, bench.options.link
    three = way(ask["vgg16:2", SLOWER[2], 3].result(), PAPER)
    return [
        "## TENSILE",
        "### Tables 1 and 2: VGG, batch 2, one to three jobs",
        prose(f"""Saved at overhead: the paper's MSR at EOR. The paper does not say which VGG,
            how long an iteration takes, or how much memory. Here it is VGG-16, {peak:.2f} GB:
            as described, and with all operators {SLOWER[1]} and {SLOWER[2]} times as long,
            since the paper's framework waits on the host for each operator, in Python. *Adam
            fused* is Adam as one operator for each parameter; else it is torch's seven."""),
        table(["", "one job", "two", "three"], rows),
        "What this means:",
        prose(f"""- Ours save less than the paper's where iterations are short. To move .2 of
            {peak:.2f} GB out and back takes a link of {link:g} GB/s {.4 * peak / link * 1e3:.0f}
            ms, one tensor at a time.
- Ours cost next to nothing in paper mode, and about what is allowed by default. The paper's plans
            are made to cost nothing, too, but cost .08 to .28.
- From about {SLOWER[1]} times as long on the default saves all that torch's Adam leaves to save.
            Adam needs five tensors of the size of the largest parameter, 411 MB, at once.
- The paper's three jobs save more than ours by default, and wait for it. Three jobs of
            {ms("vgg16:2", SLOWER[2])} ms in paper mode save {three}: on the mock they keep in step.
            A plan of the default holds whatever the other jobs do, so a job saves about what it
            would save alone.
- Paper mode is greedy: the largest tensor goes first, and what that takes from the link is not
            given back. So it can save less where there is more time (Adam fused).
- vDNN saves nothing here. It moves feature maps, and VGG's peak is in Adam, when they are gone.
            In the paper it saves .27, so the peak must be elsewhere there, in a framework that
            keeps other memory than torch. Therefore its tables cannot be repeated to the
            figure.""")]


def others(bench):
    words = "inception_v3:2", "inception_v4:2", "resnet50:2", "densenet121:2"
    asked = [(w, bench.tensile(w)) for w in words]
    rows = []
    for w, ask in asked:
        got = ask.result()
        rows.append([w, f"{got[0]['peak_bytes'] / 1e9:.2f}", f"{got[0]['time_ms']:.1f}"] +
                    [way(got, name) for name in (PAPER, PAPER + "+r", "tensile", "tensile+",
                                                 "vdnn-all", "capuchin")])
    head = ["network", "GB", "ms", "paper mode", "with recomputation", "default, no added time",
            "5 % allowed", "vDNN, all", "Capuchin"]
    return [
        "### The paper's other networks, batch 2",
        prose("""The paper names them; the text that is at hand has no figures of them. *with
            recomputation* is paper mode with three quarters of the memory as its target.
            Capuchin has the memory of *5 % allowed*."""),
        table(head, rows)]


def ratios(bench):
    parts, jobs = (1, .2, .1, .05, .01), (1, 2, 3)
    asked = {(ratio, j): bench.tensile("inception_v3:2", jobs=j, ratio=ratio)
             for ratio in parts for j in jobs}
    rows = [[number(ratio)] + [way(asked[ratio, j].result(), name)
                               for j in jobs for name in (PAPER, "tensile")] for ratio in parts]
    return [
        "### The ratio that bounds a job's swaps",
        prose("""The paper sets it to 1 for one job, and gives no figures of others. Here
            Inception V3, batch 2, the default for no added time:"""),
        table(["ratio"] + [f"{j}: {name}" for j in ("one job", "two", "three")
                           for name in ("paper mode", "default")], rows),
        prose("""In paper mode the ratio is of the number of tensors of all jobs, and few, large
            ones leave; what the optimizer updates is not under it. So none of these ratios
            matters. By default it is of the job's bytes, and counts all of them.""")]


def perceptrons(bench):
    shapes = [(batch, width, layers) for width, layers in ((1024, 10), (4096, 4))
              for batch in (256, 1024, 4096, 16384)]
    asked = [(shape, bench.tensile("mlp:" + ":".join(map(str, shape)))) for shape in shapes]
    rows = []
    for (batch, width, layers), ask in asked:
        got = ask.result()
        rows.append([str(layers), str(width), str(batch), f"{got[0]['peak_bytes'] / 1e9:.2f}"] +
                    [way(got, name) for name in (PAPER, "tensile", "tensile+")])
    head = ["layers", "width", "batch", "GB", "paper mode", "default, no added time", "5 % allowed"]
    return [
        "### The MLP: .335 for no time",
        prose("""The paper does not say how large its MLP is. The larger the batch, the longer
            an iteration computes with the parameters that have to be moved, and the more of it
            are feature maps. So any figure can be had, also .335:"""),
        table(head, rows)]


# ---- TURNIP --------------------------------------------------------------------------------------

# GPU, name, number, GiB that a program gets of each.
SERVERS = ("a100", "8 A100", 8, 36), ("p100", "4 P100", 4, 15)
# By model and experiment: batch and length.
SHAPES = {("7b", "prefill"): ((8, 1024), (8, 4096), (8, 16384), (16, 8192)),
          ("65b", "prefill"): ((8, 1024), (8, 16384)),
          ("7b", "single"): ((1, 1024), (1, 8192), (1, 32768)),
          ("65b", "single"): ((1, 1024), (1, 32768)),
          ("7b", "lora"): ((8, 1024), (8, 4096), (32, 1024)),
          ("65b", "lora"): ((8, 1024),)}


class Cell:
    """One network on one server: in the memory of its GPUs, if it needs more, and in half of what
    it needs; by default and in paper mode."""

    def __init__(self, bench, kind, size, batch, length, server):
        gpu, self.server, devices, self.has = server
        self.shape = size, str(batch), str(length)
        words = f"{'lora' if kind == 'lora' else 'prefill'}:{size}:{batch}:{length}:{devices}"
        self.needs, self.answers = networks.describe(words, gpu).peak(), {}
        self.ask = lambda budget: self.answers.setdefault(
            budget, [bench.turnip(words, gpu, budget, paper) for paper in (False, True)])
        self.budgets = ([self.has] if self.needs > self.has * GIB else []) + [.5]
        for budget in self.budgets:
            self.ask(budget)

    def rows(self, budget):
        """By default and in paper mode; empty where the largest operator has no room."""
        rows = [row for answer in self.ask(budget) for row in answer.result()]
        assert all(row["state"] == "ok" for row in rows), rows
        return rows

    def fixed(self):
        return [row["fixed_ops"] for row in self.rows(self.budgets[0])]

    def row(self):
        def added(budget):
            return [number(row["over"]) for row in self.rows(budget)] or ["no room"] * 2
        some = self.rows(.5) or self.rows(self.has)
        return [self.server, *self.shape, f"{self.needs / GIB:.1f}",
                f"{some[0]['none_ms'] / 1e3:.2f}",
                *(added(self.has) if self.has in self.budgets else ["fits"] * 2), *added(.5),
                *([number(gain) for gain in self.fixed()] or ["-"] * 2)]


CELL_HEAD = ["GPUs", "model", "batch", "length", "GiB each", "s", "added", "paper mode",
             "in half", "paper mode", "fixed", "paper mode"]


def turnip(bench):
    cells = {(server[0], kind): [Cell(bench, kind, size, *shape, server) for size in ("7b", "65b")
                                 for shape in SHAPES[size, kind]
                                 if (size, kind, server[0]) != ("65b", "lora", "p100")]
             for server in SERVERS for kind in ("prefill", "single", "lora")}
    blocks = [
        "## TURNIP",
        prose(f"""Two servers, as in the paper: 8 A100 of 40 GB and 4 P100 of 16 GB, of which a
            program gets 36 and 15 GiB. Each GPU has a link of {bench.options.link:g} GB/s to
            the host, and copies to other GPUs at 300 GB/s (A100) or 12 GB/s (P100). LLaMA is
            cut by heads, prefill in half precision and LoRA in single precision. Attention
            makes the square of the length, as there, in tensors of at most 2 GiB. Operators and
            copies take up to 20 % more or less time than described."""),
        prose("""- *GiB each*: the memory of the GPU that needs most, when nothing moves.
- *s*: an iteration then. It follows from the rates in networks.py, and says nothing about this
            library.
- *added*: the part of that time that is added in the GPUs' memory, by default and in paper mode.
            *fits*: nothing need move.
- *in half*: the same in half of what it needs. *no room*: its largest operator needs more than
            that.
- *fixed*: how much longer an iteration takes if operators and transfers keep the order of the
            graph, by default and in paper mode. In the GPUs' memory, or where that fits, in
            half.""")]
    for kind, title in (("prefill", "Figures 10 and 11: first token, batches"),
                        ("single", "Figure 12: first token, one sequence"),
                        ("lora", "Figure 13: LoRA, forward and backward")):
        blocks += ["### " + title,
                   table(CELL_HEAD, [cell.row() for server in SERVERS
                                     for cell in cells[server[0], kind]])]
    blocks.append(prose("""The paper's text has these seconds of the 8 A100, length 1,024. 7B,
        batch 8: TURNIP 5.6, ZeRO-Infinity 12.5; batch 32: 12.1 and 17.8. 65B, batch 8: 58.5 and
        72.9. All other heights are in its pictures only. On such a server 7B needs a small part
        of the memory, so that time is not that of moving."""))
    tight = [cell.rows(cell.has) for group in cells.values() for cell in group
             if cell.has in cell.budgets]
    most = [number(max(rows[mode]["over"] for rows in tight)) for mode in (0, 1)]
    rows = []
    for name, gpu, kinds, paper in (("A100, first token", "a100", ("prefill", "single"), ".040"),
                                    ("P100, first token", "p100", ("prefill", "single"), ".065"),
                                    ("A100, LoRA", "a100", ("lora",), ".134"),
                                    ("P100, LoRA", "p100", ("lora",), ".145")):
        gains = filter(None, (cell.fixed() for kind in kinds for cell in cells[gpu, kind]))
        means = [f"{number(sum(mode) / len(mode))} ({number(min(mode))} to {number(max(mode))})"
                 for mode in zip(*gains)]
        rows.append([name, paper, means[1], means[0]])
    return blocks + [
        "### Figure 14: what a free order gains",
        prose("""The mean of *fixed* over the rows above, in brackets its range, beside the
            paper's mean:"""),
        table(["experiments", "paper", "paper mode", "default"], rows),
        "What this means:",
        prose(f"""- A free order gains less here than in the paper, and next to nothing before the
            first token. The graph's own order is a good one here: all devices take the same steps
            at the same time. How good the paper's order is, and what its kernels' times are, we do
            not know.
- In the GPUs' memory only 65B on the P100 needs room. The default adds at most {most[0]} there, and
            paper mode {most[1]}, where one short sequence computes for less time than its weights
            take to come.
- In half of the memory, an iteration takes several times as long where its operators take less time
            than its weights on the link, or where the largest operator needs nearly all of that
            half, so that all else has to leave for it. No order helps there. Else paper mode adds
            more than the default, since it reloads a tensor only when an operator needs it.
- Nothing ran out of the GPUs' memory. In the paper both systems did, in training. Here
            attention is cut into tensors of at most 2 GiB; *no room* are the rows where that is
            too large.""")]


def reasons(_):
    return [
        "## What cannot be repeated",
        prose("""- TENSILE's Tables 1 and 2 to the figure: the text does not say which VGG it is,
            how its optimizer is cut into operators, how long an iteration takes, and what else its
            framework keeps.
- TENSILE's figures of Inception, ResNet-50 and DenseNet: the text has none.
- TURNIP's graphs, which FlexFlow or Alpa can cut in many ways, and its kernels. The heights in its
            Figures 10 to 13, but for six numbers.
- ZeRO-Inference, ZeRO-Infinity and FlexGen, which are whole systems with kernels of their own. On a
            mock there is nothing to run.
- A measurement: nobody here has an RTX 2080 Ti, P100 or A100.""")]


def head(bench):
    link = bench.options.link
    return [
        "# The papers' tables beside ours",
        prose(f"""This page is for somebody who knows the figures of TENSILE (arXiv 2105.13336)
            and TURNIP (arXiv 2405.16283), and asks what gmlake_offload.h and gmlake_turnip.h
            make of the same experiments. `make papers` writes all of it. That takes minutes,
            and gives the same figures on every machine, since they are times of the mock's
            clock. The networks are described, not recorded. The link to the host carries
            {link:g} GB/s in each direction (PCIe 3.0 x16: 12), and {link * 101 / 55:.0f} in both
            at once; their quotient is that of an H200's link. The ratio, the part of its tensors
            that a job may swap, is {bench.options.ratio:g}.
            `python3 bench/offload/papers.py --link GB --ratio PART`
            prints the page for others.""")]


SECTIONS = {"head": head, "described": described, "vgg": vgg, "others": others, "ratio": ratios,
            "mlp": perceptrons, "turnip": turnip, "reasons": reasons}


def number_from(low, high):
    """What the programs take, too."""
    def checked(text):
        if not low <= float(text) <= high:  # which nan is not, either
            raise argparse.ArgumentTypeError(
                f"it takes a number from {low} to {high}, not '{text}'")
        return float(text)
    return checked


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", type=number_from(0.001, 1000000), default=12)
    parser.add_argument("--ratio", type=number_from(0.0001, 1), default=1)
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", choices=SECTIONS)
    bench = Bench(parser.parse_args())
    try:
        blocks = [block for name, section in SECTIONS.items() if bench.options.only in (None, name)
                  for block in section(bench)]
    except FileNotFoundError as error:
        parser.error(f"{error.filename} is not there: make build/offload build/turnip")
    print("\n\n".join(blocks))


if __name__ == "__main__":
    main()
