"""The figures of a head against plain formulas over the dense matrix."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from heedmap import AttentionMap, Axis, Causal, Sequence
from heedmap.analysis import figures as figures_module
from heedmap.analysis.segments import numbers_of
from heedmap.layers import Layer
from heedmap.look.figures import HeadFigures, measure
from heedmap.look.running import Run
from heedmap.seen import Seen

WORDS = ["<s>", "a", "rose", "is", "A", "rose", ",", "A", "</s>", ","]


def random_weights(layers: int, heads: int, size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(layers, heads, size, size, generator=generator).mul(2).softmax(-1)


def plain(weights: Tensor, related: Tensor) -> tuple[float, float]:
    """Return the mean share on related keys, and what distance does not explain of it."""
    size = len(weights)
    asking = int(related.any(1).sum())
    excess = share = 0.0
    for i in range(size):
        for j in range(size):
            if not related[i, j]:
                continue
            share += float(weights[i, j])
            others = [
                float(weights[k, k + j - i])
                for k in range(size)
                if 0 <= k + j - i < size and not related[k, k + j - i]
            ]
            if others:
                excess += float(weights[i, j]) - sum(others) / len(others)
    return share / asking, excess / asking


@pytest.mark.parametrize("strip_cells", [1, 40, 1 << 22])
def test_figures_of_a_text(
    strip_cells: int, text_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures_module, "STRIP_CELLS", strip_cells)
    weights = random_weights(2, 3, len(WORDS))
    found = measure(text_run(WORDS, weights))
    assert [(f.layer, f.head) for f in found] == [(i, j) for i in range(2) for j in range(3)]
    related = torch.zeros(10, 10, dtype=torch.bool)
    for i, j in ((1, 4), (1, 7), (4, 7), (2, 5)):
        related[i, j] = related[j, i] = True
    places = torch.arange(10)
    for f in found:
        w = weights[f.layer, f.head]
        share, excess = plain(w, related)
        assert f.entropy_nats == pytest.approx(float(torch.special.entr(w).sum(1).mean()), rel=1e-5)
        assert f.evenness == pytest.approx(f.entropy_nats / math.log(10), rel=1e-5)
        distance = (w * (places - places[:, None]).abs()).sum(1).mean()
        assert f.mean_distance == pytest.approx(float(distance), rel=1e-5)
        assert f.on_self == pytest.approx(float(w.diagonal().mean()), rel=1e-5)
        assert f.on_previous == pytest.approx(float(w.diagonal(-1).mean()), rel=1e-5)
        assert f.on_next == pytest.approx(float(w.diagonal(1).mean()), rel=1e-5)
        assert f.on_first == pytest.approx(float(w[1:, 0].mean()), rel=1e-5)
        assert f.on_special == pytest.approx(float(w[:, [0, 8]].sum(1).mean()), rel=1e-5)
        assert f.on_repeats == pytest.approx(share, rel=1e-5)
        assert f.repeats_beyond_distance == pytest.approx(excess, rel=1e-4, abs=1e-6)
        assert f.far is None
        assert f.prefers_alike is None


def timed_run(weights: Tensor, voices: list[int]) -> Run:
    """Return a run over moments of half a second, each with the features of its voice."""
    axis = Axis.of_seconds((i / 2, (i + 1) / 2) for i in range(len(voices)))
    generator = torch.Generator().manual_seed(1)
    values = torch.eye(3)[torch.tensor(voices)] + 0.1 * torch.rand(
        len(voices), 3, generator=generator
    )
    layers = (Layer("layer", "self", 0, 1, AttentionMap.from_weights(weights)),)
    return Run(
        "audio", "a.wav", axis, Seen(tuple), layers, "tiny", None, (), Sequence(values, axis)
    )


def test_figures_of_a_sound() -> None:
    voices = [0] * 8 + [1] * 8 + [0] * 8
    weights = random_weights(1, 2, 24)[0]
    run = timed_run(weights, voices)
    assert run.plain is not None
    segments = numbers_of(run.axis, run.plain)
    assert segments.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    places = torch.arange(24)
    far = (places - places[:, None]).abs() > 2
    own = segments == segments[:, None]
    products = (run.plain.values @ run.plain.values.T).masked_fill(~far, torch.nan)
    low, high = (products.nanquantile(q, dim=1, keepdim=True) for q in (1 / 3, 2 / 3))
    for f in measure(run):
        w = weights[f.head]
        share, excess = plain(w, own)
        assert f.on_own_segment == pytest.approx(share, rel=1e-5)
        assert f.own_segment_beyond_distance == pytest.approx(excess, rel=1e-4, abs=1e-6)
        assert f.far == pytest.approx(float((w * far).sum(1).mean()), rel=1e-5)
        more = w[products >= high][:, None] > w[products <= low]
        assert f.prefers_alike == pytest.approx(float(more.float().mean()), abs=1e-5)
        assert f.on_repeats is None


def test_a_head_that_follows_voices_prefers_what_is_alike() -> None:
    voices = torch.tensor([0] * 8 + [1] * 8 + [0] * 8)
    weights = (voices == voices[:, None]).float()
    weights = weights / weights.sum(1, keepdim=True)
    (f,) = measure(timed_run(weights[None], voices.tolist()))
    assert f.prefers_alike is not None
    assert f.prefers_alike > 0.8
    assert f.far is not None
    assert f.far > 0.5


@pytest.mark.parametrize("words", [["one"], ["<s>"], ["one", "two"]])
def test_very_short_inputs(words: list[str], text_run: Callable[..., Run]) -> None:
    weights = torch.full((1, 1, len(words), len(words)), 1 / len(words))
    (f,) = measure(text_run(words, weights))
    values = [v for v in vars(f).values() if v is not None]
    assert all(math.isfinite(v) for v in values)
    assert f.on_repeats is None


def test_one_moment() -> None:
    (f,) = measure(timed_run(torch.ones(1, 1, 1), [0]))
    assert (f.on_self, f.far, f.on_previous, f.prefers_alike) == (1.0, 0.0, 0.0, None)


def test_no_matrix_of_all_pairs_of_all_heads(forbid_dense: Any) -> None:
    query = torch.randn(8, 3000, 4)
    run = Run(
        "audio",
        "a.wav",
        axis := Axis.of_seconds((i / 50, (i + 1) / 50) for i in range(3000)),
        Seen(tuple),
        (Layer("layer", "self", 0, 1, AttentionMap.from_factors(query, query, mask=Causal())),),
        "tiny",
        None,
        (),
        Sequence(torch.randn(3000, 4), axis),
    )
    with forbid_dense(8 * 3000 * 3000 // 4):
        found = measure(run)
    assert len(found) == 8
    assert all(isinstance(f, HeadFigures) for f in found)
