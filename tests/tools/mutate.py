"""Would the tests notice? Plants small defects (mutants.py) in the headers, one at a time, and runs
the test programs, those first that most often notice for the time they take, until one fails.

    python3 -B tests/tools/mutate.py [--mutants 500] [--seed 1] [--jobs 2] [--dir build/mutate]
                               [--header NAME] [--section NAME,...] [--since COMMIT]
                               [--with PROGRAM,...] [--without PROGRAM,...] [--retry]

A seeded sample of all mutants, defects that a compiler cannot tell from the original left out.
Where a function locks or has atomics, test_threads runs under the thread sanitizer, too, as the
last one. A program that fails or crashes kills the mutant. So does one that hangs: one that twice
takes several times the processor time that it takes without a defect ("time"), or twice takes none
at all for a minute ("stands still"). How busy the machine is does not count. The log,
DIR/seed-N.tsv, has a line a mutant: what became of it, by which program, after how many seconds,
where, which kind, before, after. A sample that was interrupted goes on where it was; --retry runs
the survivors again, after tests were added. --since takes mutants only of lines that are not as
they were in a commit. --with runs those programs alone, --without all but those. The sources are
copied first, so that they may be edited meanwhile; headers that have changed need another DIR.
"""
import argparse
import collections
import concurrent.futures
import glob
import hashlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import mutants
from progress import Progress

HEADERS = ("gmlake.h", "gmlake_bfc.h", "gmlake_offload.h", "gmlake_turnip.h")
OUTPUT_MAX = 1 << 24
FIELDS = ("result", "killer", "seconds", "place", "section", "kind", "before", "after", "number")
SANITIZED, SANITIZED_SECONDS = "test_threads.tsan", 120
STILL_SECONDS = 60  # a program that takes no processor time for so long stands still
FAKE = {"LD_LIBRARY_PATH": "build/fake", "FAKE_CUDA_DEVICES": "2", "FAKE_CUDA_GIB": "1",
        "FAKE_CUDA_SEED": "1"}


def programs():
    """{name: what it is called with}: the tests, the targets on their corpus, those of a GPU over
    the driver without a device."""
    found = {os.path.basename(s)[:-2]: [] for s in sorted(glob.glob("tests/*/test_*.c"))}
    for source in sorted(glob.glob("tests/fuzz/fuzz_*.c")):
        name = os.path.basename(source)[:-2]
        found["fuzz/" + name] = sorted(glob.glob(f"tests/fuzz/corpus/{name}/*"))
    return {**found, "gpu_play": [], "gpu_test": []}


def session_ticks(session):
    """The processor time that the live processes of a session took, each with its children."""
    total = 0
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as stream:
                fields = stream.read().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            total += sum(int(field) for field in fields[11:15])
    return total


