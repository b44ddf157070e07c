"""Runs cases twice, in processes of their own, with a library's own allocator and with the lakes.
What a case returns has to be equal in both; what it notes is shown, not compared. A result of both
that begins with LEFT_OUT says that the machine lacks the case's parts. For torch_gpu.py and
cupy_gpu.py."""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import traceback

LEFT_OUT = "left out: "
WHOSE = "native", "lake"


def run_here(run, case, allocator):
    note = {}
    try:
        result = run(case, allocator, note)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    print("\nRESULT " + json.dumps({"result": result, "note": note}))


def start(name, allocator, seconds):
    """Returns the result, the notes, and what went wrong."""
    command = [sys.executable, os.path.abspath(sys.argv[0]), "--as", allocator, name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        tail = (error.stderr or b"").decode(errors="replace")[-1500:]
        return None, {}, f"no end after {seconds} s\n{tail}"
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        return None, {}, f"exit status {done.returncode}\n{done.stderr[-3500:]}"
    answer = json.loads(lines[-1][7:])
    return answer["result"], answer["note"], ""


def compare(name, answers):
    """Says what became of a case: equal, left out or DIFFERENT."""
    (native, _, native_error), (lake, _, lake_error) = answers.values()
    verdict = "DIFFERENT"
    if not native_error and not lake_error and native == lake:
        is_left_out = isinstance(lake, str) and lake.startswith(LEFT_OUT)
        verdict = "left out" if is_left_out else "equal"
    print(f"{verdict:10} {name}", flush=True)
    for who, (value, note, error) in answers.items():
        if note:
            print(f"    {who}: {json.dumps(note)}")
        if error:
            print(f"    {who}: {error}")
        elif verdict != "equal":
            print(f"    {who}: {json.dumps(value)[:3000]}")
    return verdict


def main(description, cases, run, jobs):
    """`run` takes a case, native or lake, and where to put notes; it returns what the case does.
    Returns whether anything differs."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--list", action="store_true", help="say which cases there are")
    parser.add_argument("--jobs", type=int, default=jobs)
    parser.add_argument("--seconds", type=int, default=120, help="limit of one process")
    parser.add_argument("--as", dest="allocator", choices=WHOSE)
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    names, verdicts = options.cases or list(cases), {}
    if options.list:
        print(*names, sep="\n")
        return False
    if options.allocator:
        return run_here(run, cases[names[0]], options.allocator)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = {
            name: {who: pool.submit(start, name, who, options.seconds) for who in WHOSE}
            for name in names
        }
        for name in names:
            answers = {who: answer.result() for who, answer in runs[name].items()}
            verdicts.setdefault(compare(name, answers), []).append(name)
    for verdict in ("left out", "equal", "DIFFERENT"):
        found = verdicts.get(verdict, [])
        print(f"{len(found)} {verdict}: {' '.join(found)}")
    return "DIFFERENT" in verdicts
