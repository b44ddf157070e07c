"""Makes Markdown tables of what run.py wrote, or with --plot a gnuplot script of the first one.

    python3 bench/torch/report.py bench/torch/h200.json bench/torch/h200x2.json
    python3 bench/torch/report.py bench/torch/limit.json bench/torch/serving.json
    python3 bench/torch/report.py bench/torch/streams.json bench/torch/streams2.json
    python3 bench/torch/report.py --plot figure.png bench/torch/h200.json | gnuplot
"""
import json
import os
import statistics
import sys

NAMES = {
    "native": "native",
    "expandable": "expandable segments",
    "tuned": "native, tuned",
    "async": "cudaMallocAsync",
    "gmlake": "lake",
    "gmlake-wait": "lake, waiting first",
    "gmlake-record": "lake, recorded",
    "gmlake-wait-record": "lake, waiting first, recorded",
    "gmlake-profile": "lake, with a profile",
    "gmlake-32m": "lake, chunks of 32 MiB",
    "gmlake-64m-wait": "lake, waiting first, chunks of 64 MiB",
}
GIB = 2**30


def step_ratio(runs, native):
    """Each step by the same step of native's, medians over the runs; the median of the steps. The
    first two steps warm up."""
    steps = range(2, len(native[0]["seconds"]))

    def at(i, runs):
        return statistics.median(run["seconds"][i] for run in runs)

    return statistics.median(at(i, runs) / at(i, native) for i in steps)


def utilization(run):
    return run["peak_live_bytes"] / run["peak_reserved_bytes"]


def median(runs, value):
    return statistics.median(value(run) for run in runs)


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def memory(workload, by_allocator, allocators):
    runs = by_allocator.get("gmlake") or [run for some in by_allocator.values() for run in some]
    live = max(run["peak_live_bytes"] for run in runs)
    row = [workload, f"{live / GIB:.2f}"]
    for allocator in allocators:
        runs = by_allocator.get(allocator)
        if runs:
            # The worst of several runs.
            run = min(runs, key=utilization)
            row.append(f"{run['peak_reserved_bytes'] / GIB:.2f} ({utilization(run):.3f})")
        else:
            row.append("")
    return row


def spread(runs, value):
    values = [value(run) for run in runs]
    return max(values) - min(values)


def times(workload, by_allocator, allocators):
    def first(run):
        return run["seconds"][0]

    def mean(run):
        return 1000 * statistics.mean(run["seconds"][2:])

    native = by_allocator["native"]
    row = [workload, f"{median(native, mean):.0f}"]
    noise = max(abs(step_ratio([run], native) - 1) for run in native)
    row.append(f"{100 * noise:.1f} %" if len(native) > 1 else "")
    others = [by_allocator.get(name) for name in allocators[1:]]
    row += [f"{step_ratio(runs, native):.3f}" if runs else "" for runs in others]
    row.append(f"{median(native, first):.2f}")
    row += [f"{median(r, first) / median(native, first):.3f}" if r else "" for r in others]
    return row


def does_serve(workload):
    return workload.startswith("llama-1b-")


def tokens(workload, by_allocator, allocators):
    """Tokens a second of native's, how much its runs differ, and the others' divided by that."""

    def rate(run):
        return sum(run["units"][2:]) / sum(run["seconds"][2:])

    native = by_allocator["native"]
    middle = median(native, rate)
    row = [workload, f"{middle:.0f}", f"{100 * spread(native, rate) / middle:.1f} %"]
    for name in allocators[1:]:
        runs = by_allocator.get(name)
        row.append(f"{median(runs, rate) / middle:.3f}" if runs else "")
    return row


def losses(workload, by_allocator, allocators):
    def last(run):
        return run["losses"][-1]

    native = by_allocator["native"]
    row = [workload, f"{median(native, last):.5f}", f"{1e5 * spread(native, last):.0f}"]
    for allocator in allocators[1:]:
        runs = by_allocator.get(allocator, [])
        distances = [abs(last(run) - median(native, last)) for run in runs]
        row.append(f"{1e5 * max(distances):.0f}" if runs else "")
    return row


