"""Runs files of torch's own tests with torch's allocator and with the lakes, and compares.

    python3 tests/clients/torch_own_tests.py --out DIRECTORY [--jobs N] [--seconds N] [-k WORDS] \\
        [--devices 0:1] test_cuda.py...

The files are of torch's sources, at the release that is installed or close to it; they and
expecttest have to be there already. Needs pytest, pytest-timeout and pytest-xdist. DIRECTORY gets a
table of what each test came to (own.txt) and both logs. With --devices both run at the same time,
torch's allocator on the devices before the colon. The exit status is 0 if no test that passes with
torch's allocator fails with the lakes.

The file is a plugin of pytest too: in a newer torch, names that the tests import may be gone. It
puts something in their place, so that the other tests run."""
import argparse
import ast
import concurrent.futures
import importlib
import os
import re
import subprocess
import sys

VERDICT = re.compile(r"(PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS)\s+\S*?::(\S+)")


class Nothing:
    """In the place of a decorator, a decorator with arguments, or a flag."""

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]
        return lambda function: function

    def __bool__(self):
        return False


def add_missing_names(path):
    with open(path) as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and str(node.value).endswith(".py"):
            other = os.path.join(os.path.dirname(path), node.value)  # the file may execute it
            if os.path.exists(other) and not os.path.samefile(other, path):
                add_missing_names(other)
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("torch."):
            continue
        try:
            module = importlib.import_module(node.module)
        except ImportError:
            continue
        for name in node.names:
            if not hasattr(module, name.name):
                print(f"torch_own_tests: {node.module} has no {name.name}", file=sys.stderr)
                setattr(module, name.name, Nothing())


def pytest_configure(config):
    for path in os.environ["TORCH_OWN_TESTS"].split(os.pathsep):
        add_missing_names(path)


def run(allocator, options):
    """Returns the verdicts by test."""
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-m", "pytest", "-v", "-p", "torch_own_tests"]
    command += ["-p", "no:cacheprovider", "--tb=short", "--no-header", "-rN"]
    command += [f"--timeout={options.seconds}", "-n", str(options.jobs)]
    if options.words:
        command += ["-k", options.words]
    tests = [os.path.abspath(path) for path in options.paths]
    environment = dict(os.environ, TORCH_OWN_TESTS=os.pathsep.join(tests))
    if options.devices:
        devices = options.devices.split(":")
        environment["CUDA_VISIBLE_DEVICES"] = devices[-1 if allocator == "lake" else 0]
    if allocator == "lake":
        command += ["-p", "gmlake_torch"]
        environment["GMLAKE_TORCH"] = "1"
    paths = [here, os.path.dirname(tests[0]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    log = os.path.join(options.out, f"own.{allocator}.log")
    with open(log, "w") as file:
        try:
            subprocess.run(
                command + tests,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=options.limit,
            )
        except subprocess.TimeoutExpired:
            print(f"torch_own_tests: {allocator}: stopped after {options.limit} s")
    with open(log, errors="replace") as file:
        return {name: verdict for verdict, name in VERDICT.findall(file.read())}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=60, help="limit of one test")
    parser.add_argument("--limit", type=int, default=3600, help="limit of each allocator's run")
    parser.add_argument("-k", dest="words", default="")
    parser.add_argument("--devices", help="for example 0:1, or 0,1:0,1")
    parser.add_argument("paths", nargs="+")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(2 if options.devices else 1) as pool:
        native, lake = pool.map(lambda allocator: run(allocator, options), ("native", "lake"))
    rows, counts = [], {"native": {}, "lake": {}}
    for name in sorted(set(native) | set(lake)):
        verdicts = native.get(name, "-"), lake.get(name, "-")
        rows.append(f"{verdicts[0]:8} {verdicts[1]:8} {name}")
        for who, verdict in zip(counts, verdicts):
            counts[who][verdict] = counts[who].get(verdict, 0) + 1
    different = [row for row in rows if row.split()[0] != row.split()[1]]
    worse = [row for row in different if row.startswith("PASSED")]
    with open(os.path.join(options.out, "own.txt"), "w") as file:
        for who in counts:
            print(who, counts[who], file=file)
            print(who, counts[who])
        print("native   lake", *different, "", *rows, sep="\n", file=file)
    print("native   lake", *different, sep="\n")
    return len(worse) > 0


if __name__ == "__main__":
    sys.exit(main())
