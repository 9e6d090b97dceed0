"""What holds for every problem, on every kernel that takes it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Mask, Padding, Visible, places
from heedmap.kernels import tiles
from heedmap.kernels.fused import cpu as fused
from heedmap.masks import Causal, Spans, Window

from .strategies import (
    BACKENDS,
    POSITIONS,
    SEEDS,
    STRIDES,
    TOLERANCE,
    Case,
    cases,
    close,
    generator,
    laid_out,
    plain,
    sizes,
)

backends = pytest.mark.parametrize("backend", BACKENDS)


def exactness(case: Case) -> float:
    """Of what is computed from the factors, and not rounded to their number type."""
    return 1e-11 if case.query.dtype == torch.float64 else 1e-5


@backends
@given(case=cases())
def test_weights_and_output_are_those_of_the_formula(backend: str, case: Case) -> None:
    if not case.serves(backend):
        return
    output, weights = case.attend(backend)
    expected = plain(case)
    rounded = TOLERANCE[case.query.dtype]
    assert output.dtype == weights.dtype == case.query.dtype
    assert output.shape == expected.output.shape
    close(output, expected.output, rounded + expected.rounding)
    dense = weights.to_dense()
    close(dense, expected.weights, rounded)
    close(weights.log_normalizer, expected.log_normalizer, exactness(case))
    assert bool((dense[~case.visible] == 0).all())
    if "sinks" not in case.options:
        sees = case.visible.any(-1)
        close(weights.double().sum(-1), sees.double(), exactness(case))
        assert bool((weights.sum(-1)[~sees] == 0).all())
    close(weights @ values_of_heads(case), output, 2 * rounded + expected.rounding)


def values_of_heads(case: Case) -> Tensor:
    """Return the values, one for each head of the queries."""
    return case.value.repeat_interleave(case.query.shape[1] // case.value.shape[1], 1)


def answers(weights: AttentionMap) -> dict[str, Tensor]:
    """Everything that streams over blocks, where there is a block."""
    rows, keys = weights.shape[-2:]
    found = {
        "row sums": weights.sum(-1),
        "received": weights.received(),
        "entropy": weights.entropy(),
        "whole": weights.sum(),
        "mean of heads": weights.mean(1).to_dense(),
        "values": weights @ torch.arange(3.0 * keys, dtype=weights.dtype).reshape(keys, 3),
    }
    if rows and keys:
        summary = weights.summarize(top=min(keys, 3), pool=(2, 3))
        assert summary.top_weights is not None
        assert summary.pooled is not None
        found |= {
            "largest": weights.amax(-1),
            "largest of columns": weights.amax(-2),
            "top": weights.topk(min(keys, 2)).values,
            "pooled": weights.pool(3, 2),
            "largest of blocks": weights.pool(2, 3, how="max"),
            "received, in one pass": summary.received,
            "entropy, in one pass": summary.entropy,
            "top, in one pass": summary.top_weights,
            "pooled, in one pass": summary.pooled,
        }
    return found


@backends
@given(case=cases(), cells=st.sampled_from([1, 8, 100]), side=st.sampled_from([1, 3, 16]))
def test_the_answer_does_not_depend_on_the_size_of_tiles(
    backend: str, case: Case, cells: int, side: int
) -> None:
    if not case.serves(backend):
        return
    whole = case.attend(backend)
    expected = answers(whole[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "CELLS", cells)
        patch.setattr(places, "LEAST_SIDE", side)
        for module in (places, fused, tiles):
            patch.setattr(module, "SIDE", side)
        patch.setattr(fused, "PIECE_CELLS", 2 * cells)
        patch.setattr(fused, "NARROWEST", side)
        output, weights = case.attend(backend)
        found = answers(weights)
    rounded = TOLERANCE[case.query.dtype]
    close(output, whole[0], rounded + plain(case).rounding)
    for name, answer in found.items():
        magnitude = 1 + float(expected[name].abs().amax()) if answer.numel() else 1
        close(answer / magnitude, expected[name] / magnitude, rounded)


@backends
@given(
    case=cases(positions=POSITIONS, extreme=False), stride=st.sampled_from(STRIDES[1:]), extra=SEEDS
)
def test_strides_do_not_matter(backend: str, case: Case, stride: str, extra: int) -> None:
    if not case.serves(backend):
        return
    laid = [laid_out(tensor, stride) for tensor in case.inputs]
    made = [tensor.contiguous().requires_grad_() for tensor in case.inputs]
    laid = [tensor.requires_grad_() for tensor in laid]
    results = []
    for inputs in (laid, made):
        output, weights = heedmap.attention(*inputs, **case.options, backend=backend)
        up = torch.randn(output.shape, generator=generator(extra)).to(output.dtype)
        loss = (output * up).sum() + weights.entropy().sum()
        results.append((output, weights.to_dense(), *torch.autograd.grad(loss, inputs)))
    for one, other in zip(*results, strict=True):
        close(one, other, 10 * TOLERANCE[case.query.dtype])


def seen_by_anyone(case: Case) -> Tensor:
    """`[batch, kv_heads, key]`: the slots that some query of some head sees."""
    seen = case.visible.any(2)
    return seen.unflatten(1, (case.key.shape[1], -1)).any(2)


@backends
@given(
    case=cases(positions=POSITIONS, extreme=False),
    junk=st.sampled_from([math.nan, math.inf, -math.inf, 3e4]),
)
def test_what_stands_in_a_hidden_slot_reaches_nothing(
    backend: str, case: Case, junk: float
) -> None:
    hidden = ~seen_by_anyone(case)[..., None]
    dirty = [t.masked_fill(hidden, junk) for t in (case.key, case.value)]
    results = []
    for key, value in ((case.key, case.value), dirty):
        leaves = [t.detach().requires_grad_() for t in (case.query, key, value)]
        tried = Case(leaves[0], leaves[1], leaves[2], case.options, case.visible)
        if not tried.serves(backend):
            return
        output, weights = tried.attend(backend)
        loss = output.square().sum() + weights.entropy().sum() + weights.received().square().sum()
        results.append((output, weights.to_dense(), *torch.autograd.grad(loss, leaves)))
    for one, other in zip(*results, strict=True):
        close(other, one, 10 * TOLERANCE[case.query.dtype])
    for gradient in results[1][3:]:
        assert bool((gradient.masked_select(hidden) == 0).all())


FORMS = ("table", "bias", "padding", "spans")


@backends
@given(
    case=cases(positions=POSITIONS, masked=False),
    form=st.sampled_from(FORMS),
    extra=st.integers(1, 9),
    at=st.sampled_from(["before", "after"]),
)
def test_hidden_keys_can_be_added_and_removed(
    backend: str, case: Case, form: str, extra: int, at: str
) -> None:
    case.options.pop("bias", None)
    if not case.serves(backend):
        return
    batch, keys = case.key.shape[0], case.key.shape[2]
    new = torch.arange(keys + extra) < extra if at == "before" else torch.arange(-keys, extra) >= 0

    def longer(tensor: Tensor) -> Tensor:
        more = torch.full((*tensor.shape[:2], extra, tensor.shape[3]), math.nan).to(tensor.dtype)
        return torch.cat([more, tensor] if at == "before" else [tensor, more], 2)

    queries = case.query.shape[2]
    options: dict[str, Mask | Tensor] = {}
    if form == "table":
        options["mask"] = Visible((~new).expand(queries, -1))
    elif form == "bias":
        options["bias"] = torch.zeros(queries, keys + extra).masked_fill(new, -math.inf)
    elif form == "padding":
        options["mask"] = Padding((~new).expand(batch, -1))
    else:
        first = torch.full((1, 1, 1), extra if at == "before" else 0)
        options["mask"] = Spans(first, first + keys - 1)
    output, weights = case.attend(backend)
    changes = {"key": longer(case.key), "value": longer(case.value), **options}
    grown = Case(case.query, changes["key"], changes["value"], case.options | options, case.visible)
    if not grown.serves(backend):
        return
    longer_output, longer_weights = grown.attend(backend)
    close(longer_output, output, TOLERANCE[case.query.dtype] + plain(case).rounding)
    close(longer_weights[..., ~new], weights, TOLERANCE[case.query.dtype])
    assert bool((longer_weights.to_dense()[..., new] == 0).all())


@backends
@given(data=st.data())
def test_each_sample_of_a_padded_batch_is_as_if_alone(backend: str, data: st.DataObject) -> None:
    size = data.draw(sizes(POSITIONS))
    case = data.draw(cases(size, masked=False, extreme=False))
    case.options.pop("bias", None)
    lengths = [data.draw(st.integers(0, size.keys)) for _ in range(size.batch)]
    left = data.draw(st.booleans())
    kind = data.draw(st.sampled_from([None, Causal, Window]))
    places_of_keys = torch.arange(size.keys)
    valid = torch.stack(
        [places_of_keys >= size.keys - n if left else places_of_keys < n for n in lengths]
    )
    mask: Mask = Padding(valid)
    case.options["mask"] = mask if kind is None else mask & further(kind, 0)
    dirty = [t.masked_fill(~valid[:, None, :, None], math.nan) for t in (case.key, case.value)]
    if not case.serves(backend):
        return
    output, weights = case.attend(backend, key=dirty[0], value=dirty[1])
    for sample, marks in enumerate(valid):
        # Where the keys begin later, query 0 stands so much before their first.
        begin = int(size.keys - lengths[sample]) if left else 0
        alone = Case(
            *(t[sample : sample + 1] for t in (case.query, case.key[..., marks, :])),
            case.value[sample : sample + 1, :, marks],
            case.options | {"mask": None if kind is None else further(kind, -begin)},
            case.visible,
        )
        own_output, own_weights = alone.attend(backend if alone.serves(backend) else "auto")
        close(output[sample], own_output[0], TOLERANCE[case.query.dtype])
        close(weights[sample][..., marks], own_weights[0], TOLERANCE[case.query.dtype])
        assert bool((weights[sample].to_dense()[..., ~marks] == 0).all())


def further(kind: type[Causal] | type[Window], alignment: int) -> Mask:
    return Causal(alignment) if kind is Causal else Window(alignment, before=3, after=2)


@backends
@given(case=cases())
def test_asking_for_weights_changes_no_output(backend: str, case: Case) -> None:
    if not case.serves(backend):
        return
    unread = case.attend(backend)[0]
    output, weights = case.attend(backend)
    kept = output.clone()
    before = [tensor.clone() for tensor in case.inputs]
    answers(weights)
    assert torch.equal(output, kept)
    assert torch.equal(output, unread)
    assert torch.equal(case.attend(backend)[0], unread)
    for tensor, same in zip(case.inputs, before, strict=True):
        assert torch.equal(tensor, same)
    factors = AttentionMap.from_factors(case.query, case.key, **case.options)
    close(factors, weights, TOLERANCE[case.query.dtype])


@backends
@given(
    size=sizes(POSITIONS),
    scores=st.sampled_from([1e4, -1e4, 3e4, 1e-4]),
    seed=SEEDS,
    hides=st.sampled_from(["bias", "mask"]),
)
def test_one_that_is_visible_among_many_that_are_not(
    backend: str, size: object, scores: float, seed: int, hides: str
) -> None:
    shape = size.batch, size.heads, size.queries, size.keys
    batch, heads, queries, keys = shape
    query = torch.full((batch, heads, queries, 4), 50.0)
    key = torch.full((batch, heads, keys, 4), scores / 200)
    value = torch.randn((batch, heads, keys, 3), generator=generator(seed))
    chosen = torch.randint(0, keys, (batch, heads, queries), generator=generator(seed + 1))
    visible = torch.arange(keys) == chosen[..., None]
    options = (
        {"mask": Visible(visible)}
        if hides == "mask"
        else {"bias": torch.zeros(shape).masked_fill(~visible, -math.inf)}
    )
    case = Case(query, key, value, options | {"scale": 1.0}, visible)
    if not case.serves(backend):
        return
    output, weights = case.attend(backend)
    assert torch.equal(weights.to_dense(), visible.float())
    assert torch.equal(weights.entropy(), torch.zeros(batch, heads, queries))
    close(output, value.gather(2, chosen[..., None].expand(*shape[:3], 3)), 1e-6)
