"""Would the tests notice? Plants small defects (mutants.py) in the headers, one at a time, and runs
the test programs, those first that most often notice for the time they take, until one fails.

    python3 -B tests/tools/mutate.py [--mutants 500] [--seed 1] [--jobs 2] [--dir build/mutate]
                               [--header NAME] [--section NAME,...] [--since COMMIT]
                               [--quick] [--without PROGRAM,...] [--retry] [--summary]

A seeded sample of all mutants, defects that a compiler cannot tell from the original left out. A
program is left out for a line that it never reaches. Where a function locks or has atomics,
test_threads runs under the thread sanitizer, too, as the last one. A program that fails or crashes
kills the mutant. So does one that hangs: one that twice takes several times the processor time that
it takes without a defect ("time"), or twice takes none at all for a minute ("stands still"). How
busy the machine is does not count. The log, DIR/seed-N.tsv, has a line a mutant:
what became of it, by which program, after how many seconds, where, which kind, before, after. A
sample that was interrupted goes on where it was; --retry runs the survivors again, after tests were
added. --since takes mutants only of lines that are not as they were in a commit. --quick leaves the
programs out that take long, but where few others reach the line; --retry then runs those too.
--without leaves programs out altogether: they are not measured either, which takes minutes. The
tests and headers are copied first, so that they may be edited meanwhile; headers that have changed
need another DIR.
"""
import argparse
import collections
import glob
import hashlib
import json
import multiprocessing
import os
import queue
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import coverage
import mutants
from progress import Progress

HEADERS = coverage.HEADERS
OUTPUT_MAX = 1 << 24
FIELDS = ("result", "killer", "seconds", "place", "section", "kind", "before", "after", "number")
# What a program may define and yet be linked with an implementation compiled once for all.
PLAIN = {"gmlake.h": {"GMLAKE_IMPLEMENTATION", "GMLAKE_BACKEND_MOCK"},
         "gmlake_bfc.h": {"GMLAKE_BFC_IMPLEMENTATION"},
         "gmlake_offload.h": {"GMLAKE_OFFLOAD_IMPLEMENTATION", "GMLAKE_OFFLOAD_BACKEND_MOCK"},
         "gmlake_turnip.h": {"GMLAKE_TURNIP_IMPLEMENTATION"}}
CHEAP_SECONDS = 1.0  # programs that run longer are compiled with optimization,
LONG_SECONDS = 3.0  # and those with --quick left out
SANITIZED = ["-O1", "-g", "-fsanitize=thread"]
SANITIZED_SECONDS = 120
STILL_SECONDS = 60  # a program that takes no processor time for so long stands still


def unit_of(header, defines):
    return "".join(f"#define {d}\n" for d in defines) + f'#include "{header}"\n'


def digest(paths):
    total = hashlib.sha256()
    for path in sorted(paths):
        with open(path, "rb") as stream:
            total.update(path.encode() + b"\0" + hashlib.sha256(stream.read()).digest())
    return total.hexdigest()[:16]


def sources():
    found = glob.glob("*.h")
    for top in ("tests", "bench", "examples"):
        for directory, _, names in os.walk(top):
            found += [f"{directory}/{n}" for n in names if n.endswith((".c", ".h")) or
                      "corpus" in directory]
    return found