def compare(document):
    groups = {}
    for run in document["runs"]:
        assert not run["error"], run["error"]
        groups.setdefault(run["workload"], {}).setdefault(run["allocator"], []).append(run)
    used = {run["allocator"] for run in document["runs"]} - {"native"}
    allocators = ["native", *(name for name in NAMES if name in used), *sorted(used - {*NAMES})]
    names = [NAMES.get(name, name) for name in allocators]
    head = ["workload", "live", *names]
    yield from table(head, [memory(w, by, allocators) for w, by in groups.items()])
    groups = {w: by for w, by in groups.items() if "native" in by}  # it may have run out of memory
    head = ["workload", "native ms a step", "its noise", *names[1:], "native's first s", *names[1:]]
    yield from table(head, [times(w, by, allocators) for w, by in groups.items()])
    head = ["workload", "native's final loss", "its spread", *names[1:]]
    rows = [losses(w, by, allocators) for w, by in groups.items() if not does_serve(w)]
    if rows:
        yield from table(head, rows)
    head = ["workload", "native's tokens a second", "its spread", *names[1:]]
    ends = ("-graphs", "-compile")
    rows = [tokens(w, by, allocators) for w, by in groups.items() if w.endswith(ends)]
    if rows:
        yield from table(head, rows)


def several_streams(document):
    """Memory of the programs of several streams, by what torch counts as active in native's run:
    with what recorded streams still use. The worst run of each allocator."""
    groups = {}
    for run in document["runs"]:
        groups.setdefault(run["workload"], {}).setdefault(run["allocator"], []).append(run)
    used = {run["allocator"] for run in document["runs"]}
    allocators = [name for name in NAMES if name in used]
    rows = []
    for workload, by in groups.items():
        active = max(run["peak_live_bytes"] for run in by["native"])
        rows.append([workload, f"{active / GIB:.2f}"])
        for name in allocators:
            held = max((run["peak_reserved_bytes"] for run in by.get(name, [])), default=0)
            rows[-1].append(f"{held / GIB:.2f} ({active / held:.3f})" if held else "")
    yield from table(["workload", "used", *(NAMES[name] for name in allocators)], rows)


STUDENT = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}  # 95 %, two sides


def paired(document, base="native", warm=3):
    """The time of a lake's steps behind the first three, divided by that of the base's run of the
    same repeat: the mean over at least three repeats, and the ends of its 95 % interval."""
    seconds = {
        (run["workload"], run["allocator"], run.get("repeat")): sum(run["seconds"][warm:])
        for run in document["runs"]
    }
    groups = {}
    for (workload, allocator, repeat), value in seconds.items():
        same = seconds.get((workload, base, repeat))
        if allocator.startswith("gmlake") and allocator != base and same and value:
            groups.setdefault((workload, allocator), []).append(value / same)
    rows = []
    for (workload, allocator), ratios in groups.items():
        if len(ratios) - 1 not in STUDENT:
            continue
        mean, n = statistics.mean(ratios), len(ratios)
        far = STUDENT[n - 1] * statistics.stdev(ratios) / n**0.5
        cells = (f"{value:.3f}" for value in (mean, mean - far, mean + far))
        rows.append([workload, NAMES[allocator], *cells])
    if rows:
        yield from table(["workload", "allocator", f"time by {NAMES[base]}'s", "from", "to"], rows)


def first_steps(document):
    """Of runs of one step: seconds of native's first step, and the others' by it; the same with
    what came before, as a profile's memory is created then. Medians."""

    def first(run):
        return run["seconds"][0]

    def both(run):
        return run["before_seconds"] + run["seconds"][0]

    groups = {}
    for run in document["runs"]:
        groups.setdefault(run["workload"], {}).setdefault(run["allocator"], []).append(run)
    used = {run["allocator"] for run in document["runs"]}
    names = [name for name in NAMES if name in used]
    rows = []
    for workload, by in groups.items():
        rows.append([workload])
        for value in (first, both):
            native = median(by["native"], value)
            rows[-1].append(f"{native:.2f}")
            rows[-1] += [f"{median(by[name], value) / native:.3f}" for name in names[1:]]
    labels = [NAMES[name] for name in names[1:]]
    yield from table(["workload", "native's first s", *labels, "with before", *labels], rows)


