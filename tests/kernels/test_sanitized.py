"""The kernels on random problems, compiled with the address and undefined-behaviour sanitizers."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from heedmap import compiled

HERE = Path(__file__).parent
SOURCE = compiled.FOLDER.parent
COMPILER = shutil.which("c++") or shutil.which("g++")
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fopenmp"]

# The last is what neither instruction set serves, as a machine of another kind would compile it.
SETS = {"x86_64": [*compiled.runnable(), "x86-64"]}.get(platform.machine(), [])


@pytest.mark.slow
@pytest.mark.skipif(
    COMPILER is None or not SETS,
    reason="the test compiles the kernels itself: that takes a C++ compiler, and a CPU for which "
    "they are written",
)
@pytest.mark.parametrize("name", SETS)
def test_random_problems_are_clean(name: str, tmp_path: Path) -> None:
    program = tmp_path / "sanitized"
    flags = ["-std=c++17", "-O1", "-g", f"-march={name}", f"-I{SOURCE}", *SANITIZED]
    command = [str(COMPILER), *flags, str(HERE / "sanitized.cpp"), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([program, "200", "1"], capture_output=True, text=True)
    assert done.stdout.strip() == "clean", done.stderr
