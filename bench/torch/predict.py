"""Compares what build/replay predicts from recordings with what happened while they were recorded.

    GMLAKE_TORCH_RECORD_SHARE=25 python3 bench/torch/run.py --out streams.json --streams \\
        --record traces --allocators gmlake-record,gmlake-wait-record
    make && python3 bench/torch/predict.py streams.json traces

A row is one recorded run: peak reserved GiB, driver calls and milliseconds of the lake, in life and
as replay says (predicted by life). The costs that replay models are those of one machine. Where the
recording tells what creating chunks took, the time is multiplied by that, divided by what is
modelled for it.
"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REPLAY = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "replay")
GIB = 2**30


def recording_of(run, folder):
    """The first rank's file, as run.py names it; None: there is none."""
    name = run["workload"] + (".wait" if "-wait" in run["allocator"] else "")
    name += f".{run['repeat']}" if run["repeat"] else ""
    paths = [os.path.join(folder, name + ".0.gmtrace" + end) for end in ("", ".gz")]
    return next((path for path in paths if os.path.exists(path)), None)


def predicted(path, order):
    command = [REPLAY, "--json", "--once", "--costs", "busy", "--streams-stay"]
    command += ["--cross-stream", order, path]
    return json.loads(subprocess.check_output(command, text=True))


def row(run, path):
    order = "wait" if "-wait" in run["allocator"] else "grow"
    said, stats = predicted(path, order), run["stats"]
    ms = said["driver_ms"] * said.get("machine_factor", 1)
    pairs = (
        (run["peak_reserved_bytes"] / GIB, said["peak_reserved_bytes"] / GIB, ".2f"),
        (stats["driver_call_count"], said["driver_calls"], "d"),
        (stats["driver_ns"] / 1e6, ms, ".1f"),
    )
    cells = [f"{life:{how}} {guess:{how}} ({guess / life:.3f})" for life, guess, how in pairs]
    return [run["workload"], order, *cells]


def main():
    result, folder = sys.argv[1:]
    head = ["workload", "order", "reserved GiB, replay", "calls, replay", "ms, replay"]
    print("| " + " | ".join(head) + " |")
    print("|---" * len(head) + "|")
    with open(result) as file:
        runs = json.load(file)["runs"]
    for run in runs:
        path = recording_of(run, folder) if run["allocator"].endswith("-record") else None
        if path and not run["error"]:
            print("| " + " | ".join(row(run, path)) + " |")


if __name__ == "__main__":
    main()
