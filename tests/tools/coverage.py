"""What of the headers the tests reach: lines and branches, all programs together, by gcov.

    python3 -B tests/tools/coverage.py [--dir build/coverage] [PROGRAM...]

Prints lines % and branches % of each header and writes what nothing reached to DIR/HEADER.txt.
Branches of assertions are left out, and so is what GMLK_NEVER asserts not to happen. What has run
with the same sources counts as it ran, so that a stopped run goes on: remove DIR to run all
again. With PROGRAMs named only those run; the others count as they ran last. The programs are those
of tests/, the fuzz targets on their corpus, and the test of the GPU over the driver without a
device.
"""
import argparse
import bisect
import glob
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

from progress import Progress

HEADERS = ("gmlake.h", "gmlake_bfc.h", "gmlake_offload.h", "gmlake_turnip.h")
INCLUDES = ["-I.", "-Ibench", "-Itests", "-Itests/cuda_stub", '-DBUILD="build"']
LIBS = ["-lcmocka", "-lz", "-lpthread", "-ldl", "-lm"]
FAKE = {"LD_LIBRARY_PATH": "build/fake", "FAKE_CUDA_DEVICES": "2", "FAKE_CUDA_GIB": "1",
        "FAKE_CUDA_SEED": "1"}
# Children that end without atexit write what they reached too; assertions have no branch, and what
# they rule out is not compiled.
PRELUDE = """#include <stdlib.h>
#include <unistd.h>
#if defined(__cplusplus)
extern "C"
#endif
void __gcov_dump(void);
static inline void exit_counted(int status) {
  __gcov_dump();
  _exit(status);
}
#define _exit(status) exit_counted(status)
#define NDEBUG /* no test is to wait for an assertion */
#define always_inline noinline /* one copy of a function, not one for each constant argument */
#define GMLAKE_ASSERT(condition) ((void)sizeof(condition))
#define GMLAKE_BFC_ASSERT(condition) ((void)sizeof(condition))
#define GMLK_NEVER(condition) (sizeof(condition) == 0)
"""


class Program:
    """A test program: how it is built, at build/NAME, and run, from the root of a tree."""

    def __init__(self, name, sources, arguments=(), environment=None):
        self.name = name
        self.path = "build/" + name
        self.sources = sources
        self.command = [self.path, *arguments]
        self.environment = environment or {}

    def compile(self, flags, output=None):
        return [os.environ.get("CC", "cc"), "-std=c99", "-w", *flags, *INCLUDES, *self.sources,
                "-o", output or self.path, *LIBS]

    def run_environment(self):
        return {**os.environ, **self.environment}


def includes(source):
    """The names of the headers that the source includes, those that others include too."""
    told = subprocess.run(["cc", "-MM", *INCLUDES, source], check=True, stdout=subprocess.PIPE,
                          text=True).stdout
    return {os.path.basename(path) for path in told.split()}


def programs():
    """Those that have one of the headers."""
    found = [Program(os.path.basename(s)[:-2], [s]) for s in sorted(glob.glob("tests/*/test_*.c"))
             if not includes(s).isdisjoint(HEADERS)]
    for source in sorted(glob.glob("tests/fuzz/fuzz_*.c")):
        name = os.path.basename(source)[:-2]
        corpus = sorted(glob.glob(f"tests/fuzz/corpus/{name}/*"))
        found.append(Program(name, [source, "tests/fuzz/replay_main.c"], corpus))
    found.append(Program("gpu_test", ["tests/gpu/gpu_test.c"], [], FAKE))
    found.append(Program("gpu_play", ["tests/gpu/gpu_play.c"], [], FAKE))
    return found


