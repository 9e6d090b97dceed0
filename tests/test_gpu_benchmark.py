"""The benchmark for GPUs, as far as it runs without one: on a CPU, with another clock."""

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

ROOT = Path(__file__).parents[1]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the program with small inputs on a CPU, and PyTorch's kernel for CPUs."""
    spec = importlib.util.spec_from_file_location("gpu", ROOT / "benchmarks/gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def seconds(call: Callable[[], object]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def flash(inputs: list[Tensor], is_causal: bool) -> Callable[[], object]:
        return lambda: F.scaled_dot_product_attention(*inputs, is_causal=is_causal)

    def inputs_of(length: int, heads: int, width: int) -> list[Tensor]:
        return list(torch.randn(3, 1, heads, length, width))

    for name, stand_in in (("seconds", seconds), ("flash", flash), ("inputs_of", inputs_of)):
        monkeypatch.setattr(module, name, stand_in)
    monkeypatch.setattr(module, "peak_gib", lambda call: call() and 0.0)
    monkeypatch.setattr(module, "LENGTHS", (16, 32))
    monkeypatch.setattr(module, "WIDTHS", (8,))
    monkeypatch.setattr(module, "NUMBERS", 256)
    monkeypatch.setattr(module, "MILLION", 48)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "No GPU")
    monkeypatch.setattr(module, "examine", lambda: {"torch": "2", "triton": "3"})
    return module


def test_a_table_and_figures_to_plan_with(
    gpu: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "gpu.json"
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--million", "--json", str(path)])
    gpu.main()
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "No GPU, torch 2, triton: 3"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in said[2:]]
    assert {len(row) for row in rows} == {10}
    assert [row[:3] for row in rows[2:]] == [
        ["16", "32 × 8", "all"],
        ["16", "32 × 8", "causal"],
        ["32", "32 × 8", "all"],
        ["32", "32 × 8", "causal"],
        ["48", "1 × 128", "causal"],
    ]
    assert all(float(cell) > 0 for row in rows[2:] for cell in row[3:4] + row[5:9])
    figures = json.loads(path.read_text(encoding="utf-8"))
    assert figures["device"] == "No GPU"
    assert figures["output_operations_per_second"] > 0
