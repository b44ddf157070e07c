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
import re
import shutil
import subprocess
import sys
import time

import coverage
import mutate
from progress import Progress

HEADER = "gmlake.h"
TABLE = os.path.join(os.path.dirname(__file__), "planted.txt")
ORDER = ("test_random test_rows test_faults test_streams test_buffers test_lake test_bestfit "
         "test_meanwhile test_scarce test_locks test_policy test_observer "
         "test_invariants test_cuda test_threads test_worlds").split()
OPTIMIZED = {"test_random", "test_faults", "test_worlds"}
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


class Trial:
    """One defect in a directory of its own, before which the compiler looks for headers."""

    def __init__(self, entry, programs, directory, options):
        self.entry, self.programs = entry, programs
        self.directory = os.path.join(directory, entry.name)
        order = list(dict.fromkeys(entry.first + ORDER))
        self.order = order + [n for n in programs if options.all and n not in order]
        if options.programs:
            self.order = options.programs.split(",")

    def command(self, name, output):
        if name.endswith(".tsan"):
            program, flags = self.programs[name[:-5]], ["-O1", "-g", "-fsanitize=thread"]
        else:
            program, flags = self.programs[name], ["-O1" if name in OPTIMIZED else "-O0"]
        return program, program.compile(flags + [f"-I{self.directory}"], output)

    def verdict_of(self, name):
        output = os.path.join(self.directory, "test")
        program, command = self.command(name, output)
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise RuntimeError(f"{name} cannot be built:\n{done.stderr}")
        run = mutate.Watched([output, *program.command[1:]], program.run_environment(), ".",
                             LIMIT_SECONDS, name.endswith(".tsan"))
        return run.verdict()

    def killer(self):
        for name in self.order:
            verdict = self.verdict_of(name)
            if verdict:
                return f"{name}: {verdict}"
        return None

    def run(self, header):
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)
        with open(os.path.join(self.directory, HEADER), "w") as stream:
            stream.write(self.entry.planted(header))
        try:
            return self.killer()
        finally:
            shutil.rmtree(self.directory)


def tried(trial, header, shown):
    """(whether it could be tried, its killer)"""
    entry, start = trial.entry, time.monotonic()
    try:
        killer = trial.run(header)
    except RuntimeError as error:
        print(f"{entry.name}: {error}", flush=True)
        return False, None
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
    programs = {p.name: p for p in coverage.programs()}
    chosen = [e for e in table if not options.names or e.name in options.names]
    shown = Progress(len(chosen))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda e: tried(Trial(e, programs, options.dir, options), header,
                                                shown), chosen))
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
