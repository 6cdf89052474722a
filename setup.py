"""Hooks build.py into setuptools; everything else is in pyproject.toml.

A `build` sub-command compiles native/ into `openjet_provider/_lib` (of the wheel, or of this tree
for an editable install). The libraries are opened with cffi in ABI mode and use no Python headers,
so one wheel serves every Python 3: tag py3-none-<platform>.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent


def load_native_build():
    """The project's build.py, under a name that cannot be mistaken for the PyPA package."""
    spec = importlib.util.spec_from_file_location("openjet_build", ROOT / "build.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class build_native(Command):
    """Compile the native libraries (follows setuptools.command.build.SubCommand)."""

    description = "compile native/"
    user_options: ClassVar = []

    def initialize_options(self):
        self.build_lib = None
        self.editable_mode = False
        self.files = []

    def finalize_options(self):
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self):
        native = load_native_build()
        out = Path(self.build_lib, "openjet_provider", "_lib").absolute()
        if self.editable_mode:
            out = native.PACKAGE_LIB
        else:
            shutil.rmtree(out, ignore_errors=True)  # nothing from an earlier build is shipped
        try:
            self.files = [os.path.relpath(path) for path in native.build_package(out)]
        except native.BuildError as error:
            raise CompileError(str(error)) from error

    def get_source_files(self):
        native = sorted(ROOT.glob("native/**/*.*"))
        return ["build.py", *(path.relative_to(ROOT).as_posix() for path in native)]

    def get_outputs(self):
        return [] if self.editable_mode else self.files

    def get_output_mapping(self):
        return {}


class NativeDistribution(Distribution):
    def has_ext_modules(self):  # platform-specific, although no extension is declared
        return True


class platform_wheel(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


build.sub_commands = [*build.sub_commands, ("build_native", None)]
setup(
    distclass=NativeDistribution,
    cmdclass={"build_native": build_native, "bdist_wheel": platform_wheel},
)
