"""Builds gmlake_torch against the torch that is installed. It downloads nothing:

    python3 -m pip install --no-build-isolation ./examples/torch

`python3 setup.py sdist` needs no torch: it puts the headers into the archive, of which pip makes
the same wheel. To build needs a C++ compiler, setuptools (before 70.1 also wheel), the headers of
Python, and those of the CUDA toolkit: of CUDA_HOME, /usr/local/cuda, or the nvidia packages that
torch depends on."""
import glob
import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
# Where gmlake.h is: beside the examples, or inside what sdist made.
ROOT = os.path.join(HERE, "source" if os.path.isdir(os.path.join(HERE, "source")) else "../..")
sys.path.insert(0, os.path.join(ROOT, "packaging"))
import wheels  # noqa: E402

SOURCES = ["gmlake_offload.h"] + [
    f"examples/{name}"
    for name in ("ledger.h", "ledger.hpp", "profile.h", "record.h", "torch/adapter.h",
                 "torch/again.hpp", "torch/calls.h", "torch/lake.hpp", "torch/offload.hpp",
                 "torch/offload_calls.hpp", "torch/session.hpp", "torch/sharing.hpp")
]
# What gmlake_torch.predict and gmlake_torch.plan compile, and the headers of bench.
REPLAY = ("gmlake.h", "gmlake_bfc.h", "bench/replay.c", "bench/viewer.html", "examples/profile.h")
SESSION = ("gmlake_offload.h", "bench/offload/session.c", "examples/mock_lake.h",
           "tests/cuda_stub/cuda.h")
HEADERS = glob.glob(f"{ROOT}/bench/*.h") + glob.glob(f"{ROOT}/bench/offload/*.h")
PLAYED = [*REPLAY, *SESSION, *(os.path.relpath(path, ROOT) for path in HEADERS)]
RELEASE = (2, 11)  # of torch: what it is written for

NEEDS_TORCH = "sdist" not in sys.argv
os.environ.pop("GMLAKE_TORCH", None)  # the torch that is imported here needs no lake
if NEEDS_TORCH:
    try:
        import torch
        from torch.utils.cpp_extension import BuildExtension, CppExtension
    except ImportError as error:
        sys.exit(
            f"gmlake_torch is built against the torch of this Python ({sys.executable}), and here "
            f"is none ({error}). Install torch, and then: {sys.executable} -m pip install "
            "--no-build-isolation ./examples/torch"
        )


def check_release():
    release = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if torch.version.cuda is None:
        sys.exit(f"gmlake_torch needs a torch that is built for CUDA; this is {torch.__version__}")
    if release < RELEASE:
        sys.exit(f"gmlake_torch needs torch 2.11 or later; this is {torch.__version__}")
    if release > RELEASE:
        print(
            f"gmlake_torch was run with torch 2.11 alone; this is {torch.__version__}. If it does "
            "not compile, torch's interface has changed: take gmlake_pool, as "
            "examples/torch/README.md says",
            file=sys.stderr,
        )


def cuda_includes():
    """Directories with the toolkit's headers, the first place that has them."""
    nvidia = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia")
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    places = [[os.path.join(home, "include")] for home in homes if home]
    places.append(sorted(glob.glob(os.path.join(nvidia, "*", "include"))))
    for place in places:
        if all(
            any(os.path.exists(os.path.join(path, name)) for path in place)
            for name in ("cuda.h", "cuda_runtime_api.h", "crt/host_defines.h")
        ):
            return place
    sys.exit(
        "gmlake_torch: no cuda_runtime_api.h: set CUDA_HOME to the directory of a CUDA toolkit, "
        f"whose headers are of CUDA {torch.version.cuda} or close to it"
    )


class BuildPy(build_py):
    """Python reads a .pth file in site-packages when it starts: for GMLAKE_TORCH=1. The sources are
    for gmlake_torch.predict and gmlake_torch.plan."""

    def run(self):
        super().run()
        self.copy_file("gmlake_torch.pth", os.path.join(self.build_lib, "gmlake_torch.pth"))
        for name in PLAYED:
            path = os.path.join(self.build_lib, "gmlake_torch", "source", name)
            self.mkpath(os.path.dirname(path))
            self.copy_file(os.path.join(ROOT, name), path)


def extension():
    name, sources = "gmlake_torch._lake", ["gmlake_torch.cpp", "operators.cpp"]
    if not NEEDS_TORCH:
        return Extension(name, sources)
    check_release()
    return CppExtension(
        name,
        sources,
        depends=[os.path.join(ROOT, header) for header in ["gmlake.h", *SOURCES]]
        + ["gmlake_torch/operators.inc"],
        include_dirs=[ROOT, os.path.join(ROOT, "examples", "torch")] + cuda_includes(),
        # Two builds of one release may have other tables of functions.
        define_macros=[("GMLAKE_TORCH_COMMIT", f'"{torch.version.git_version}"')],
        libraries=["c10_cuda"],
        extra_compile_args=["-O3", "-fvisibility=hidden"],
    )


sdist = wheels.sdist_with(SOURCES + PLAYED, ["gmlake_torch.pth"])
commands = {"sdist": sdist, "build_py": BuildPy}
if NEEDS_TORCH:
    commands["build_ext"] = BuildExtension.with_options(use_ninja=False)

wheels.check_wheel("gmlake_torch")
os.chdir(HERE)
setup(
    name="gmlake-torch",
    version=wheels.version(),
    description="torch's device memory from lakes: an allocator that stitches",
    license="MIT",
    packages=["gmlake_torch"],
    package_data={"gmlake_torch": ["operators.inc"]},
    py_modules=["_gmlake_torch_hook"],
    python_requires=">=3.9",
    ext_modules=[extension()],
    cmdclass=commands,
    zip_safe=False,
)
