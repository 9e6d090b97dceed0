"""`attention(keep=Summary(...))`: the output and the answers, in one pass where our kernel runs."""

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import heedmap
from heedmap import AttentionMap, Causal, Documents, Padding, Summary, Window, scratch
from heedmap.errors import ArgumentError, ShapeError
from heedmap.kernels import differentiable, native

VALID = torch.arange(70)[None] % 5 != 3
ASKED = [Summary(), Summary(top=3), Summary(top=70, pool=(9, 11)), Summary(pool=(500, 1))]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal and padded": {"mask": Causal("end") & Padding(VALID)},
    "window": {"mask": Window("start", before=4, after=0)},
    "documents": {"mask": Documents(torch.arange(50)[None] // 9, torch.arange(70)[None] // 9)},
    "capped": {"soft_cap": 2.0},
    "biased": {"bias": torch.randn(50, 70)},
    "sinks": {"sinks": torch.randn(4)},
    "far from 0": {"scale": 90.0},
    "nothing seen": {"mask": Padding(torch.zeros(1, 70))},
}


def inputs(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    return [
        torch.randn(1, heads, n, width).to(dtype)
        for heads, n, width in ((4, 50, 8), (2, 70, 8), (2, 70, 5))
    ]


def assert_same(one: Summary, other: Summary) -> None:
    for name in ("received", "entropy", "top_weights", "top_keys", "pooled"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None), name
        if a is not None:
            # In half precision both may be rounded to neighbours.
            rtol = torch.finfo(a.dtype).eps if a.dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(a, b, atol=2e-6, rtol=rtol, equal_nan=True)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_as_of_the_map(options: dict[str, Any], dtype: torch.dtype) -> None:
    given = inputs(dtype)
    options = {
        name: option.to(dtype) if isinstance(option, Tensor) else option
        for name, option in options.items()
    }
    for asked in ASKED:
        for backend in ("auto", "tiles"):
            output, summary = heedmap.attention(*given, **options, backend=backend, keep=asked)
            expected, weights = heedmap.attention(*given, **options, backend=backend)
            assert torch.equal(output, expected)
            assert (summary.top, summary.pool) == (asked.top, asked.pool)
            assert_same(summary, weights.summarize(top=asked.top, pool=asked.pool))


@pytest.mark.parametrize("ndim", [2, 3])
def test_fewer_dimensions(ndim: int) -> None:
    given = [torch.randn(3, 9, 4)[0] if ndim == 2 else torch.randn(3, 9, 4) for _ in range(3)]
    output, summary = heedmap.attention(*given, keep=Summary(top=2, pool=(2, 3)))
    expected, weights = heedmap.attention(*given)
    assert torch.equal(output, expected)
    assert_same(summary, weights.summarize(top=2, pool=(2, 3)))


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (1, 1), (0, 0)])
def test_small_sizes(sizes: tuple[int, int]) -> None:
    queries, keys = sizes
    query, key = torch.randn(queries, 4), torch.randn(keys, 4)
    output, summary = heedmap.attention(query, key, key, keep=Summary(top=min(keys, 1)))
    assert output.shape == (queries, 4)
    assert summary.received.shape == (keys,)
    assert float(summary.received.sum()) == (queries if keys else 0)


def test_the_output_keeps_its_gradient_and_the_answers_have_none() -> None:
    learnt = [tensor.requires_grad_() for tensor in inputs()]
    mask = Padding(VALID)
    asked = Summary(top=2, pool=(5, 5))
    output, summary = heedmap.attention(*learnt, mask=mask, keep=asked)
    expected, weights = heedmap.attention(*learnt, mask=mask)
    up = torch.randn(output.shape)
    grads = [torch.autograd.grad(out, learnt, up) for out in (output, expected)]
    for one, other in zip(*grads, strict=True):
        assert torch.equal(one, other)
    assert not summary.received.requires_grad
    assert_same(summary, weights.detach().summarize(top=2, pool=(5, 5)))
    with torch.no_grad():
        output, _ = heedmap.attention(*learnt, mask=mask, keep=asked)
    assert not output.requires_grad


@pytest.mark.skipif(native.load() is None, reason="needs our kernel, which was not compiled")
def test_one_pass_where_our_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError

    for name in ("forward", "statistics"):
        monkeypatch.setattr(native, name, forbidden)
    for learnt in (False, True):
        given = [tensor.requires_grad_(learnt) for tensor in inputs()]
        heedmap.attention(*given, mask=Causal("end"), keep=Summary(top=4))


