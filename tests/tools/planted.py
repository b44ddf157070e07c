"""Would the tests notice what a tired person might do? Plants the defects of planted.txt in
gmlake.h, one at a time, and runs the test programs until one fails.

    python3 -B tests/tools/planted.py [--jobs 2] [--dir build/planted] [--all | --with PROGRAM,...]
                                [--list] [NAME...]

The programs that an entry names run first, then those of ORDER, with --all every other one too;
with --with those alone that are named there. A program that fails, crashes or runs into its limit
kills the defect. The last line counts; the exit status is 0 if nothing survived that was not to. An
entry whose text does not stand exactly once in the function that it names is an error: the header
has changed, the entry has to follow.
"""
import argparse
import concurrent.futures
import os
import queue
import re
import sys
import time

import mutate
from progress import Progress

HEADER = "gmlake.h"
TABLE = os.path.join(os.path.dirname(__file__), "planted.txt")
ORDER = ("test_random test_rows test_faults test_streams test_buffers test_lake test_bestfit "
         "test_meanwhile test_scarce test_locks test_policy test_observer "
         "test_invariants test_cuda test_threads test_worlds").split()
LIMIT_SECONDS = 300


class Entry:
    """A defect: what becomes of which text, in which function."""

    FORM = re.compile(r"(\w+) \((\w+)(?:, ([^)]*))?\): (.*?)(?:; equal: (.*))?")

    def __init__(self, head, body):
        found = self.FORM.fullmatch(" ".join(head.split()))
        edit = re.fullmatch(r"  - (.*?)(?:\n  \+ (.*))?|  (.*?) =>(.*)", body.rstrip(), re.S)
        if not found or not edit:
            sys.exit(f"{TABLE}: not in the form that its head tells: {head}{body}")
        self.name, self.function, first, self.why, self.equal = found.groups()
        self.first = (first or "").split()
        self.old = (edit.group(1) or edit.group(3)).split()
        self.new = " ".join((edit.group(2) or edit.group(4) or "").split())

    def planted(self, header):
        """The header with it; spaces and line ends do not count."""
        body = re.compile(rf"^(?!\s|#)[^;{{}}]*?\b{self.function}\([^;{{}}]*?\)\s*{{.*?^}}",
                          re.M | re.S)
        pattern = re.compile(r"\s*".join(map(re.escape, self.old)))
        places = [(found.start() + match.start(), found.start() + match.end())
                  for found in body.finditer(header) for match in pattern.finditer(found.group())]
        if len(places) != 1:
            sys.exit(f"{TABLE}: {self.name}: its text stands {len(places)} times in "
                     f"{self.function}")
        start, end = places[0]
        return header[:start] + self.new + header[end:]


def entries():
    with open(TABLE) as stream:
        rows = stream.read().split("\n\n", 1)[1]
    form = re.compile(r"^(\w.*\n(?:    .*\n)*)((?: .*\n)+)", re.M)
    return [Entry(*found) for found in form.findall(rows)]


def order_of(entry, programs, options):
    if options.programs:
        return options.programs.split(",")
    order = list(dict.fromkeys(entry.first + ORDER))
    return order + [name for name in programs if options.all and name not in order]


def killer_of(tree, names):
    """The first program that fails in the tree, and how; None: none does."""
    for name in names:
        told = tree.make(name)
        if told:
            raise RuntimeError(f"{name} cannot be built:\n{told}")
        verdict = tree.verdict_of(name, LIMIT_SECONDS)
        if verdict:
            return f"{name}: {verdict}"
    return None


def tried(entry, trees, header, options, shown):
    """(whether it could be tried, its killer)"""
    tree, start = trees.get(), time.monotonic()
    tree.write(HEADER, entry.planted(header))
    try:
        killer = killer_of(tree, order_of(entry, tree.programs, options))
    except RuntimeError as error:
        print(f"{entry.name}: {error}", flush=True)
        return False, None
    finally:
        tree.write(HEADER, header)
        trees.put(tree)
    told = f"killed by {killer}" if killer else "survived"
    if not killer and entry.equal:
        told += f", as it must: {entry.equal}"
    print(f"{entry.name}: {told} ({time.monotonic() - start:.0f} s)", flush=True)
    shown.step(entry.name)
    return True, killer


def parse():
    parser = argparse.ArgumentParser(description="Plants defects by hand and runs the tests.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dir", default="build/planted")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--with", dest="programs", metavar="PROGRAM,...")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def main():
    options = parse()
    table = entries()
    with open(HEADER) as stream:
        header = stream.read()
    for entry in table:
        entry.planted(header)
    if options.list:
        for entry in table:
            print(f"{entry.name} ({entry.function}): {entry.why}")
        return 0
    unknown = set(options.names) - {e.name for e in table}
    if unknown:
        sys.exit(f"no such defect: {', '.join(sorted(unknown))}")
    chosen = [e for e in table if not options.names or e.name in options.names]
    shown = Progress(len(chosen))
    trees = queue.Queue()
    for i in range(options.jobs):
        trees.put(mutate.Tree(f"{options.dir}/worker-{i}"))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda e: tried(e, trees, header, options, shown), chosen))
    missing = sum(1 for is_tried, _ in results if not is_tried)
    if missing:
        print(f"{missing} could not be tried")
        return 2
    survived = [e for e, (_, killer) in zip(chosen, results) if not killer]
    wrong = [e.name for e in survived if not e.equal]
    print(f"{len(results) - len(survived)} of {len(results)} killed, "
          f"{len(survived) - len(wrong)} change nothing, {len(wrong)} survived"
          + (": " + ", ".join(wrong) if wrong else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
