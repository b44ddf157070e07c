"""Modified condition/decision coverage of the headers by all programs, by clang 18 or newer.

    python3 -B tests/tools/mcdc.py [--dir build/mcdc] [PROGRAM...]

MC/DC: each condition of each decision was seen to change the outcome by itself. Prints the figures
of each header and writes the conditions that were not to DIR/HEADER.txt. What has run with the same
sources counts as it ran; remove DIR to run all again. With PROGRAMs named only those run again.
Each program is compiled as one file of the same name, so that counts of the headers' static
functions add up. Assertions and what they rule out are left out; decisions that hold another inside
an operator are none to clang.
"""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys

import coverage
from progress import Progress

PRELUDE = coverage.PRELUDE.replace("__gcov_dump", "__llvm_profile_dump")
FLAGS = ["-O1", "-D_GNU_SOURCE", "-fprofile-instr-generate", "-fcoverage-mapping",
         "-fcoverage-mcdc", "-include", "prelude.h"]


def newest_tools():
    """The suffix of the newest clang that can, with its tools, or None."""
    for version in range(40, 17, -1):
        tools = (f"clang-{version}", f"llvm-profdata-{version}", f"llvm-cov-{version}")
        if all(shutil.which(tool) for tool in tools):
            return f"-{version}"
    return None


def measure(program, directory, suffix, limit=600):
    """Builds and runs the program; its counts are in the directory. Returns its exit status."""
    root = os.getcwd()
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    with open(directory + "/prelude.h", "w") as stream:
        stream.write(PRELUDE)
    with open(directory + "/unit.c", "w") as stream:
        stream.write(f'#include "{root}/{program.sources[0]}"\n')
    includes = ["-I" + os.path.join(root, path[2:]) for path in coverage.INCLUDES]
    others = [os.path.join(root, source) for source in program.sources[1:]]
    done = subprocess.run(["clang" + suffix, "-std=c99", "-w", *FLAGS, *includes, "unit.c", *others,
                           "-o", "program", *coverage.LIBS], cwd=directory,
                          stderr=subprocess.PIPE)  # it warns of decisions that are none to it
    if done.returncode:
        sys.exit(done.stderr.decode())
    environment = {**program.run_environment(),
                   "LLVM_PROFILE_FILE": os.path.abspath(directory) + "/%2m.profraw"}
    command = ["timeout", "-k", "5", str(limit), directory + "/program", *program.command[1:]]
    return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode


def export(directory, suffix):
    """What llvm-cov knows of the headers, all programs together: {header: its data}."""
    merged = directory + "/all.profdata"
    subprocess.run(["llvm-profdata" + suffix, "merge", "-sparse", "-o", merged,
                    *sorted(glob.glob(directory + "/*/*.profraw"))], check=True)
    binaries = sorted(glob.glob(directory + "/*/program"))
    objects = [word for path in binaries[1:] for word in ("-object", path)]
    done = subprocess.run(["llvm-cov" + suffix, "export", "-format=text", "-skip-expansions",
                           "-instr-profile", merged, binaries[0], *objects],
                          check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    data = json.loads(done.stdout)["data"][0]
    return {os.path.basename(part["filename"]): part for part in data["files"]}


def report(header, data, directory):
    with open(header) as stream:
        source = stream.read().split("\n")
    decisions = {}  # a record each for every program; the best of them
    for record in data["mcdc_records"]:
        at = tuple(record[:4])
        if at not in decisions or sum(record[6]) > sum(decisions[at][6]):
            decisions[at] = record
    decisions = [decisions[at] for at in sorted(decisions)]
    with open(f"{directory}/{header}.txt", "w") as stream:
        for record in decisions:
            missed = " ".join("+" if shown else "-" for shown in record[6])
            if "-" in missed:
                stream.write(f"{header}:{record[0]}: {missed} | {source[record[0] - 1].strip()}\n")
    shown = sum(sum(record[6]) for record in decisions)
    conditions = sum(len(record[6]) for record in decisions)
    print(f"{header}: MC/DC {100 * shown / max(conditions, 1):.2f} % of {conditions} conditions in "
          f"{len(decisions)} decisions; the rest: {directory}/{header}.txt")


def main():
    parser = argparse.ArgumentParser(description="MC/DC of the headers by the tests.")
    parser.add_argument("--dir", default="build/mcdc")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    suffix = newest_tools()
    if not suffix:
        print("MC/DC: not measured, there is no clang of 18 or newer with its llvm-cov here")
        return 0
    failed = 0
    shown = Progress(len(options.programs) or len(list(coverage.programs())))
    done = coverage.Done()
    for program in coverage.programs():
        if options.programs and program.name not in options.programs:
            continue
        directory = f"{options.dir}/{program.name}"
        if options.programs or not done.has(directory):
            status = measure(program, directory, suffix)
            if status:
                print(f"{program.name}: exit status {status}")
                failed = 1
            else:
                done.note(directory)
        shown.step(program.name)
    parts = export(options.dir, suffix)
    for header in coverage.HEADERS:
        report(header, parts[header], options.dir)
    return failed


if __name__ == "__main__":
    sys.exit(main())
