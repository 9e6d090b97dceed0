"""A program that compiles Triton's kernel for kinds of GPUs that need not be there.

    python tests/kernels/compiled.py ARCHITECTURE NUMBERS WIDTH TOP

It prints how many instructions of tensor cores there are, and how many bytes each thread keeps
outside its registers.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
import triton.backends.nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from heedmap.kernels.triton import gather, tile_for

POINTERS = {
    **dict.fromkeys(("first", "last", "cuts", "row_bins", "column_bins", "maxima"), "i32"),
    **dict.fromkeys(("starts", "received", "entropy", "sums"), "fp32"),
    "valid": "u8",
    "strongest": "i64",
}
ABSENT = ("bias", "visible")
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def compiled(architecture: int, numbers: str, width: int, top: int) -> dict[str, int]:
    kernel, tile = gather.make(), tile_for(TYPES[numbers], top)
    constants = {
        "WIDTH": width,
        "TOP": top,
        "HELD": triton.next_power_of_2(max(top, 1)),
        "WIDEN": False,
        "LINES": tile.lines,
        "COLUMNS": tile.columns,
        "PART": max(min(triton.next_power_of_2(width), tile.part), 16),
    } | dict.fromkeys(ABSENT)
    pointers = POINTERS | {"query": numbers, "key": numbers}
    signature = {}
    for parameter in kernel.params:
        name = parameter.name
        if name in constants:
            signature[name] = "constexpr"
        elif name in pointers:
            signature[name] = f"*{pointers[name]}"
        else:
            signature[name] = "fp32" if name == "scale" else "i32"
    made = triton.compile(
        ASTSource(kernel, signature, constants),
        target=GPUTarget("cuda", architecture, 32),
        options={"num_warps": tile.warps},
    )
    tool = Path(triton.backends.nvidia.__file__).with_name("bin") / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        said = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    [spilt] = re.findall(r"STACK:(\d+)", said)
    return {
        "products": len(re.findall(r"\b(?:wgmma\.mma_async|mma\.sync)", made.asm["ptx"])),
        "spilt": int(spilt),
    }


if __name__ == "__main__":
    architecture, numbers, width, top = sys.argv[1:]
    print(json.dumps(compiled(int(architecture), numbers, int(width), int(top))))