class Watched:
    """Runs a command in a session of its own: within limits of processor time, output and memory,
    and as long as it does not stand still. A sanitizer needs more address space than that, and is
    to stop at its first report."""

    def __init__(self, command, environment, cwd, cpu_seconds, is_sanitized=False):
        def limit():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
            if not is_sanitized:
                resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))

        if is_sanitized:
            environment = {**environment, "TSAN_OPTIONS": "halt_on_error=1"}
        self.failed_case = None
        self.stopped = None  # why, if it was stopped
        self.process = subprocess.Popen(command, env=environment, cwd=cwd, preexec_fn=limit,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True)
        reader = threading.Thread(target=self.read)
        reader.start()
        self.status = self.wait()
        self.end_session()
        reader.join()
        if self.status in (-signal.SIGXCPU, -signal.SIGKILL):
            self.stopped = self.stopped or "time"

    def wait(self):
        """The exit status; a program that stands still is ended."""
        ticks, since = None, 0
        while True:
            try:
                return self.process.wait(timeout=STILL_SECONDS / 12)
            except subprocess.TimeoutExpired:
                pass
            now = session_ticks(self.process.pid)
            if now != ticks:
                ticks, since = now, time.monotonic()
            elif time.monotonic() - since >= STILL_SECONDS:
                self.stopped = "stands still"
                self.end_session()

    def end_session(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def read(self):
        total = 0
        for line in self.process.stdout:
            total += len(line)
            match = re.search(rb"\[  FAILED  \] (\w+)$|^FAILED: (.*)", line.rstrip())
            if match and not self.failed_case:
                self.failed_case = (match.group(1) or match.group(2)).decode(errors="replace")
            if total > OUTPUT_MAX:
                self.stopped = "output"
                self.end_session()

    def verdict(self):
        """None: it succeeded; else how it failed."""
        if self.status == 0:
            return None
        if self.stopped:
            return self.stopped
        if self.failed_case:
            return self.failed_case.replace("\t", " ")
        return f"signal {-self.status}" if self.status < 0 else f"status {self.status}"


class Tree:
    """A copy of the sources. One defect at a time is planted there, make builds a program, and it
    is tried."""

    def __init__(self, directory):
        self.root = os.path.abspath(directory)
        self.programs = programs()
        shutil.rmtree(self.root, ignore_errors=True)
        known, own = shutil.ignore_patterns(".git", "build*"), os.path.dirname(self.root)
        shutil.copytree(".", self.root, ignore=lambda where, names: known(where, names) | {
            name for name in names if os.path.abspath(os.path.join(where, name)) == own})
        self.original = {}  # header: its object
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("MAKE", "MFLAGS"))}

    def make(self, *targets):
        """None: they are built; else why not."""
        done = subprocess.run([os.environ.get("MAKE", "make"), "-s", "FAST=-O0", "BUILD=build",
                               "WARNINGS=-w", *(f"build/{target}" for target in targets)],
                              cwd=self.root, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        return done.stderr or "make fails" if done.returncode else None

    def write(self, header, text):
        with open(f"{self.root}/{header}", "w") as stream:
            stream.write(text)

    def verdict_of(self, name, cpu_seconds):
        """How the program fails, or None; one that was stopped runs again with twice the limit."""
        arguments = self.programs.get(name, [])
        fake = FAKE if name.startswith("gpu_") else {}
        for limit in (cpu_seconds, 2 * cpu_seconds):
            run = Watched([f"build/{name}", *arguments], {**self.environment, **fake}, self.root,
                          limit, name.endswith(".tsan"))
            if not run.stopped:
                break
        return run.verdict()

    def object_of(self, header):
        target = header[:-2] + ".o"
        if self.make(target):
            return None
        with open(f"{self.root}/build/{target}", "rb") as stream:
            return stream.read()

    def compare(self, header):
        """What a compiler says of the header that is planted, or None: it is another program."""
        made = self.object_of(header)
        if made is None:
            return "invalid", "compiler"
        return ("equivalent", "compiler") if made == self.original[header] else None


class Suite:
    """The programs as they are without a defect: which have a header, how long they take."""

    def __init__(self, tree, chosen):
        self.seconds, self.of = {}, {header: [] for header in HEADERS}
        for name in chosen:
            told = tree.make(name)
            if told:
                sys.exit(f"{name} cannot be built: {told}")
            begun = resource.getrusage(resource.RUSAGE_CHILDREN)
            verdict = tree.verdict_of(name, 600)
            if verdict:
                sys.exit(f"{name} fails without a defect: {verdict}")
            took = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.seconds[name] = (took.ru_utime + took.ru_stime - begun.ru_utime - begun.ru_stime)
            with open(f"{tree.root}/build/{name}.d") as stream:
                names = set(re.findall(r"gmlake\w*\.h", stream.read()))
            for header in names & set(HEADERS):
                self.of[header].append(name)


class History:
    """How often each program killed, by section."""

    def __init__(self):
        self.tried, self.killed = collections.Counter(), collections.Counter()

    def note(self, section, program, is_killed):
        for key in ((section, program), program):
            self.tried[key] += 1
            self.killed[key] += is_killed

    def rate(self, section, program):
        overall = (self.killed[program] + 0.6) / (self.tried[program] + 2)
        key = (section, program)
        return (self.killed[key] + 2 * overall) / (self.tried[key] + 2)


def climb(tree, suite, history, mutant):
    """(result, killer) of what is planted in the tree."""
    def worth(name):
        return history.rate(mutant.section, name) / (2 + suite.seconds[name])

    is_compared, start = False, time.monotonic()
    for name in sorted(suite.of[mutant.header], key=worth, reverse=True):
        if not is_compared and time.monotonic() - start + suite.seconds[name] > 8:
            is_compared = True
            told = tree.compare(mutant.header)
            if told:
                return told
        if tree.make(name):
            return "invalid", "compiler"
        verdict = tree.verdict_of(name, int(5 + 5 * suite.seconds[name]))
        history.note(mutant.section, name, verdict is not None)
        if verdict:
            return "killed", f"{name}: {verdict}"
    if not is_compared:
        told = tree.compare(mutant.header)
        if told:
            return told
    if mutant.is_of_threads and "test_threads" in suite.of[mutant.header]:
        verdict = tree.make(SANITIZED) or tree.verdict_of(SANITIZED, SANITIZED_SECONDS)
        if verdict:
            return "killed", f"{SANITIZED}: {verdict}"
    return "survived", ""


class Sample:
    """Works through the mutants in the order of the seed, until enough have been tried; notes each
    in the log. The last line of a mutant counts there."""

    def __init__(self, options, order, headers):
        self.options, self.order, self.headers = options, order, headers
        self.path = f"{options.dir}/seed-{options.seed}.tsv"
        self.lock, self.records, self.at, self.valid = threading.Lock(), {}, 0, 0
        self.shown = Progress(options.mutants)
        stamp = hashlib.sha256("".join(h.text for h in headers.values()).encode()).hexdigest()[:16]
        if not os.path.exists(self.path):
            with open(self.path, "w") as stream:
                stream.write(f"# headers {stamp}\n")
        with open(self.path) as stream:
            lines = stream.read().split("\n")
        if lines[0] != f"# headers {stamp}":
            sys.exit(f"{self.path} is of other mutants: name another --dir, or remove it")
        for line in lines[1:-1]:
            record = dict(zip(FIELDS, line.split("\t")))
            self.records[record["place"].split(":")[0], int(record["number"])] = record

    def next(self):
        """The next mutant that is not in the log, or None at the end."""
        with self.lock:
            while self.at < len(self.order) and self.valid < self.options.mutants:
                mutant = self.order[self.at]
                self.at += 1
                record = self.records.get((mutant.header, mutant.number))
                if record and not (self.options.retry and record["result"] == "survived"):
                    self.valid += record["result"] in ("killed", "survived")
                    continue
                self.valid += 1  # taken back where it is none
                return mutant
            return None

    def note(self, mutant, result, killer, seconds):
        values = (result, killer, f"{seconds:.1f}", f"{mutant.header}:{mutant.line}",
                  mutant.section, mutant.kind, mutant.before[:160], mutant.after[:160],
                  str(mutant.number))
        with self.lock:
            self.valid -= result not in ("killed", "survived")
            self.records[mutant.header, mutant.number] = dict(zip(FIELDS, values))
            with open(self.path, "a") as stream:
                stream.write("\t".join(values) + "\n")
            print(" ".join(values[:-1]), flush=True)
        self.shown.step(f"{mutant.header}:{mutant.line} {result}")

    def work(self, tree, suite, history):
        for mutant in iter(self.next, None):
            start = time.monotonic()
            tree.write(mutant.header, self.headers[mutant.header].with_mutant(mutant))
            try:
                result, killer = climb(tree, suite, history, mutant)
            finally:
                tree.write(mutant.header, self.headers[mutant.header].text)
            self.note(mutant, result, killer, time.monotonic() - start)

    def summary(self):
        records = [self.records.get((m.header, m.number)) for m in self.order]
        records = [r for r in records if r and r["result"] in ("killed", "survived")]
        records = records[:self.options.mutants]
        killed = sum(1 for r in records if r["result"] == "killed")
        print(f"{killed} of {len(records)} killed, "
              f"{100 * killed / max(len(records), 1):.1f} %; seed {self.options.seed}")
        hung = collections.Counter(r["killer"].split(": ")[-1] for r in records)
        print(f"of them by a program that hangs: {hung['time']} time, "
              f"{hung['stands still']} stands still")
        for name in ("kind", "section"):
            by = collections.defaultdict(lambda: [0, 0])
            for record in records:
                by[record[name]][0] += record["result"] == "killed"
                by[record[name]][1] += 1
            print(f"by {name}: " + ", ".join(f"{k} {a}/{b}" for k, (a, b) in sorted(by.items())))
        for record in records:
            if record["result"] == "survived":
                print(f"survived: {record['place']} {record['section']} {record['kind']}: "
                      f"{record['before']} -> {record['after']}")


def parse():
    def names(text):
        return text.split(",")

    parser = argparse.ArgumentParser(description="Plants defects and runs the tests.")
    parser.add_argument("--mutants", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dir", default="build/mutate")
    parser.add_argument("--header", choices=HEADERS)
    parser.add_argument("--section", metavar="NAME,...", type=names)
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("--with", dest="programs", metavar="PROGRAM,...", type=names)
    parser.add_argument("--without", metavar="PROGRAM,...", type=names, default=[])
    parser.add_argument("--retry", action="store_true")
    return parser.parse_args()


def lines_since(commit, header):
    """Numbers of the lines of a header that are not as they were in a commit."""
    told = subprocess.run(["git", "diff", "-U0", commit, "--", header], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    found = set()
    for start, count in re.findall(r"^@@ \S+ \+(\d+)(?:,(\d+))? @@", told, re.M):
        found.update(range(int(start), int(start) + int(count or 1)))
    return found


def main():
    options = parse()
    os.makedirs(options.dir, exist_ok=True)
    headers = {name: mutants.Header(name) for name in HEADERS}
    order = [m for name in HEADERS for m in headers[name].mutants]
    random.Random(options.seed).shuffle(order)
    order = [m for m in order if not m.is_dull and options.header in (None, m.header) and
             (not options.section or m.section in options.section)]
    if options.since:
        lines = {name: lines_since(options.since, name) for name in HEADERS}
        order = [m for m in order if m.line in lines[m.header]]
    sample = Sample(options, order, headers)
    trees = [Tree(f"{options.dir}/worker-{i}") for i in range(options.jobs)]
    chosen = options.programs or [n for n in trees[0].programs if n not in options.without]
    suite, history = Suite(trees[0], chosen), History()
    for tree in trees:
        tree.original = {header: tree.object_of(header) for header in HEADERS}
    for record in sample.records.values():
        if record["result"] == "killed":
            history.note(record["section"], record["killer"].split(":")[0], True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(sample.work, tree, suite, history) for tree in trees]:
            done.result()
    sample.summary()


if __name__ == "__main__":
    sys.exit(main())
