"""Models of transformers, watched, against the weights that they hand out on their slow path."""

from typing import Any

import pytest
import torch
from torch import Tensor

import heedmap
from heedmap import Mask
from heedmap.seen import Seen

from .dense import problem_of
from .models import KINDS, LENGTH, Kind

MODES = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "with gradients": torch.enable_grad,
}
CASES = [(name, way) for name, kind in KINDS.items() for way in kind.implementations]
# On a processor flex_attention refuses what requires gradients, and takes its time.
CASES_IN_MODES = [
    (*case, mode)
    for case in CASES
    for mode in MODES
    if case[1] != "flex_attention" or mode == "no_grad"
]


def tensors(output: Any) -> list[Tensor]:
    """Return what a model puts out beside weights and caches."""
    return [value for value in output.values() if isinstance(value, Tensor)]


def same(one: Any, other: Any) -> bool:
    """Whether two outputs are equal to the bit."""
    pairs = zip(tensors(one), tensors(other), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


def require_weights(kind: Kind, seen: Seen, expected: list[Tensor]) -> None:
    """Compare every layer with the weights that the slow path gave."""
    assert len(seen) == len(expected)
    for weights, dense in zip(seen, expected, strict=True):
        got = weights.to_dense()
        blind = kind.blind[:, None].expand(dense.shape[:-1])
        assert bool((got[blind] == 0).all())
        torch.testing.assert_close(got[~blind], dense[~blind], atol=1e-6, rtol=0)
        if kind is KINDS["sinks"]:
            assert bool((got.sum(-1) < 1).all())
        else:
            torch.testing.assert_close(got.sum(-1), (~blind).float(), atol=1e-6, rtol=0)


@pytest.mark.usefixtures("flex_without_compiler")
@pytest.mark.parametrize(("name", "implementation", "mode"), CASES_IN_MODES)
def test_weights_are_those_of_the_slow_path_and_outputs_those_of_the_model(
    name: str, implementation: str, mode: str
) -> None:
    kind, context = KINDS[name], MODES[mode]
    model = kind.make(implementation)
    with context():
        alone = model(**kind.inputs)
        with heedmap.watch(model) as seen:
            watched = model(**kind.inputs)
        after = model(**kind.inputs)
    assert same(alone, watched)
    assert same(alone, after)
    with torch.no_grad():
        slow = kind.make("eager")(**kind.inputs, output_attentions=True)
    require_weights(kind, seen, kind.weights(slow))


@pytest.mark.usefixtures("flex_without_compiler")
@pytest.mark.parametrize(("name", "implementation"), CASES)
def test_layers_are_named_and_checked(name: str, implementation: str) -> None:
    kind = KINDS[name]
    model = kind.make(implementation)
    with torch.no_grad(), heedmap.watch(model) as seen:
        model(**kind.inputs)
    assert tuple(seen.names) == kind.names
    assert tuple(layer.kind for layer in seen.layers) == kind.kinds
    assert seen.missed == []
    for layer in seen.layers:
        assert layer.calls == 1
        assert layer.kept == "factors"
        assert layer.output_error < 1e-6
        # A table that the model makes to hide pairs is not kept as one.
        mask = problem_of(layer.weights).mask
        assert all(x.numel() < LENGTH * LENGTH for x in tensors_of(mask))


def tensors_of(mask: Mask | None) -> list[Tensor]:
    """Return all tensors that a mask is made of."""
    found: list[Tensor] = []
    for part in [] if mask is None else vars(mask).values():
        if isinstance(part, Mask):
            found += tensors_of(part)
        elif isinstance(part, Tensor):
            found.append(part)
    return found
