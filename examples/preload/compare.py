#!/usr/bin/env python3
"""Runs a program without the lake and with it, and says whether the results are the same.

  compare.py [--library FILE] -- PROGRAM ARGUMENT...

The results are the exit status, the standard output and, where an argument contains {junit}, the
outcome of every test in the JUnit file that the program writes there (pytest --junitxml={junit}).
Where the outputs differ the program runs without the lake once more: it may differ from itself.
The peak of the GPU's memory is asked of nvidia-smi, for all programs together."""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree


def memory_mib():
    try:
        out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used",
                              "--format=csv,noheader,nounits"],
                             capture_output=True, text=True).stdout
    except OSError:
        return 0
    return sum(int(line) for line in out.split() if line.isdigit())


def outcomes(path):
    """The tests of a JUnit file, each with what became of it."""
    found = {}
    if os.path.exists(path):
        for case in xml.etree.ElementTree.parse(path).iter("testcase"):
            kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
            found[case.get("classname"), case.get("name")] = ",".join(sorted(kinds)) or "passed"
    return found


def run(command, variables, compares_output):
    """Exit status, standard output, outcomes, and the most memory in MiB."""
    peak, done = [memory_mib()], threading.Event()

    def watch():
        while not done.wait(0.1):
            peak[0] = max(peak[0], memory_mib())

    with tempfile.TemporaryDirectory() as folder:
        junit = os.path.join(folder, "junit.xml")
        watcher = threading.Thread(target=watch)
        watcher.start()
        got = subprocess.run([a.replace("{junit}", junit) for a in command],
                             env={**os.environ, **variables},
                             stdout=subprocess.PIPE if compares_output else None)
        done.set()
        watcher.join()
        return got.returncode, got.stdout, outcomes(junit), peak[0]


def first_difference(without, lake):
    """The first line that is not the same, its number from 1 on, or the one behind the last."""
    ours, theirs = (out.decode(errors="replace").splitlines() for out in (without, lake))
    for i, pair in enumerate(zip(ours, theirs)):
        if pair[0] != pair[1]:
            return (i + 1, *pair)
    shorter = min(len(ours), len(theirs))
    return shorter + 1, *("".join(lines[shorter:shorter + 1]) for lines in (ours, theirs))


def main():
    build = os.path.join(os.path.dirname(__file__), "..", "..", "build")
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--library", default=os.path.join(build, "libgmlake_preload.so"))
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    if not os.path.exists(given.library):
        sys.exit("%s is not there: run `make preload`" % given.library)
    tests = any("{junit}" in a for a in given.command)
    without = run(given.command, {}, not tests)
    lake = run(given.command, {"LD_PRELOAD": os.path.abspath(given.library),
                               "GMLAKE_PRELOAD_REPORT": "1"}, not tests)
    differences = []
    if without[0] != lake[0]:
        differences.append("exit status %d without, %d with" % (without[0], lake[0]))
    if without[1] != lake[1]:
        line, ours, theirs = first_difference(without[1], lake[1])
        differences.append("the outputs differ, first in line %d: %r without, %r with" % (
            line, ours, theirs))
        if run(given.command, {}, True)[1] != without[1]:
            differences.append("two runs without the library differ, too")
    for test in sorted(set(without[2]) | set(lake[2])):
        if without[2].get(test) != lake[2].get(test):
            differences.append("%s: %s without, %s with" % (
                ".".join(test), without[2].get(test), lake[2].get(test)))
    if tests:
        print("%d tests, %d passed without" % (
            len(without[2]), list(without[2].values()).count("passed")))
    print("peak memory: %d MiB without, %d MiB with" % (without[3], lake[3]))
    print("\n".join(differences) or "the same")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
