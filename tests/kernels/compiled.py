"""A program that compiles Triton's kernel for a kind of GPU that need not be there.

    python tests/kernels/compiled.py ARCHITECTURE

The statistics of several problems are asked for as ever. In place of a driver stands one that says
that there is such a GPU, and what would be started is only compiled. It prints, for each problem,
how many instructions of tensor cores there are and how many bytes a thread keeps outside registers.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
import triton.backends.nvidia
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

import heedmap
from heedmap.kernels import triton as ours
from heedmap.kernels.statistics import Wanted
from heedmap.kernels.triton import gather
from heedmap.problem import make_problem


class Driver:
    """What Triton asks before it compiles."""

    def __init__(self, architecture: int) -> None:
        self.architecture = architecture

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return 0


class Compiling:
    """The kernel, which is compiled for its arguments where it would be started with them."""

    def __init__(self) -> None:
        self.kernel = gather.make()
        self.made: Any = None

    def __getitem__(self, grid: tuple[int, int]) -> Any:
        def start(*arguments: Any, **options: Any) -> None:
            self.made = self.kernel.warmup(*arguments, grid=grid, **options)

        return start


PROBLEMS: dict[str, tuple[torch.dtype, int, int, dict[str, Any]]] = {
    "plain": (torch.bfloat16, 64, 8, {}),
    "causal, odd width": (torch.bfloat16, 33, 0, {"mask": heedmap.Causal("end")}),
    "wide": (torch.float16, 256, 1, {"mask": heedmap.Padding(torch.ones(2, 150))}),
    "float32": (torch.float32, 128, 8, {"mask": heedmap.Causal("end")}),
    "everything": (
        torch.bfloat16,
        64,
        3,
        {
            "mask": heedmap.Causal("end") & heedmap.Visible(torch.rand(2, 4, 100, 150) < 0.5),
            "bias": torch.randn(1, 4, 100, 150),
        },
    ),
}


def spilt(cubin: bytes) -> int:
    tool = Path(triton.backends.nvidia.__file__).with_name("bin") / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    [found] = re.findall(r"STACK:(\d+)", said)
    return int(found)


def compiled(dtype: torch.dtype, width: int, top: int, options: dict[str, Any]) -> dict[str, int]:
    compiling = Compiling()
    gather.make = lambda: compiling
    given: dict[str, Any] = {"scale": None, "soft_cap": None, "bias": None, "sinks": None}
    query, key = (
        torch.zeros(2, 4, 100, width, dtype=dtype),
        torch.zeros(2, 2, 150, width, dtype=dtype),
    )
    problem, _ = make_problem(query, key, None, **{"mask": None} | given | options)
    picture = torch.arange(100) // 10, torch.arange(150) // 10
    ours.statistics(problem, torch.zeros(8, 100), Wanted(True, True, top, picture, True, True))
    made = compiling.made.asm
    products = len(re.findall(r"\b(?:wgmma\.mma_async|mma\.sync)", made["ptx"]))
    return {"products": products, "spilt": spilt(made["cubin"])}


if __name__ == "__main__":
    driver.set_active(Driver(int(sys.argv[1])))
    kernel = gather.make
    found = {}
    for name, problem in PROBLEMS.items():
        gather.make = kernel
        found[name] = compiled(*problem)
    print(json.dumps(found))
