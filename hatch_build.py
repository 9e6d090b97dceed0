"""Compiles heedmap's own kernels when it is installed, where there is a compiler.

Without one, or where it fails, heedmap is installed without them and computes with PyTorch's.
"""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/heedmap/kernels/native")
BUILT = SOURCE / "built"

FLAGS = ["-std=c++17", "-O3", "-shared", "-fPIC", "-fopenmp"]
SETS = {
    "x86_64": {"x86-64-v4": ["-mprefer-vector-width=512"], "x86-64-v3": []},
    "aarch64": {"armv8-a": []},
}


class Kernels(BuildHookInterface):
    """Puts a library for each instruction set of this kind of machine beside the source."""

    def initialize(self, version, build_data):
        """Compile, and put what came of it into the wheel."""
        del version
        root = Path(self.root)
        sets, compiler = self.sets(), self.compiler()
        if sets and not compiler:
            self.app.display_warning("heedmap: no C++ compiler was found; without own kernels")
        made = [name for name in sets if compiler and self.compile(root, compiler, name)]
        for old in (root / BUILT).glob("*"):
            if old.stem.removeprefix("attend-") not in made:
                old.unlink()
        if made:
            self.app.display_info(f"heedmap: compiled kernels for {', '.join(made)}")
            build_data["artifacts"].append(f"{BUILT.as_posix()}/*")
            build_data["pure_python"] = False
            tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{tag}"

    def sets(self):
        """Return the instruction sets worth compiling for here, and their flags."""
        if sys.platform != "linux":
            self.app.display_warning("heedmap: kernels are compiled on Linux only; without them")
            return {}
        return SETS.get(platform.machine(), {})

    def compiler(self):
        """Return the command that compiles C++, None where there is none."""
        return os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")

    def compile(self, root, compiler, name):
        """Compile for one instruction set; return whether that worked.

        The file takes the place of an older one at once, for that may be in use.
        """
        (root / BUILT).mkdir(exist_ok=True)
        target = root / BUILT / f"attend-{name}.so"
        part = target.with_suffix(".part")
        machine = [f"-march={name}", *SETS[platform.machine()][name]]
        sources = sorted(map(str, (root / SOURCE).glob("*.cpp")))
        command = [*compiler.split(), *FLAGS, *machine, "-o", str(part), *sources]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            part.unlink(missing_ok=True)
            self.app.display_warning(f"heedmap: {name} could not be compiled:\n{done.stderr}")
            return False
        part.replace(target)
        return True