def compile_quietly(command, cwd=None):
    return subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def processor_seconds():
    """What the children that have ended took."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


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


def defined_before(program, header, tree):
    """What a program and its own headers define before the header is included; None: unknown."""
    with open(f"{tree}/{program.sources[0]}") as stream:
        before = re.split(f'"(?:{header}|fixture.h)"', stream.read())[0].rsplit("#", 1)[0]
    command = ["cc", "-E", "-dD", *coverage.INCLUDES, "-I" + os.path.dirname(program.sources[0]),
               "-x", "c", "-"]
    done = subprocess.run(command, cwd=tree, input=before, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    if done.returncode:
        return None
    names, is_own = set(), False
    for line in done.stdout.split("\n"):
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            is_own = not marker.group(1).startswith(("/", "<built-in>", "<command-line>"))
        elif is_own:
            names.update(re.findall(r"^#define (\w+)", line))
    return names


def build_unit(text, header, directory, output):
    """The implementation with all its functions to be linked with; the mock alone."""
    with open(f"{directory}/{header}", "w") as stream:
        stream.write(text)
    with open(f"{directory}/unit.c", "w") as stream:
        stream.write(unit_of(header, [d for d in mutants.UNITS[header] if "CUDA" not in d]))
    return compile_quietly(["cc", "-std=c99", "-w", "-O0", "-I..", "-c", "unit.c", "-o",
                            os.path.abspath(output)], directory)


def linked(program, *objects):
    """How a program is linked with an implementation compiled for all programs."""
    return ["cc", "-w", "-std=c99", *coverage.INCLUDES, *objects, *program.sources[1:], "-o",
            program.path, *coverage.LIBS]


class Suite:
    """The programs as they are without a defect: what they reach and how long they take."""

    def __init__(self, directory, headers, without, jobs):
        self.headers = headers
        self.tree = directory + "/tree"
        self.programs = [p for p in coverage.programs() if p.name not in without]
        self.directory = directory
        self.copy_tree(digest(sources()))
        self.units = {}
        for header in HEADERS:
            self.write_public(header)
            self.units[header] = self.open_unit(header)
        self.facts = self.all_facts(jobs)
        self.lines = {}  # header: (lines with code, {program: lines that it reaches})
        for header in HEADERS:
            of = {name: fact["lines"][header] for name, fact in self.facts.items()}
            self.lines[header] = (set().union(*(lines["known"] for lines in of.values())),
                                  {name: set(lines["reached"]) for name, lines in of.items()})

    def copy_tree(self, stamp):
        """Headers, tests and the fake driver, as they are now."""
        if os.path.exists(f"{self.tree}/{stamp}"):
            return
        shutil.rmtree(self.tree, ignore_errors=True)
        os.makedirs(self.tree + "/build")
        for header in glob.glob("*.h"):
            shutil.copy(header, self.tree)
        shutil.copytree("examples", self.tree + "/examples")
        shutil.copytree("tests", self.tree + "/tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree("bench", self.tree + "/bench", ignore=shutil.ignore_patterns("plots"))
        shutil.copytree("build/fake", self.tree + "/build/fake")
        open(f"{self.tree}/{stamp}", "w").close()

    def write_public(self, header):
        """Headers without bodies, beside the others as they are."""
        public = f"{self.tree}/build/public-{header}"
        os.makedirs(public, exist_ok=True)
        for other in HEADERS:
            shutil.copy(f"{self.tree}/{other}", public)
        with open(f"{public}/{header}", "w") as stream:
            stream.write(self.headers[header].declarations())

    def open_unit(self, header):
        """The implementation without a defect, as one with a defect is linked."""
        unit = os.path.abspath(f"{self.tree}/build/unit-{header}.o")
        if not build_unit(self.headers[header].opened(), header, f"{self.tree}/build", unit):
            sys.exit(f"{header} cannot be built")
        return unit

    def all_facts(self, jobs):
        """{program: its facts}, each measured in a process, so that its children's time is its."""
        global measured
        measured = self
        with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
            found = pool.map(measure_one, range(len(self.programs)), chunksize=1)
        return {p.name: fact for p, fact in zip(self.programs, found)}

    def facts_of(self, program):
        """Processor seconds of build and run, lines that it reaches, objects by header."""
        shared = [s for s in sources() if s.endswith(".h")]
        stamp = digest(shared + program.sources)
        path = f"{self.directory}/facts-{program.name}-{stamp}.json"
        if os.path.exists(path):
            with open(path) as stream:
                return json.load(stream)
        print(f"measuring {program.name}", file=sys.stderr)
        fact = self.measure(program)
        fact["links"] = {h: self.link_object(program, h, stamp, fact) for h in HEADERS}
        with open(path + ".new", "w") as stream:
            json.dump(fact, stream)
        os.rename(path + ".new", path)
        return fact

    def measure(self, program):
        reached, status = coverage.measure(program, f"{self.tree}/build/coverage-{program.name}")
        lines = {}
        for header in HEADERS:
            counts = coverage.Counts()
            counts.add(reached[header])
            lines[header] = {"known": sorted(counts.lines),
                             "reached": sorted(n for n, c in counts.lines.items() if c)}
        fact = {"lines": lines}
        for level in ("-O0", "-O1"):
            start = processor_seconds()
            if not compile_quietly(program.compile([level]), self.tree):
                sys.exit(f"{program.name} cannot be built")
            build = processor_seconds() - start
            start = processor_seconds()
            run = Watched(program.command, program.run_environment(), self.tree, 600)
            if run.status or status:
                sys.exit(f"{program.name} fails without a defect: {run.verdict()}")
            fact.update(build=build, run=processor_seconds() - start, level=level)
            if fact["run"] < CHEAP_SECONDS:
                break
        return fact

    def link_object(self, program, header, stamp, fact):
        """The program's object where an implementation compiled for all programs serves it."""
        output = os.path.abspath(f"{self.directory}/{program.name}-{stamp}-{header}.o")
        if not fact["lines"][header]["reached"]:
            return None
        defined = defined_before(program, header, self.tree)
        if defined is None or not defined - {"_GNU_SOURCE"} <= set.union(*PLAIN.values()):
            return None  # it replaces what the implementation calls, or configures it
        command = ["cc", "-std=c99", "-w", "-O1", "-Werror=implicit-function-declaration",
                   f"-Ibuild/public-{header}", *coverage.INCLUDES[1:], "-c", program.sources[0],
                   "-o", output]
        if not compile_quietly(command, self.tree) or not compile_quietly(
                linked(program, output, self.units[header]), self.tree):
            return None
        start = processor_seconds()
        limit = int(60 + 20 * fact["run"])
        run = Watched(program.command, program.run_environment(), self.tree, limit)
        fact["run"] = max(fact["run"], processor_seconds() - start)
        return None if run.verdict() else output  # without a defect it must not fail

    def reaches(self, program, mutant):
        known, reached = self.lines[mutant.header]
        if mutant.line in known:
            return mutant.line in reached[program.name]
        # In the midst of a statement, or in a table: what is around it, if anything is.
        around = set(range(mutant.line - 40, mutant.line + 40))
        return not (known & around) or not reached[program.name].isdisjoint(around)


