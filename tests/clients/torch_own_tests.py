"""Runs files of torch's own tests with torch's allocator and with the lakes, and compares.

    python3 tests/clients/torch_own_tests.py --out DIRECTORY [--jobs N] [--seconds N] [-k WORDS] \\
        [--devices 0:1] test_cuda.py...

The files are of torch's sources, at the release that is installed or close to it; they and
expecttest have to be there already. Needs pytest, pytest-timeout and pytest-xdist. With --devices
both run at the same time, torch's allocator on the devices before the colon; else one after the
other, on all devices. Tests that end differently run again, one after the other, and count as they
end then. DIRECTORY gets the counts and what each test came to (own.txt), and the logs. The exit
status is 0 if no test that passes with torch's allocator fails with the lakes.

The file is a plugin of pytest too: in a newer torch, names that the tests import may be gone. It
puts something in their place, so that the other tests run, also in processes that they spawn. Those
have the lakes by GMLAKE_TORCH=1, for which gmlake_torch has to be installed by pip."""
import argparse
import ast
import concurrent.futures
import importlib
import multiprocessing.spawn
import os
import re
import signal
import subprocess
import sys

VERDICT = re.compile(r"(PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS)\s+(?:\S*/)?(\S+?::\S+)")


class Nothing:
    """In the place of a decorator, a decorator with arguments, or a flag."""

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]
        return lambda function: function

    def __bool__(self):
        return False


def missing_names(path):
    """Those that the file imports of torch, as (module, name)."""
    with open(path) as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and str(node.value).endswith(".py"):
            other = os.path.join(os.path.dirname(path), node.value)  # the file may execute it
            if os.path.exists(other) and not os.path.samefile(other, path):
                yield from missing_names(other)
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("torch."):
            continue
        try:
            module = importlib.import_module(node.module)
        except Exception:
            continue  # so does the file that is tested
        for name in node.names:
            try:
                hasattr(module, name.name) or importlib.import_module(f"{node.module}.{name.name}")
            except Exception:
                yield node.module, name.name


def add_missing_names():
    for entry in os.environ["TORCH_OWN_MISSING"].split():
        module, name = entry.split(":")
        setattr(importlib.import_module(module), name, Nothing())


def pytest_configure(config):
    files = os.environ["TORCH_OWN_TESTS"].split(os.pathsep)
    missing = sorted({f"{module}:{name}" for path in files for module, name in missing_names(path)})
    print("torch_own_tests: torch does not have:", *missing, file=sys.stderr)
    os.environ["TORCH_OWN_MISSING"] = " ".join(missing)
    add_missing_names()
    prepare = multiprocessing.spawn.get_preparation_data

    def prepare_with_names(name):  # a spawned process executes this file as __mp_main__
        data = prepare(name)
        data.pop("init_main_from_name", None)
        return dict(data, init_main_from_path=os.path.abspath(__file__))

    multiprocessing.spawn.get_preparation_data = prepare_with_names


def run(allocator, options, tests, jobs, suffix):
    """Returns the verdicts by test."""
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-m", "pytest", "-v", "-p", "torch_own_tests"]
    command += ["-p", "no:cacheprovider", "--tb=short", "--no-header", "-rN"]
    command += [f"--timeout={options.seconds}", "-n", str(jobs)]
    if options.words:
        command += ["-k", options.words]
    files = [os.path.abspath(path) for path in options.paths]
    environment = dict(os.environ, TORCH_OWN_TESTS=os.pathsep.join(files))
    if options.devices:
        devices = options.devices.split(":")
        environment["CUDA_VISIBLE_DEVICES"] = devices[-1 if allocator == "lake" else 0]
    if allocator == "lake":
        command += ["-p", "gmlake_torch"]
        environment["GMLAKE_TORCH"] = "1"
    paths = [here, os.path.dirname(files[0]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    log = os.path.join(options.out, f"own.{allocator}.{suffix}")
    with open(log, "w") as file:
        process = subprocess.Popen(
            command + tests,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            process.wait(options.limit)
        except subprocess.TimeoutExpired:
            print(f"torch_own_tests: {allocator}: stopped after {options.limit} s")
            os.killpg(process.pid, signal.SIGKILL)  # with what the tests started
            process.wait()
    with open(log, errors="replace") as file:
        return {name: verdict for verdict, name in VERDICT.findall(file.read())}


def count(rows, paths):
    """The counts of each file, as lines. A file without any could not be imported."""
    lines = [f"{'file':40} {'':6} {'passed':>6} {'failed':>6} {'skipped':>7} {'none':>6}"]
    for path in sorted(paths):
        mine = [verdicts for name, verdicts in rows.items() if name.split("::")[0] == path]
        for i, who in enumerate(("native", "lake")):
            got = [verdicts[i] for verdicts in mine]
            passed, skipped, none = (got.count(word) for word in ("PASSED", "SKIPPED", "-"))
            failed = len(got) - passed - skipped - none
            lines.append(f"{path:40} {who:6} {passed:6} {failed:6} {skipped:7} {none:6}")
    return lines


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
    paths = {os.path.basename(path): os.path.abspath(path) for path in options.paths}
    everything = list(paths.values())
    with concurrent.futures.ThreadPoolExecutor(2 if options.devices else 1) as pool:

        def run_both(*arguments):
            return pool.map(lambda who: run(who, options, *arguments), ("native", "lake"))

        native, lake = run_both(everything, options.jobs, "log")
        again = {name for name in native if native[name] != lake.get(name, native[name])}
        if again:
            split = [name.partition("::") for name in sorted(again)]
            tests = [paths[file] + colons + test for file, colons, test in split]
            for known, new in zip((native, lake), run_both(tests, 1, "again.log")):
                known.update(new)
    rows = {
        name: (native.get(name, "-"), lake.get(name, "-"), "again" * (name in again))
        for name in sorted(set(native) | set(lake))
    }
    lines = count(rows, paths) + ["", f"{'native':8} {'lake':8} differently, or run again"]
    table = [(v, f"{v[0]:8} {v[1]:8} {v[2]:5} {name}") for name, v in rows.items()]
    lines += [line for v, line in table if v[0] != v[1] or v[2]]
    print(*lines, sep="\n")
    with open(os.path.join(options.out, "own.txt"), "w") as file:
        print(*lines, "", *[line for _, line in table], sep="\n", file=file)
    return not rows or any(v[0] == "PASSED" != v[1] for v in rows.values())


if __name__ == "__mp_main__":
    add_missing_names()
if __name__ == "__main__":
    sys.exit(main())
