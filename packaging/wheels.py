"""What setup.py of examples/torch, of examples/torch_pool and of examples/cupy have in common. It
lies in packaging/ of the repository, and of the folder `source` that an sdist carries."""
import importlib.util
import os
import re
import shutil
import sys

import setuptools
from setuptools.command.sdist import sdist

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # of gmlake.h


def version():
    """That of gmlake.h, as major.minor.patch."""
    with open(os.path.join(ROOT, "gmlake.h"), encoding="utf-8") as file:
        number = int(re.search(r"^#define GMLAKE_VERSION (\d+)", file.read(), re.M)[1])
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def check_wheel(name):
    """pip asks for a wheel. setuptools before 70.1 leaves that to another package."""
    if not {"dist_info", "bdist_wheel"} & set(sys.argv):
        return
    if any(map(importlib.util.find_spec, ("setuptools.command.bdist_wheel", "wheel"))):
        return
    sys.exit(
        f"{name}: setuptools {setuptools.__version__} needs the package wheel to make one: "
        f"{sys.executable} -m pip install wheel"
    )


def sdist_with(names, here=()):
    """The command sdist, whose archive has these files of the repository below `source`, and those
    of `here` beside setup.py: a wheel is built of the archive alone."""

    class Sdist(sdist):
        def make_release_tree(self, base_dir, files):
            super().make_release_tree(base_dir, files)
            for name in ("LICENSE", "gmlake.h", "packaging/wheels.py", *names):
                target = os.path.join(base_dir, "source", name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(os.path.join(ROOT, name), target)
            for name in here:
                shutil.copyfile(name, os.path.join(base_dir, name))

    return Sdist