def measure_one(number):
    """In a child of fork, which has the suite."""
    try:
        return measured.facts_of(measured.programs[number])
    except SystemExit as told:  # the pool would wait for ever
        raise RuntimeError(str(told)) from None


class History:
    """How often each program killed, by section."""

    def __init__(self):
        self.tried = collections.Counter()
        self.killed = collections.Counter()

    def note(self, section, program, is_killed):
        for key in ((section, program), program):
            self.tried[key] += 1
            self.killed[key] += is_killed

    def rate(self, section, program):
        overall = (self.killed[program] + 0.6) / (self.tried[program] + 2)
        key = (section, program)
        return (self.killed[key] + 2 * overall) / (self.tried[key] + 2)


class Worker:
    """A directory with a tree where one mutant at a time is built and tried."""

    def __init__(self, suite, history, directory, is_quick):
        self.suite, self.history, self.root = suite, history, os.path.abspath(directory)
        self.is_quick = is_quick
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(self.root)
        tree = os.path.abspath(suite.tree)
        for name in ("bench", "examples", "tests"):
            os.symlink(f"{tree}/{name}", f"{self.root}/{name}")
        for header in glob.glob(f"{tree}/*.h"):
            shutil.copy(header, self.root)
        for header, defines in mutants.UNITS.items():
            with open(f"{self.root}/unit-{header}.c", "w") as stream:
                stream.write(unit_of(header, defines))
        self.originals = {}
        for header in HEADERS:
            self.originals[header] = self.object_of(header)

    def restore(self, header):
        shutil.copy(f"{self.suite.tree}/{header}", self.root)

    def object_of(self, header):
        output = f"{self.root}/unit.o"
        command = ["cc", "-std=c99", "-w", "-O2", "-I.", "-Itests/cuda_stub", "-c",
                   f"unit-{header}.c", "-o", output]
        if not compile_quietly(command, self.root):
            return None
        with open(output, "rb") as stream:
            return stream.read()

    def ladder(self, mutant):
        programs = [p for p in self.suite.programs if self.suite.reaches(p, mutant)]
        if self.is_quick and len(programs) > 4:
            programs = [p for p in programs if self.suite.facts[p.name]["run"] < LONG_SECONDS]

        def worth(program):
            fact = self.suite.facts[program.name]
            build = 0.1 if fact["links"][mutant.header] else fact["build"]
            return self.history.rate(mutant.section, program.name) / (build + fact["run"])

        return sorted(programs, key=worth, reverse=True)

    def build(self, program, mutant):
        """How the program is built: "linked", "compiled", or None where that fails."""
        link = self.suite.facts[program.name]["links"][mutant.header]
        if link:
            unit = f"{self.root}/build/unit.o"
            text = self.suite.headers[mutant.header].opened(mutant)
            if not os.path.exists(unit) and not build_unit(text, mutant.header,
                                                           f"{self.root}/build", unit):
                return False
            return compile_quietly(linked(program, link, unit), self.root)
        level = self.suite.facts[program.name]["level"]
        return compile_quietly(program.compile([level]), self.root)

    def try_out(self, mutant):
        """(result, killer)"""
        build = f"{self.root}/build"
        shutil.rmtree(build, ignore_errors=True)
        os.makedirs(build)
        os.symlink(os.path.abspath(self.suite.tree) + "/build/fake", build + "/fake")
        with open(f"{self.root}/{mutant.header}", "w") as stream:
            stream.write(self.suite.headers[mutant.header].with_mutant(mutant))
        try:
            return self.climb(mutant)
        finally:
            self.restore(mutant.header)

    def climb(self, mutant):
        start = time.monotonic()
        is_compared = False
        ladder = self.ladder(mutant)
        for program in ladder:
            run = self.suite.facts[program.name]["run"]
            if not is_compared and time.monotonic() - start + run > 3:
                is_compared = True
                told = self.compare(mutant)
                if told:
                    return told
            if not self.build(program, mutant):
                return "invalid", "compiler"
            verdict = self.run(program.command, program, int(5 + 5 * run))
            self.history.note(mutant.section, program.name, verdict is not None)
            if verdict:
                return "killed", f"{program.name}: {verdict}"
        if not is_compared:
            told = self.compare(mutant)
            if told:
                return told
        if mutant.is_of_threads:
            told = self.sanitize(mutant)
            if told:
                return told
        return "survived", "" if ladder else "no program reaches it"

    def run(self, command, program, cpu_seconds, is_sanitized=False):
        """How the program fails, or None; one that was stopped runs again with twice the limit."""
        for limit in (cpu_seconds, 2 * cpu_seconds):
            run = Watched(command, program.run_environment(), self.root, limit, is_sanitized)
            if not run.stopped:
                break
        return run.verdict()

    def sanitize(self, mutant):
        """The same of the threads' test under the sanitizer; None: it sees nothing."""
        program = next(p for p in self.suite.programs if p.name == "test_threads")
        if mutant.header != "gmlake.h":
            return None
        if not compile_quietly(program.compile(SANITIZED, "build/test_threads.tsan"), self.root):
            return "invalid", "compiler"
        verdict = self.run(["build/test_threads.tsan", *program.command[1:]], program,
                           SANITIZED_SECONDS, is_sanitized=True)
        return ("killed", f"test_threads.tsan: {verdict}") if verdict else None

    def compare(self, mutant):
        made = self.object_of(mutant.header)
        if made is None:
            return "invalid", "compiler"
        if made == self.originals[mutant.header]:
            return "equivalent", "compiler"
        return None


