"""The tables of docs/scale.md are those of their script, whose arithmetic is what the page says."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks/scale.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look for the module that they are of.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_what_is_written(scale: ModuleType) -> None:
    page = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
    made = page.split(scale.START)[1].split(scale.END)[0]
    assert made.strip() == scale.tables([scale.H100_FA2, scale.H100_FA3]).strip()


def test_a_layer_on_eight_gpus_by_hand(scale: ModuleType) -> None:
    plan = scale.Plan(scale.H100_FA2, scale.Layer(), 10**6, 8)
    # 32 heads, half of 10¹² weights, two products of width 128, on eight GPUs.
    operations = 32 * 10**12 / 2 * 4 * 128 / 8
    assert plan.output_seconds == pytest.approx(operations / 335e12)
    # Seven times 125,000 keys and values of 8 heads of 128 numbers of two bytes; then the keys
    # again, with a float32 for each of 32 heads.
    assert plan.sent_bytes == 7 * 125_000 * (2 * 8 * 128 * 2 + 8 * 128 * 2 + 32 * 4)


def test_where_transfers_are_waited_for(scale: ModuleType) -> None:
    layer, device = scale.Layer(), scale.H100_FA3
    count = 128
    positions = round(scale.least_shard(device, layer, count)) * count
    assert scale.Plan(device, layer, positions, count).waits == pytest.approx(1, abs=1e-3)
    slow = scale.Plan(device, layer, positions // 10, count)
    assert slow.waits == pytest.approx(10, rel=1e-2)
    work = slow.output_seconds / slow.waits
    assert work == pytest.approx(slow.output_seconds / 10, rel=2e-2)


def test_measured_rates_take_the_place_of_published_ones(scale: ModuleType, tmp_path: Path) -> None:
    figures = {
        "device": "A GPU",
        "output_operations_per_second": 1e14,
        "statistics_seconds_per_cell": 2e-12,
    }
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(figures), encoding="utf-8")
    made = scale.tables([scale.measured(path)])
    assert made.startswith("**A GPU, measured**: output at 100 TFLOP/s, statistics at 2.00 ps")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, which would be timed")
def test_without_a_gpu_nothing_is_timed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "must run on a machine with a CUDA GPU; torch finds none here" in done.stderr