def largest(document):
    """Of each workload and allocator the largest batch that ran, what it held, and the mean of the
    steps but the first where runs came one after the other."""
    limit = max(run["limit_bytes"] for run in document["runs"])
    rows = {}
    for run in document["runs"]:
        row = rows.setdefault(run["workload"], {})
        if not run["limit_bytes"]:
            row["above"] = f"batch {run['batch']} has {run['peak_live_bytes'] / GIB:.2f} live"
        elif not run["error"]:
            row.setdefault(run["allocator"], []).append(run)
    allocators = [name for name in NAMES if name in {run["allocator"] for run in document["runs"]}]
    body = []
    for workload, row in rows.items():
        body.append([workload])
        for name in allocators:
            batch = max(run["batch"] for run in row[name])
            best = [run for run in row[name] if run["batch"] == batch]
            held = f"{best[0]['peak_live_bytes'] / GIB:.2f} of "
            held += f"{best[0]['peak_reserved_bytes'] / GIB:.2f}"
            alone = [run["seconds"][1:] for run in best if "repeat" in run]
            took = f"; {statistics.mean(sum(alone, [])):.2f} s a step" if alone else ""
            body[-1].append(f"{batch} ({held}{took})")
        body[-1].append(row["above"])
    head = ["workload", *(NAMES[name] for name in allocators), f"limit {limit / GIB:.2f}"]
    yield from table(head, body)


def names():
    """The traces' names in words."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "names.tsv")
    with open(path, encoding="utf-8") as file:
        return dict(line.rstrip("\n").split("\t") for line in file)


COLOURS = {  # of bench/style.gp
    "native": "native",
    "expandable": "expandable",
    "async": "async",
    "gmlake": "lake",
}


def plot(documents, path):
    """Bars for each program: what each allocator holds at its peak, by what is live."""
    runs = [run for document in documents for run in document["runs"]]
    workloads = list(dict.fromkeys(run["workload"] for run in runs))
    words, bars, ticks, y = names(), [], [], 0.0
    for workload in workloads:
        top = y
        for name in COLOURS:
            found = [r for r in runs if r["workload"] == workload and r["allocator"] == name]
            if found:
                bars.append((1 / min(map(utilization, found)), y, COLOURS[name]))
                y += 1
        ticks.append(f'"{words.get(workload, workload)}" {(top + y - 1) / 2}')
        y += 1.4
    yield "$data << END"
    for value, at, colour in bars:
        yield f"{value:.4f} {at} {colour}"
    yield "END"
    heads = [("native", "torch native"), ("expandable", "expandable segments")]
    heads += [("async", "cudaMallocAsync"), ("lake", "the lake")]
    yield f"""load "bench/style.gp"
set terminal pngcairo size 1400,1240 noenhanced font "DejaVu Sans,17" background "#ffffff"
set output "{path}"
set lmargin 46
set tmargin 5
set rmargin 8
set logscale x
set xrange [1:2.6]
set yrange [{y - 0.4}:-1.2]
set ytics ({", ".join(ticks)}) scale 0
set xtics ("all live" 1, "1.2 x" 1.2, "1.4 x" 1.4, "1.6 x" 1.6, "2 x" 2, "2.4 x" 2.4)
set grid noytics xtics
set label 1 "Memory held at the peak, by what is live: shorter is better" at screen .02, .97"""
    for i, (colour, text) in enumerate(heads):
        at = (0.355, 0.5, 0.7, 0.89)[i]
        yield f'set label {i + 2} "{text}" at screen {at}, .93 textcolor rgb {colour}'
    draws = [
        f"$data using (1):(strcol(3) eq '{c}' ? $2 : NaN):(1):1:($2 - .44):($2 + .44) "
        f"with boxxyerror fc rgb {c}"
        for c in COLOURS.values()
    ]
    draws.append("$data using 1:2:(sprintf('%.2f', $1)) with labels left offset .6,0 font ',13'")
    yield "plot " + ", \\\n  ".join(draws)


def main():
    arguments = sys.argv[1:]
    path = None
    if arguments[:1] == ["--plot"]:
        path, arguments = arguments[1], arguments[2:]
    documents = [json.load(open(name)) for name in arguments]
    if path:
        print("\n".join(plot(documents, path)))
        return
    for document in documents:
        kind = compare
        if any("limit_bytes" in run for run in document["runs"]):
            kind = largest
        elif all(len(run["seconds"]) == 1 for run in document["runs"]):
            kind = first_steps
        elif any(run["allocator"].endswith("-record") for run in document["runs"]):
            kind = several_streams
        lines = [*kind(document)]
        if kind not in (largest, first_steps):
            lines += [*paired(document), *paired(document, "gmlake")]
        print("\n".join(lines))


if __name__ == "__main__":
    main()