@pytest.fixture
def strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take our kernel away, and let problems of any size be computed by strips."""
    monkeypatch.setattr(native, "load", lambda: None)
    monkeypatch.setattr("heedmap.kernels.strips.LEAST_CELLS", 0)


@pytest.mark.usefixtures("strips")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("asked", ASKED)
def test_one_pass_without_our_kernel(
    asked: Summary, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = inputs(dtype)
    expected, weights = heedmap.attention(*(tensor.double() for tensor in given))
    exact = weights.summarize(top=asked.top, pool=asked.pool)
    monkeypatch.setattr(differentiable, "run", None)
    output, found = heedmap.attention(*given, keep=asked)
    step = max(torch.finfo(dtype).eps, 2e-6)
    assert output.dtype == dtype
    torch.testing.assert_close(output.double(), expected, atol=step, rtol=4 * step)
    for name in ("received", "entropy", "top_weights", "pooled"):
        a, b = getattr(found, name), getattr(exact, name)
        if b is not None:
            torch.testing.assert_close(a.double(), b, atol=2e-6, rtol=4 * step)


@pytest.mark.usefixtures("strips")
@pytest.mark.parametrize("stretch", [1.0, 4.0], ids=["near 0", "far from 0"])
def test_strips_are_as_exact_as_pytorch(stretch: float) -> None:
    torch.manual_seed(0)
    given = torch.randn(3, 1, 2, 2048, 64)
    given[0] *= stretch
    exact, weights = heedmap.attention(*given.double())
    output, found = heedmap.attention(*given, keep=Summary())
    fused, two_passes = heedmap.attention(*given)
    errors = [float((made - exact).square().mean()) for made in (output, fused)]
    assert errors[0] <= 1.2 * errors[1]
    for name in ("received", "entropy"):
        wanted = getattr(weights, name)()
        one, two = (
            float((made - wanted).square().mean())
            for made in (getattr(found, name), getattr(two_passes.summarize(), name))
        )
        assert one <= two


@pytest.mark.usefixtures("strips")
@pytest.mark.parametrize("pool", [None, (8, 5), (6, 7), (1, 1), (70, 35), (3, 70)])
@pytest.mark.parametrize("top", [0, 3])
def test_strips_of_few_rows_and_blocks_of_few_keys(
    pool: tuple[int, int] | None, top: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peaks differ from block to block, and bands lie in one strip or in two."""
    query, key, value = inputs()
    asked = Summary(top=top, pool=pool)
    exact, weights = heedmap.attention(query.double() * 9, key.double(), value.double())
    wanted = weights.summarize(top=top, pool=pool)
    for most_rows, block_cells in ((16, 16 * 16), (7, 90), (64, 64 * 35), (50, 1 << 20)):
        monkeypatch.setattr("heedmap.kernels.strips.MOST_ROWS", most_rows)
        monkeypatch.setattr("heedmap.kernels.strips.BLOCK_CELLS", block_cells)
        output, found = heedmap.attention(query * 9, key, value, keep=asked)
        torch.testing.assert_close(output.double(), exact, atol=3e-6, rtol=1e-5)
        for name in ("received", "entropy", "top_weights", "pooled"):
            a, b = getattr(found, name), getattr(wanted, name)
            assert (a is None) == (b is None)
            if b is not None:
                torch.testing.assert_close(a.double(), b, atol=3e-6, rtol=1e-5)
        if top:
            assert torch.equal(found.top_keys, wanted.top_keys)


