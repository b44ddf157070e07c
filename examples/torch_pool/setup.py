"""Builds gmlake_pool, one wheel for every torch and every Python 3. It downloads nothing:

    python3 -m pip wheel --no-build-isolation --no-deps ./examples/torch_pool
    python3 -m pip install ./gmlake_pool-*.whl

To build needs a C compiler and setuptools (before 70.1 also wheel), neither torch nor a CUDA
toolkit. `python3 setup.py sdist` puts gmlake.h and what else is compiled into the archive."""
import importlib.util
import os
import shutil
import sys

import setuptools
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    bdist_wheel = None
    if importlib.util.find_spec("wheel"):
        from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
# Where gmlake.h is: beside the examples, or inside what sdist made.
ROOT = "source" if os.path.isdir(os.path.join(HERE, "source")) else os.path.join("..", "..")
SOURCES = ("gmlake.h", "examples/profile.h", "examples/record.h", "examples/torch/adapter.h",
           "examples/torch/calls.h", "examples/torch/gmlake_pluggable.c", "tests/cuda_stub/cuda.h",
           "LICENSE")


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


class Sdist(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for name in SOURCES:
            path = os.path.join(HERE, ROOT, name)
            if os.path.exists(path):
                target = os.path.join(base_dir, "source", name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(path, target)


commands = {"build_ext": BuildLibrary, "sdist": Sdist}
if bdist_wheel:

    class Wheel(bdist_wheel):
        def get_tag(self):
            return ("py3", "none", super().get_tag()[2])

    commands["bdist_wheel"] = Wheel
elif {"dist_info", "bdist_wheel"} & set(sys.argv):
    sys.exit(
        f"gmlake_pool: setuptools {setuptools.__version__} needs the package wheel to make one: "
        f"{sys.executable} -m pip install wheel"
    )

os.chdir(HERE)
setup(
    name="gmlake-pool",
    version="0.1.0",
    description="torch's memory from lakes, by CUDAPluggableAllocator",
    license="MIT",
    packages=["gmlake_pool"],
    python_requires=">=3.9",
    ext_modules=[
        Extension(
            "gmlake_pool._lake",
            ["lake.c"],
            depends=[os.path.join(ROOT, name) for name in SOURCES if name.endswith((".h", ".c"))],
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
