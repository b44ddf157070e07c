"""torch's way to build an extension, against the stub of its headers and the driver without a
device. operators.cpp is left out: it needs torch's own headers."""
import os

from setuptools import Extension
from setuptools.command.build_ext import build_ext

TESTS = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../.."))


def CppExtension(name, sources, include_dirs, libraries, extra_compile_args, **options):
    assert libraries == ["c10_cuda"]
    return Extension(
        name,
        [source for source in sources if source != "operators.cpp"],
        include_dirs=include_dirs + [os.path.join(TESTS, "clients", "torch_stub"), TESTS],
        language="c++",
        extra_compile_args=[*extra_compile_args, "-std=c++17", "-w"],
        extra_link_args=[os.path.join(os.environ["BUILD"], "fake", "libcuda.so.1")],
        **options,
    )


class BuildExtension(build_ext):
    @classmethod
    def with_options(cls, use_ninja):
        return cls
