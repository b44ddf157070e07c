"""Says what the driver calls of lakes took in whole programs, from what run.py wrote.

    python3 bench/torch/run.py --out streams.json --streams --calls calls \\
        --allocators native,gmlake,gmlake-wait
    python3 bench/torch/calls.py streams.json calls

A row is a workload with a lake, all its runs together: driver milliseconds of a step after the
third, that by the step's time, calls a step, and then, over whole runs, the mean microseconds of
each kind of call. set_access is one call for all that lies side by side, so it is by mapping.
"""
import collections
import csv
import json
import os
import sys

KINDS = ("create", "map", "set_access", "unmap", "release", "event_record", "event_query")
WARM = 3  # steps that are left out


def calls_of(folder, run):
    """The first rank's, as (step, kind, count, us); the step is None before the first."""
    name = f"{run['workload']}.{run['allocator']}.{run['repeat']}.0.tsv"
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return []
    with open(path) as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [
        (int(row["step"].split()[-1]) if row["step"] else None, row["call"], int(row["count"]),
         float(row["us"]))
        for row in rows
    ]


def row(workload, allocator, runs, folder):
    count, us = collections.Counter(), collections.Counter()
    step_calls = step_us = step_seconds = steps = 0
    for run in runs:
        step_seconds += sum(run["seconds"][WARM:])
        steps += len(run["seconds"][WARM:])
        for step, kind, calls, took in calls_of(folder, run):
            count[kind] += calls
            us[kind] += took
            if step is not None and step >= WARM:
                step_calls += calls
                step_us += took
    if not count or not steps:
        return None
    count["set_access"] = count["map"]  # by mapping
    cells = [f"{us[kind] / count[kind]:.2f}" if count[kind] else "" for kind in KINDS]
    share = step_us / 1e6 / step_seconds
    return [workload, allocator, f"{step_us / 1e3 / steps:.2f}", f"{100 * share:.2f} %",
            f"{step_calls / steps:.0f}", *cells]


def main():
    result, folder = sys.argv[1:]
    with open(result) as file:
        runs = [run for run in json.load(file)["runs"] if not run["error"] and "repeat" in run]
    head = ["workload", "allocator", "ms a step", "of the step", "calls a step", *KINDS]
    print("| " + " | ".join(head) + " |")
    print("|---" * len(head) + "|")
    groups = collections.defaultdict(list)
    for run in runs:
        groups[run["workload"], run["allocator"]].append(run)
    for (workload, allocator), group in groups.items():
        cells = row(workload, allocator, group, folder)
        if cells:
            print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
