"""The kernel's statistics of weights: any of them, of any rows, alone or with the output."""

import itertools
import math
import random

import pytest
import torch
from torch import Tensor

from heedmap import AttentionMap, Causal, Padding
from heedmap.bins import Bins
from heedmap.kernels import native
from heedmap.kernels.native import Found, Wanted
from heedmap.problem import Problem, make_problem
from tests.kernels.test_native import pytestmark as pytestmark
from tests.kernels.test_native import random_mask, strided


def random_problem(seed: int) -> tuple[Problem, Tensor]:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    kv_heads = draw.choice([1, 2, 3])
    heads = kv_heads * draw.choice([1, 2])
    batch, queries, keys = draw.choice([1, 2]), draw.randint(1, 150), draw.randint(1, 300)
    width, value_width = draw.choice([1, 8, 16, 33]), draw.choice([1, 5, 20])
    bias = None
    if draw.random() < 0.3:
        bias = torch.randn([draw.choice([1, n]) for n in (batch, heads, queries, keys)])
    problem, value = make_problem(
        strided((batch, heads, queries, width), draw),
        strided((batch, kv_heads, keys, width), draw),
        strided((batch, kv_heads, keys, value_width), draw),
        mask=random_mask(draw, batch, heads, queries, keys),
        scale=draw.choice([None, 2.0, -0.5]),
        soft_cap=None,
        bias=bias,
        sinks=None,
    )
    assert value is not None
    return problem, value


