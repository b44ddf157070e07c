"""Builds gmlake_pool, one wheel for every torch and every Python 3. It downloads nothing:

    python3 -m pip wheel --no-build-isolation --no-deps ./examples/torch_pool
    python3 -m pip install ./gmlake_pool-*.whl

To build needs a C compiler and setuptools (before 70.1 also wheel), neither torch nor a CUDA
toolkit. `python3 setup.py sdist` puts gmlake.h and what else is compiled into the archive."""
import importlib.util
import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    bdist_wheel = None
    if importlib.util.find_spec("wheel"):
        from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
# Where gmlake.h is: beside the examples, or inside what sdist made.
ROOT = "source" if os.path.isdir(os.path.join(HERE, "source")) else os.path.join("..", "..")
sys.path.insert(0, os.path.join(HERE, ROOT, "packaging"))
import wheels  # noqa: E402

SOURCES = ("examples/profile.h", "examples/record.h", "examples/torch/adapter.h",
           "examples/torch/calls.h", "examples/torch/gmlake_pluggable.c", "tests/cuda_stub/cuda.h")


def cuda_include():
    """cuda.h only names the driver's types: the driver is loaded when a lake is created. The
    project's own one names what the header needs."""
    homes = [home for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    for path in [os.path.join(home, "include") for home in homes]:
        if os.path.exists(os.path.join(path, "cuda.h")):
            return path
    return os.path.join(ROOT, "tests", "cuda_stub")


class BuildLibrary(build_ext):
    """A library that ctypes loads: it belongs to no version of Python."""

    def get_ext_filename(self, fullname):
        return os.path.join(*fullname.split(".")) + ".so"


commands = {"build_ext": BuildLibrary, "sdist": wheels.sdist_with(SOURCES)}
if bdist_wheel:

    class Wheel(bdist_wheel):
        def get_tag(self):
            return ("py3", "none", super().get_tag()[2])

    commands["bdist_wheel"] = Wheel

wheels.check_wheel("gmlake_pool")
os.chdir(HERE)
setup(
    name="gmlake-pool",
    version=wheels.version(),
    description="torch's memory from lakes, by CUDAPluggableAllocator",
    license="MIT",
    packages=["gmlake_pool"],
    python_requires=">=3.9",
    ext_modules=[
        Extension(
            "gmlake_pool._lake",
            ["lake.c"],
            depends=[os.path.join(ROOT, name) for name in ("gmlake.h", *SOURCES)],
            include_dirs=[
                ROOT, os.path.join(ROOT, "examples", "torch"), cuda_include()
            ],
            libraries=["pthread", "dl"],
            extra_compile_args=["-std=c99", "-O2", "-fvisibility=hidden", "-fexceptions"],
        )
    ],
    cmdclass=commands,
    zip_safe=False,
)