@pytest.mark.usefixtures("strips")
@pytest.mark.parametrize(
    "asked",
    [
        Summary(),
        Summary(top=2),
        Summary(pool=(128, 64)),
        Summary(pool=(3, 3)),
        Summary(pool=(1, 9)),
    ],
    ids=str,
)
def test_strips_keep_to_their_memory(asked: Summary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bands of 8 rows and more, of 341, and one of all."""
    taken, rooms = [], scratch.rooms

    def count(shapes: Any, *given: Any) -> Any:
        taken.append(sum(math.prod(shape) for shape in shapes))
        return rooms(shapes, *given)

    monkeypatch.setattr(scratch, "rooms", count)
    monkeypatch.setattr("heedmap.kernels.strips.MOST_CELLS", 1 << 18)
    monkeypatch.setattr("heedmap.kernels.strips.BLOCK_CELLS", 1 << 15)
    query, key = torch.randn(1, 1, 1025, 4), torch.randn(1, 1, 2048, 4)
    heedmap.attention(query, key, key, keep=asked)
    assert max(taken) <= (1 << 18) + (1 << 15)


@pytest.mark.usefixtures("strips")
def test_a_key_that_only_some_rows_are_infinitely_far_from() -> None:
    query, key, value = torch.ones(3, 1, 1, 4, 2).unbind()
    query, key = query.clone(), key.clone()
    query[0, 0, :2] = -1
    key[0, 0, 3] = torch.inf
    by_strips = heedmap.attention(query, key, value, keep=Summary())[1]
    by_tiles = AttentionMap.from_factors(query.double(), key.double()).summarize()
    for found in (by_strips, by_tiles):
        torch.testing.assert_close(found.entropy[0, 0, :2].float(), torch.tensor([3.0, 3.0]).log())
        assert bool(found.entropy[0, 0, 2:].isnan().all())


@pytest.mark.usefixtures("strips")
def test_what_strips_do_not_know_takes_two_passes() -> None:
    asked = Summary(top=2)
    for options in ({"mask": Padding(VALID)}, {"sinks": torch.randn(4)}, {"soft_cap": 2.0}):
        output, found = heedmap.attention(*inputs(), **options, keep=asked)
        expected, weights = heedmap.attention(*inputs(), **options)
        assert torch.equal(output, expected)
        assert_same(found, weights.summarize(top=2))
    learnt = [tensor.requires_grad_() for tensor in inputs()]
    output, _ = heedmap.attention(*learnt, keep=asked)
    assert output.requires_grad
    gradient = torch.func.grad(lambda q: heedmap.attention(q, *inputs()[1:], keep=asked)[0].sum())
    assert gradient(inputs()[0]).shape == learnt[0].shape


@pytest.mark.usefixtures("strips")
def test_equal_weights_of_a_strip_come_in_the_order_of_their_keys() -> None:
    query, key = torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 5000, 4)
    _, found = heedmap.attention(query, key, key, keep=Summary(top=4))
    assert found.top_keys is not None
    assert found.top_keys[0, 0].tolist() == [[0, 1, 2, 3]] * 3
    # The strongest come again every thousand keys, and groups of neighbours have one each.
    key[..., ::1000, 0] = query[..., 0] = 3.0
    _, found = heedmap.attention(query, key, key, keep=Summary(top=4))
    assert found.top_keys is not None
    assert found.top_keys[0, 0].tolist() == [[0, 1000, 2000, 3000]] * 3


def test_a_row_that_is_not_a_number() -> None:
    query, key, value = inputs()
    query[0, 1, 7] = math.nan
    _, summary = heedmap.attention(query, key, value, keep=Summary(top=2))
    _, weights = heedmap.attention(query, key, value)
    assert_same(summary, weights.summarize(top=2))
    assert torch.isnan(summary.entropy).sum() == 1
    strongest = weights.topk(2)
    for found in (summary, weights.summarize(top=2)):
        assert found.top_weights is not None
        torch.testing.assert_close(found.top_weights, strongest.values, equal_nan=True)
        # Which keys have them is no matter, where all are not numbers.
        assert len(set(found.top_keys[0, 1, 7].tolist())) == 2


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_forward_derivative() -> None:
    query, key, value = inputs()
    along, asked = torch.randn_like(query), Summary(top=2, pool=(9, 11))
    with forward_ad.dual_level():
        output, found = heedmap.attention(
            forward_ad.make_dual(query, along), key, value, keep=asked
        )
        tangent = forward_ad.unpack_dual(output).tangent
    expected, weights = heedmap.attention(query, key, value)
    torch.testing.assert_close(output, expected)
    assert_same(found, weights.summarize(top=2, pool=(9, 11)))
    step = torch.func.jvp(lambda q: heedmap.attention(q, key, value)[0], (query,), (along,))[1]
    torch.testing.assert_close(tangent, step)


def test_second_derivatives() -> None:
    learnt = [t.double().requires_grad_() for t in inputs()]

    def call(*given: Tensor) -> Tensor:
        return heedmap.attention(*given, keep=Summary())[0].square().sum()

    first = torch.autograd.grad(call(*learnt), learnt, create_graph=True)
    assert torch.autograd.grad(first[0].sum(), learnt)[0].abs().sum() > 0
    assert set(differentiable.KERNELS) == {"native", "fused", "tiles", "reference"}


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("keep", "error", "message"),
    [
        ("map", ArgumentError, r"keep must be 'factors' or a heedmap\.Summary; got 'map'\."),
        ({"top": 71}, ShapeError, r"top must be 0 to the number of keys, 70; got 71\."),
        ({"top": 1.5}, ShapeError, r"top must be 0 to the number of keys, 70; got 1\.5\."),
        ({"pool": (0, 3)}, ArgumentError, r"must be whole numbers from 1 on; got 0 and 3\."),
        ({"pool": (2.5, 3)}, ArgumentError, r"rows and columns must be .*; got 2\.5 and 3\."),
    ],
)
def test_bad_questions(
    keep: Any, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differentiable, "run", None)
    asked = Summary(**keep) if isinstance(keep, dict) else keep
    with pytest.raises(error, match=message):
        heedmap.attention(*inputs(), keep=asked)


@pytest.mark.bad_input
@pytest.mark.parametrize("pool", [9, (9,), "wide"])
def test_a_picture_of_one_size_is_refused(pool: Any) -> None:
    asked, message = Summary(pool=pool), f"pool must be (rows, columns); got {pool!r}."
    with pytest.raises(ArgumentError, match=re.escape(message)):
        heedmap.attention(*inputs(), keep=asked)
