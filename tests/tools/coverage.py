"""What of the headers the tests reach: lines and branches, all programs together, by gcov.

    python3 -B tests/tools/coverage.py [--dir build/coverage] [--jobs 2] [PROGRAM...]

Prints lines % and branches % of each header and writes what nothing reached to DIR/HEADER.txt.
Branches of assertions are left out, and so is what GMLK_NEVER asserts not to happen. The programs
are those of mutate.py, or those that are named.
"""
import argparse
import bisect
import concurrent.futures
import glob
import gzip
import json
import os
import re
import subprocess
import sys

import mutate
from progress import Progress

# Children that end without atexit write what they reached too; assertions have no branch, and what
# they rule out is not compiled.
PRELUDE = """#include <stdlib.h>
#include <unistd.h>
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
FLAGS = "-D_GNU_SOURCE --coverage -fprofile-update=atomic -include build/prelude.h"


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


def counts_of(tree):
    """{header: its counts} of all that has run in the tree."""
    notes = [os.path.relpath(path, tree.root)
             for path in glob.glob(f"{tree.root}/build/**/*.gcno", recursive=True)]
    subprocess.run(["gcov", "-b", "-j", "-p", *notes], cwd=tree.root, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    counts = {header: Counts() for header in mutate.HEADERS}
    for path in glob.glob(f"{tree.root}/*.gcov.json.gz"):
        with gzip.open(path) as stream:
            for part in json.load(stream)["files"]:
                if part["file"] in counts:
                    counts[part["file"]].add(part["lines"])
    return counts


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
    source, left_out, missed = text.split("\n"), assertion_lines(text), []
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
    with open(f"{directory}/{header}.txt", "w") as stream:
        stream.write("".join(line + "\n" for line in missed))
    ran, lines = sum(1 for c in counts.lines.values() if c), max(len(counts.lines), 1)
    never = len(re.findall(r"\bGMLK_NEVER\((?!condition)", text))
    print(f"{header}: lines {100 * ran / lines:.2f} % of {lines}, branches "
          f"{100 * taken / max(total, 1):.2f} % of {total}, {never} more are ruled out; "
          f"the rest: {directory}/{header}.txt")


def main():
    parser = argparse.ArgumentParser(description="Coverage of the headers by the tests.")
    parser.add_argument("--dir", default="build/coverage")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    tree = mutate.Tree(f"{options.dir}/tree")
    tree.environment.update(CC="gcc", CFLAGS=FLAGS)
    os.makedirs(f"{tree.root}/build")
    tree.write("build/prelude.h", PRELUDE)
    chosen = options.programs or list(tree.programs)
    shown = Progress(len(chosen))
    told = tree.make(*chosen)
    if told:
        sys.exit(told)

    def run(name):
        verdict = tree.verdict_of(name, 600)
        shown.step(name)
        return verdict and f"{name}: {verdict}"

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        failed = [verdict for verdict in pool.map(run, chosen) if verdict]
    print("".join(line + "\n" for line in failed), end="")
    counts = counts_of(tree)
    for header in mutate.HEADERS:
        report(header, counts[header], options.dir)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
