"""Models in half precision, and under autocast."""

from typing import Any

import pytest
import torch

import heedmap

from .models import KINDS
from .test_models import same

NAMES = ["bert", "llama", "soft-cap", "sinks", "linear biases, baddbmm", "t5", "whisper"]
CASES = [
    (name, way) for name in NAMES for way in KINDS[name].implementations if way != "flex_attention"
]


def cast(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    return {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "implementation"), CASES)
def test_half_precision(name: str, implementation: str, dtype: torch.dtype) -> None:
    kind = KINDS[name]
    inputs = cast(kind.inputs, dtype)
    model = kind.make(implementation).to(dtype)
    with torch.no_grad():
        alone = model(**inputs)
        with heedmap.watch(model) as seen:
            watched = model(**inputs)
        slow = kind.make("eager").to(dtype)(**inputs, output_attentions=True)
    assert same(alone, watched)
    require_near(kind, seen, kind.weights(slow), dtype)


@pytest.mark.parametrize(("name", "implementation"), CASES)
def test_autocast(name: str, implementation: str) -> None:
    kind = KINDS[name]
    model, eager = kind.make(implementation), kind.make("eager")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        alone = model(**kind.inputs)
        with heedmap.watch(model) as seen:
            watched = model(**kind.inputs)
        slow = eager(**kind.inputs, output_attentions=True)
    assert same(alone, watched)
    require_near(kind, seen, kind.weights(slow), torch.bfloat16)


def require_near(kind: Any, seen: Any, expected: Any, dtype: torch.dtype) -> None:
    """Compare with weights that were rounded on their way, more than ours are."""
    assert tuple(seen.names) == kind.names
    for layer, dense in zip(seen.layers, expected, strict=True):
        assert layer.kept == "factors"
        assert layer.output_error is not None
        assert layer.output_error < 4 * torch.finfo(dtype).eps
        got, live = layer.weights.to_dense().float(), layer.weights.sum(-1) > 0
        tolerance = 8 * torch.finfo(dtype).eps
        torch.testing.assert_close(got[live], dense[live].float(), atol=tolerance, rtol=0)
