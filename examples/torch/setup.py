"""Builds gmlake_torch against the torch that is installed. It downloads nothing:

    python3 -m pip install --no-build-isolation ./examples/torch

It needs a C++ compiler, setuptools (before 70.1 also wheel), and the headers of the CUDA toolkit:
of CUDA_HOME, /usr/local/cuda, or the nvidia packages that torch depends on."""
import glob
import importlib.util
import os
import sys

import setuptools
from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")  # of gmlake.h
OLDEST, NEWEST = (2, 11), (2, 13)  # releases of torch that it is written for

os.environ.pop("GMLAKE_TORCH", None)  # the torch that is imported here needs no lake
try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError as error:
    sys.exit(
        f"gmlake_torch is built against the torch of this Python ({sys.executable}), and here is "
        f"none ({error}). Install torch, and then: {sys.executable} -m pip install "
        "--no-build-isolation ./examples/torch"
    )


def check_release():
    release = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if torch.version.cuda is None:
        sys.exit(f"gmlake_torch needs a torch that is built for CUDA; this is {torch.__version__}")
    if release < OLDEST:
        sys.exit(f"gmlake_torch needs torch 2.11 or later; this is {torch.__version__}")
    if release > NEWEST:
        print(
            f"gmlake_torch: torch {torch.__version__} is unknown: it was written for 2.11 to 2.13. "
            "If it does not compile, torch's interface has changed",
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
    """Python reads a .pth file in site-packages when it starts: for GMLAKE_TORCH=1."""

    def run(self):
        super().run()
        self.copy_file("gmlake_torch.pth", os.path.join(self.build_lib, "gmlake_torch.pth"))


def check_wheel():
    """pip asks for a wheel. setuptools before 70.1 leaves that to another package."""
    if not {"dist_info", "bdist_wheel"} & set(sys.argv):
        return
    if any(map(importlib.util.find_spec, ("setuptools.command.bdist_wheel", "wheel"))):
        return
    sys.exit(
        f"gmlake_torch: setuptools {setuptools.__version__} needs the package wheel to make one: "
        f"{sys.executable} -m pip install wheel"
    )


check_release()
check_wheel()
setup(
    name="gmlake-torch",
    version="0.1.0",
    description="torch's device memory from lakes: an allocator that stitches",
    license="MIT",
    packages=["gmlake_torch"],
    package_data={"gmlake_torch": ["operators.inc"]},
    py_modules=["_gmlake_torch_hook"],
    python_requires=">=3.9",
    ext_modules=[
        CppExtension(
            "gmlake_torch._lake",
            ["gmlake_torch.cpp", "operators.cpp"],
            depends=[path for folder in (HERE, ROOT) for path in glob.glob(f"{folder}/*.h*")]
            + ["gmlake_torch/operators.inc"],
            include_dirs=[ROOT] + cuda_includes(),
            # Two builds of one release may have other tables of functions.
            define_macros=[("GMLAKE_TORCH_COMMIT", f'"{torch.version.git_version}"')],
            libraries=["c10_cuda"],
            extra_compile_args=["-O3", "-fvisibility=hidden"],
        )
    ],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False), "build_py": BuildPy},
    zip_safe=False,
)