def bins(queries: int, keys: int, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    cpu = torch.device("cpu")
    sides = Bins(queries, min(rows, queries)), Bins(keys, min(keys, columns))
    return sides[0].of(range(queries), cpu), sides[1].of(range(keys), cpu)


def everything(problem: Problem, top: int, rows: int = 20, columns: int = 30) -> Wanted:
    _, _, queries, keys = problem.extent
    return Wanted(
        received=True,
        entropy=True,
        top=min(top, keys),
        bins=bins(queries, keys, rows, columns),
        sums=True,
        maxima=True,
    )


def same(one: Found, other: Found) -> bool:
    pairs = zip(one, other, strict=True)
    return all((a is b) if a is None or b is None else torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("seed", range(60))
def test_pictures_of_sums_and_maxima(seed: int) -> None:
    problem, value = random_problem(seed)
    normalizer = native.forward(problem, value)[1].flatten(0, 1)
    draw = random.Random(seed)
    wanted = everything(problem, 3, draw.randint(1, 150), draw.randint(1, 300))
    found = native.statistics(problem, normalizer, wanted)
    assert wanted.bins is not None
    dense = AttentionMap.from_factors(
        problem.query.double(),
        problem.key.double(),
        mask=problem.mask,
        scale=problem.scoring.scale,
        bias=None if problem.scoring.bias is None else problem.scoring.bias.double(),
    ).to_dense()
    exact = AttentionMap.from_weights(dense.flatten(0, 1))
    size = [int(numbers[-1]) + 1 for numbers in wanted.bins]
    for answer, how in ((found.sums, "sum"), (found.maxima, "max")):
        assert answer is not None
        torch.testing.assert_close(answer.double(), exact.pool(*size, how), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_strips_are_parts_of_the_whole(seed: int) -> None:
    problem, value = random_problem(seed)
    batch, heads, queries, _ = problem.extent
    normalizer = native.forward(problem, value)[1].flatten(0, 1)
    wanted = everything(problem, 4, rows=queries)
    whole = native.statistics(problem, normalizer, wanted)
    draw = random.Random(seed)
    start = draw.randint(0, queries - 1)
    rows = range(start, draw.randint(start + 1, queries))
    first = draw.randint(0, batch * heads - 1)
    matrices = range(first, draw.randint(first + 1, batch * heads))
    assert wanted.bins is not None
    strip = native.statistics(
        problem,
        normalizer[first : matrices.stop, start : rows.stop],
        wanted._replace(bins=(torch.arange(len(rows)), wanted.bins[1])),
        matrices=matrices,
        rows=rows,
    )
    # With one line of the picture for each row, no line adds up what several blocks had.
    for part, answer in zip(strip[1:], whole[1:], strict=True):
        assert part is not None
        assert answer is not None
        part_of_it = answer[first : matrices.stop, start : rows.stop]
        torch.testing.assert_close(part, part_of_it, atol=2e-6, rtol=1e-6)
    assert strip.received is not None
    assert strip.sums is not None
    torch.testing.assert_close(strip.received.sum(1), strip.sums.sum((1, 2)), atol=1e-4, rtol=1e-5)


def test_any_of_them() -> None:
    problem, value = random_problem(3)
    normalizer = native.forward(problem, value)[1].flatten(0, 1)
    every = everything(problem, 5)
    whole = native.statistics(problem, normalizer, every)
    for asked in itertools.product([True, False], repeat=5):
        received, entropy, top, sums, maxima = asked
        wanted = Wanted(received, entropy, every.top * top, every.bins, sums, maxima)
        chosen = [received, entropy, top, top, sums, maxima]
        expected = [answer if wish else None for answer, wish in zip(whole, chosen, strict=True)]
        assert same(native.statistics(problem, normalizer, wanted), Found(*expected))


@pytest.mark.parametrize("kept_keys", [0, native.KEPT_KEYS])
@pytest.mark.parametrize("top", [0, 1, 8, 33])
def test_with_the_output_all_is_the_same_to_the_bit(
    kept_keys: int, top: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "KEPT_KEYS", kept_keys)
    for seed in range(100, 140):
        problem, value = random_problem(seed)
        assert native.attends(problem, value)
        wanted = everything(problem, top)
        output, normalizer = native.forward(problem, value)
        found = native.attend(problem, value, wanted)
        assert torch.equal(found[0], output)
        assert torch.equal(found[1], normalizer)
        if top or not kept_keys:
            assert same(found[2], native.statistics(problem, normalizer.flatten(0, 1), wanted))


def error(found: Found, exact: Found) -> float:
    """Return the root of the mean square of all differences."""
    pairs = zip(found, exact, strict=True)
    parts = [(a - b).flatten() for a, b in pairs if a is not None and b is not None]
    return float(torch.cat(parts).square().mean().sqrt())


@pytest.mark.parametrize("offset", [0.0, 20.0])
def test_weights_that_were_kept_are_as_exact_as_those_made_again(offset: float) -> None:
    """Without `top`, what is kept of a block of rows are its weights, before they are divided."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 4, 1000, 32)
    # The same is added to all scores, and taken away by the softmax.
    query[..., 0], key[..., 0] = offset, 5.0
    given = [query, key, value]
    problems = [
        make_problem(
            *(t.to(dtype) for t in given),
            mask=Causal(),
            scale=None,
            soft_cap=None,
            bias=None,
            sinks=None,
        )[0]
        for dtype in (torch.float32, torch.float64)
    ]
    wanted = everything(problems[0], 0, rows=50, columns=60)
    _, normalizer, kept = native.attend(problems[0], value, wanted)
    again = native.statistics(problems[0], normalizer.flatten(0, 1), wanted)
    assert wanted.bins is not None
    weights = AttentionMap.from_factors(
        problems[1].query, problems[1].key, mask=Causal()
    ).to_dense()
    dense = AttentionMap.from_weights(weights.flatten(0, 1))
    size = [int(numbers[-1]) + 1 for numbers in wanted.bins]
    exact = Found(
        dense.received(),
        dense.entropy(),
        None,
        None,
        dense.pool(*size, "sum"),
        dense.pool(*size, "max"),
    )
    assert error(kept, exact) <= error(again, exact)


@pytest.mark.parametrize("factor", [0.0, 1e-3, 30.0])
def test_what_is_foreseen_hides_no_strong_key(factor: float) -> None:
    """Equal weights, weights that differ in their last bits, and rows of one key."""
    query, key = torch.randn(1, 1, 60, 4) * factor, torch.randn(1, 1, 5, 4).repeat(1, 1, 140, 1)
    problem, value = make_problem(
        query, key, key, mask=None, scale=None, soft_cap=None, bias=None, sinks=None
    )
    assert value is not None
    for top in (1, 8, 32):
        _, normalizer, found = native.attend(problem, value, Wanted(top=top))
        weights = AttentionMap.from_factors(query, key).to_dense().flatten(0, 1)
        ordered = weights.sort(dim=-1, descending=True, stable=True)
        assert found.top_weights is not None
        assert found.top_keys is not None
        torch.testing.assert_close(found.top_weights, ordered.values[..., :top])
        # A key that comes again every five has each time the same weight: the first ones are taken.
        assert bool((found.top_keys.sort(-1).values // 5 <= top).all())
        again = native.statistics(problem, normalizer.flatten(0, 1), Wanted(top=top))
        assert same(found, again)


def test_what_is_not_a_number_is_the_largest() -> None:
    query = torch.randn(1, 1, 70, 8)
    query[0, 0, 33] = math.nan
    problem, value = make_problem(
        query,
        torch.randn(1, 1, 90, 8),
        torch.randn(1, 1, 90, 8),
        mask=None,
        scale=None,
        soft_cap=None,
        bias=None,
        sinks=None,
    )
    assert value is not None
    _, _, found = native.attend(problem, value, everything(problem, 0, rows=7, columns=9))
    for picture in (found.sums, found.maxima):
        assert picture is not None
        assert torch.isnan(picture[0]).any(-1).nonzero().flatten().tolist() == [3]


def test_the_smallest_powers() -> None:
    """Down to the smallest normal number weights are exact; what is hidden or further down is 0."""
    steps = torch.linspace(-140, 0, 561)
    query, key = torch.ones(1, 1, 1, 1), (steps * math.log(2))[None, None, :, None]
    valid = torch.ones(1, 561, dtype=torch.bool)
    valid[0, 7] = False
    weights = AttentionMap.from_factors(query, key, scale=1.0, mask=Padding(valid) & Causal(600))
    summary = weights.summarize(top=561)
    assert summary.top_weights is not None
    assert summary.top_keys is not None
    exact = torch.softmax(key.double().flatten().masked_fill(~valid[0], -math.inf), 0)
    found = torch.zeros(561).scatter(0, summary.top_keys.flatten(), summary.top_weights.flatten())
    large = exact > 2.0**-125
    torch.testing.assert_close(found[large].double(), exact[large], atol=0, rtol=1e-5)
    assert float(found[~large].max()) <= 2.0**-124
    assert float(found[steps < -127].max()) == 0
    assert found[7] == 0
