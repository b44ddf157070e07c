"""Programs of gmlake's bench that the package runs: build/NAME of a checkout where it is as new as
its sources; else one that is compiled, in some ten seconds, and kept in the user's cache. An
installed package carries the sources. It takes a C compiler and zlib."""
import hashlib
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
MAINS = {"replay": "bench/replay.c", "offload_session": "bench/offload/session.c"}
# What they include, beside all headers of bench and bench/offload.
INCLUDED = {
    "replay": ("gmlake.h", "gmlake_bfc.h", "examples/profile.h"),
    "offload_session": ("gmlake.h", "gmlake_offload.h", "examples/mock_lake.h",
                        "tests/cuda_stub/cuda.h"),
}
FOLDERS = {"replay": ("bench",), "offload_session": ("bench", "bench/offload")}


class Failed(Exception):
    """It cannot go on: why, in words."""


def sources_in(root, name):
    """What the program is made of; None: it is not there."""
    if not os.path.exists(os.path.join(root, MAINS[name])):
        return None
    names = [*INCLUDED[name], MAINS[name]]
    for folder in FOLDERS[name]:
        found = sorted(os.listdir(os.path.join(root, folder)))
        names += [f"{folder}/{header}" for header in found if header.endswith(".h")]
    return [os.path.join(root, name) for name in names]


def compiled(root, name, sources, who):
    """The path of a program that is as new as its sources."""
    built = os.path.join(os.environ.get("BUILD") or os.path.join(root, "build"), name)
    newest = max(os.path.getmtime(path) for path in sources)
    if os.path.exists(built) and os.path.getmtime(built) >= newest:
        return os.path.abspath(built)
    digest = hashlib.sha256()
    for path in sources:
        with open(path, "rb") as file:
            digest.update(file.read())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(cache, "gmlake")
    path = os.path.join(folder, f"{name}-" + digest.hexdigest()[:16])
    if os.path.exists(path):
        return path
    os.makedirs(folder, exist_ok=True)
    part = f"{path}.{os.getpid()}"
    command = [*os.environ.get("CC", "cc").split(), "-std=gnu99", "-O2", f"-I{root}"]
    command += [f"-I{root}/tests/cuda_stub", os.path.join(root, MAINS[name]), "-o", part]
    command += ["-lz", "-lm", "-lpthread", "-ldl"]
    print(f"{who}: building {name}, once ...", file=sys.stderr)
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise Failed(f"build/{name} is not there, and no C compiler: {error}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        raise Failed(f"build/{name} cannot be compiled (it needs zlib.h): {lines[:1] or command}")
    os.replace(part, path)
    return path


def find(name, who):
    """The program, and the folder where it finds its files. who: of the package, for messages."""
    for root in (CHECKOUT, os.path.join(HERE, "source")):
        sources = sources_in(root, name)
        if sources:
            return compiled(root, name, sources, who), root
    raise Failed(f"{HERE} has no sources of {name} beside it: use a checkout of gmlake")