def gcov(directory):
    """{header: [gcov's lines]} of the program that ran with its counts in that directory."""
    reached = {h: [] for h in HEADERS}
    for notes in glob.glob(directory + "/*.gcno"):
        done = subprocess.run(["gcov", "-b", "-j", os.path.basename(notes)], cwd=directory,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(f"gcov failed on {notes}")
    for path in glob.glob(directory + "/*.gcov.json.gz"):
        with gzip.open(path) as stream:
            for part in json.load(stream)["files"]:
                header = os.path.basename(part["file"])
                if header in reached:
                    reached[header] += part["lines"]
    return reached


def measure(program, directory, limit=600):
    """Builds the program with counters, runs it, returns what gcov says, and its exit status."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    prelude = directory + "/prelude.h"
    with open(prelude, "w") as stream:
        stream.write(PRELUDE)
    binary = os.path.abspath(directory) + "/" + program.name
    subprocess.run(program.compile(["-O0", "-D_GNU_SOURCE", "--coverage", "-fprofile-update=atomic",
                                    "-include", prelude], output=binary), check=True)
    command = ["timeout", "-k", "5", str(limit), binary, *program.command[1:]]
    done = subprocess.run(command, env=program.run_environment(), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
    return gcov(directory), done.returncode


class Done:
    """Which programs have run with these sources: each leaves a file in its directory."""

    def __init__(self):
        total = hashlib.sha256(PRELUDE.encode())
        patterns = ("*.h", "bench/*.h", "bench/*.c", "examples/*.h", "tests/**/*.[ch]")
        for path in sorted(p for g in patterns for p in glob.glob(g, recursive=True)):
            with open(path, "rb") as stream:
                total.update(path.encode() + b"\0" + stream.read())
        self.stamp = total.hexdigest()

    def has(self, directory):
        try:
            with open(directory + "/done") as stream:
                return stream.read() == self.stamp
        except FileNotFoundError:
            return False

    def note(self, directory):
        with open(directory + "/done", "w") as stream:
            stream.write(self.stamp)


class Counts:
    """Lines of one header: how often each ran, and each of its branches."""

    def __init__(self):
        self.lines = {}
        self.branches = {}  # line: {number of branches: [count]}

    def add(self, lines):
        seen = {}
        for line in lines:  # several where a line has code of several functions
            number = line["line_number"]
            self.lines[number] = self.lines.get(number, 0) + line["count"]
            at = seen.setdefault(number, [])
            at += [b["count"] for b in line["branches"] if not b["throw"]]
        for number, counts in seen.items():
            if counts:
                # Programs with hooks of their own may have other branches: told by their number.
                sums = self.branches.setdefault(number, {}).setdefault(len(counts),
                                                                       [0] * len(counts))
                for i, count in enumerate(counts):
                    sums[i] += count

    def of_branches(self, number):
        """The best of the sets of branches of that line."""
        sets = self.branches.get(number, {}).values()
        return max(sets, key=lambda s: sum(1 for c in s if c) / len(s)) if sets else []


def assertion_lines(text):
    """Numbers of the lines that assertions stand on."""
    starts = [0] + [m.end() for m in re.finditer("\n", text)]
    found = set()
    for match in re.finditer(r"\bGMLAKE(_BFC)?_ASSERT\(", text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        first, last = (bisect.bisect_right(starts, at) for at in (match.start(), end))
        found.update(range(first, last + 1))
    return found


def report(header, counts, directory):
    with open(header) as stream:
        text = stream.read()
    source = text.split("\n")
    left_out = assertion_lines(text)
    missed = []
    taken = total = 0
    for number in sorted(counts.lines):
        branches = [] if number in left_out else counts.of_branches(number)
        total += len(branches)
        taken += sum(1 for c in branches if c)
        if not counts.lines[number]:
            missed.append(f"{header}:{number}: never | {source[number - 1].strip()}")
        elif any(not c for c in branches):
            which = " ".join("-" if not c else "+" for c in branches)
            missed.append(f"{header}:{number}: {which} | {source[number - 1].strip()}")
    ran = sum(1 for c in counts.lines.values() if c)
    with open(f"{directory}/{header}.txt", "w") as stream:
        stream.write("".join(line + "\n" for line in missed))
    lines = len(counts.lines)
    if lines:
        never = len(re.findall(r"\bGMLK_NEVER\((?!condition)", text))
        print(f"{header}: lines {100 * ran / lines:.2f} % of {lines}, branches "
              f"{100 * taken / max(total, 1):.2f} % of {total}, {never} more are ruled out; "
              f"the rest: {directory}/{header}.txt")


def main():
    parser = argparse.ArgumentParser(description="Coverage of the headers by the tests.")
    parser.add_argument("--dir", default="build/coverage")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    counts = {h: Counts() for h in HEADERS}
    failed = 0
    shown, done = Progress(len(list(programs()))), Done()
    for program in programs():
        directory = f"{options.dir}/{program.name}"
        if program.name not in options.programs if options.programs else done.has(directory):
            reached, status = gcov(directory), 0
        else:
            reached, status = measure(program, directory)
            if status:
                print(f"{program.name}: exit status {status}")
                failed = 1
            else:
                done.note(directory)
        shown.step(program.name)
        for header in HEADERS:
            counts[header].add(reached[header])
    for header in HEADERS:
        report(header, counts[header], options.dir)
    return failed


if __name__ == "__main__":
    sys.exit(main())
