"""Builds gmlake_cupy for the CuPy that is installed. It downloads nothing:

    python3 -m pip install --no-build-isolation ./examples/cupy

It needs a C compiler, setuptools (before 70.1 also wheel), and cuda.h: of CUDA_HOME,
/usr/local/cuda, or the nvidia packages that CuPy may have brought."""
import glob
import os
import sys
import sysconfig

from setuptools import Extension, setup

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")  # of gmlake.h
sys.path.insert(0, os.path.join(ROOT, "packaging"))
import wheels  # noqa: E402


def cuda_include():
    packages = os.path.join(sysconfig.get_paths()["purelib"], "nvidia", "*", "include")
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    places = [os.path.join(home, "include") for home in homes if home] + sorted(glob.glob(packages))
    for place in places:
        if os.path.exists(os.path.join(place, "cuda.h")):
            return place
    sys.exit("gmlake_cupy: no cuda.h: set CUDA_HOME to the directory of a CUDA toolkit")


wheels.check_wheel("gmlake_cupy")
setup(
    name="gmlake-cupy",
    version=wheels.version(),
    description="CuPy's device memory from lakes: an allocator that stitches",
    license="MIT",
    py_modules=["gmlake_cupy"],
    python_requires=">=3.9",
    ext_modules=[
        Extension(
            "_gmlake_cupy",
            ["gmlake_cupy.c"],
            depends=["../torch/gmlake_pluggable.c", "../torch/adapter.h"],
            include_dirs=[ROOT, cuda_include()],
            libraries=["pthread", "dl"],
            extra_compile_args=["-std=c99", "-O2", "-fvisibility=hidden", "-fexceptions"],
        )
    ],
    zip_safe=False,
)
