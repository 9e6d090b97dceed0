"""The table of docs/exactness.md is made by its script, and holds what the project promises."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from heedmap.kernels.differentiable import KERNELS

ROOT = Path(__file__).parents[1]


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("exactness", ROOT / "benchmarks/exactness.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Row = tuple[str, int, str, dict[str, float]]


def written() -> list[Row]:
    """Return number type, positions, contestant and errors of each row."""
    made, columns, dtype = [], program().COLUMNS, ""
    for line in (ROOT / "docs/exactness.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("### "):
            dtype = line.removeprefix("### ")
        elif re.match(r"\| \d+ \|", line):
            length, name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            errors = {c: float(x) for c, x in zip(columns, cells, strict=True) if x != "–"}
            made.append((dtype, int(length), name, errors))
    return made


def require_promises(rows: list[Row]) -> None:
    """No weight is further off than the output of the fused kernel; no output much further."""
    fused = {
        (dtype, length): errors["output"]
        for dtype, length, name, errors in rows
        if name.endswith("scaled_dot_product_attention")
    }
    for dtype, length, name, errors in rows:
        if name.startswith("heedmap"):
            allowed = fused[dtype, length]
            assert errors["weights"] <= allowed, (dtype, length, name)
            assert errors["top weights"] <= 2 * allowed, (dtype, length, name)
            assert errors["output"] <= 1.5 * allowed, (dtype, length, name)
            assert len(errors) == 7


def test_what_is_written() -> None:
    rows = written()
    assert {dtype for dtype, *_ in rows} == {"float64", "float32", "bfloat16", "float16"}
    assert {length for _, length, *_ in rows} == {128, 1024, 4096}
    names = {name.removeprefix("heedmap, ") for _, _, name, _ in rows}
    assert set(KERNELS) <= names
    require_promises(rows)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_what_the_program_finds_here(dtype: torch.dtype) -> None:
    with torch.inference_mode():
        found = list(program().rows(200, dtype))
    assert len(found) >= 5
    require_promises([(str(dtype), 200, name, errors) for name, errors in found])


def test_the_table_goes_between_its_markers() -> None:
    exactness = program()
    text = f"before\n{exactness.START}\nold\n{exactness.END}\nafter\n"
    made = exactness.written_into(text, "new")
    assert made == f"before\n{exactness.START}\n\nnew\n{exactness.END}\nafter\n"
    assert exactness.written_into(made, "new") == made