class Log:
    """DIR/seed-N.tsv; the last line of a mutant counts."""

    def __init__(self, path, stamp):
        self.path, self.records, self.lock = path, {}, threading.Lock()
        if os.path.exists(path):
            with open(path) as stream:
                lines = stream.read().split("\n")
            if lines[0] != f"# headers {stamp}":
                sys.exit(f"{path} is of other mutants: name another --dir, or remove it")
            for line in lines[1:]:
                values = line.split("\t")
                if len(values) == len(FIELDS):
                    record = dict(zip(FIELDS, values))
                    self.records[record["place"].split(":")[0], int(record["number"])] = record
        else:
            with open(path, "w") as stream:
                stream.write(f"# headers {stamp}\n")

    def note(self, mutant, result, killer, seconds):
        values = (result, killer, f"{seconds:.1f}", f"{mutant.header}:{mutant.line}",
                  mutant.section, mutant.kind, mutant.before[:160], mutant.after[:160],
                  str(mutant.number))
        record = dict(zip(FIELDS, values))
        with self.lock:
            self.records[mutant.header, mutant.number] = record
            with open(self.path, "a") as stream:
                stream.write("\t".join(values) + "\n")
            print(" ".join(values[:-1]), flush=True)
        return record


class Sample:
    """Works through the mutants in the order of the seed, until enough have been tried."""

    def __init__(self, options, order, log):
        self.options, self.order, self.log = options, order, log
        self.lock = threading.Lock()
        self.at = 0
        self.valid = 0
        self.shown = Progress(options.mutants)

    def key(self, mutant):
        return mutant.header, mutant.number

    def next(self):
        """The next mutant that is not in the log, or None at the end."""
        with self.lock:
            while self.at < len(self.order) and self.valid < self.options.mutants:
                mutant = self.order[self.at]
                self.at += 1
                record = self.log.records.get(self.key(mutant))
                if record and not (self.options.retry and record["result"] == "survived"):
                    self.valid += record["result"] in ("killed", "survived")
                    continue
                self.valid += 1  # taken back where it is none
                return mutant
            return None

    def work(self, worker):
        while True:
            mutant = self.next()
            if not mutant:
                return
            start = time.monotonic()
            result, killer = worker.try_out(mutant)
            self.log.note(mutant, result, killer, time.monotonic() - start)
            self.shown.step(f"{mutant.header}:{mutant.line} {result}")
            if result not in ("killed", "survived"):
                with self.lock:
                    self.valid -= 1

    def counted(self):
        """The records of the sample, in order, those that count."""
        found = []
        for mutant in self.order:
            record = self.log.records.get(self.key(mutant))
            if record and record["result"] in ("killed", "survived"):
                found.append(record)
        return found[:self.options.mutants]

    def summary(self):
        records = self.counted()
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
                note = f" ({record['killer']})" if record["killer"] else ""
                print(f"survived: {record['place']} {record['section']} {record['kind']}: "
                      f"{record['before']} -> {record['after']}{note}")


def parse():
    parser = argparse.ArgumentParser(description="Plants defects and runs the tests.")
    parser.add_argument("--mutants", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dir", default="build/mutate")
    parser.add_argument("--header", choices=HEADERS)
    parser.add_argument("--section", metavar="NAME,...", type=lambda names: names.split(","))
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--without", metavar="PROGRAM,...", type=lambda names: names.split(","),
                        default=[])
    parser.add_argument("--retry", action="store_true")
    parser.add_argument("--summary", action="store_true")
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
    log = Log(f"{options.dir}/seed-{options.seed}.tsv",
              digest([*HEADERS, "tests/tools/mutants.py"]))
    sample = Sample(options, order, log)
    if not options.summary:
        run_sample(options, sample, headers)
    sample.summary()


def run_sample(options, sample, headers):
    suite = Suite(options.dir, headers, options.without, options.jobs)
    history = History()
    for record in sample.log.records.values():
        if record["result"] == "killed":
            history.note(record["section"], record["killer"].split(":")[0], True)
    workers = queue.Queue()
    for i in range(options.jobs):
        workers.put(Worker(suite, history, f"{options.dir}/worker-{i}", options.quick))
    threads = [threading.Thread(target=lambda: sample.work(workers.get()), daemon=True)
               for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
