"""Our own kernel against the plain formula in float64, where it could be compiled."""

import math
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Documents, Mask, Padding, Visible, Window, compiled
from heedmap.errors import ArgumentError
from heedmap.kernels import native, tiles
from heedmap.masks import Spans
from heedmap.problem import make_problem

COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")

# Not where one should have been compiled and was not: there these tests fail.
pytestmark = pytest.mark.skipif(
    not compiled.wanted() or (compiled.load() is None and not COMPILER),
    reason="there can be no kernel: HEEDMAP_KERNEL=torch, a CPU that it has no code for, or no "
    "C++ compiler when heedmap was installed; scripts/check runs these tests where there is one",
)

SEEDS = 150
MASKS: dict[str, Callable[[int], Mask | None]] = {
    "nothing hidden": lambda keys: None,
    "causal": lambda keys: Causal("end"),
    "window": lambda keys: Window("end", before=4000, after=0),
    "padding": lambda keys: Padding(torch.arange(keys)[None] % 9 != 4),
}


def test_a_kernel_was_compiled() -> None:
    assert compiled.load() is not None, "reinstall heedmap with -v to see what the compiler says"


def random_mask(
    draw: random.Random, batch: int, heads: int, queries: int, keys: int
) -> Mask | None:
    valid = torch.rand(batch, keys) < draw.choice([0.0, 0.5, 1.0])
    first = torch.randint(0, keys + 1, (batch, heads, queries))
    last = first + torch.randint(-2, keys + 1, (batch, heads, queries))
    causal = Causal(draw.choice(["start", "end", draw.randint(-keys, keys)]))
    window = Window("end", before=draw.choice([None, 0, 3]), after=draw.choice([0, 2, None]))
    table = Visible(torch.rand(batch, draw.choice([1, heads]), queries, keys) < 0.5)
    return draw.choice(
        [
            None,
            Padding(valid),
            causal,
            causal & Padding(valid),
            window,
            causal & window,
            Spans(first, last),
            Spans(first[:1, :1], last[:1, :1], valid) & causal,
            table,
            table & causal & Padding(valid),
        ]
    )


def strided(shape: tuple[int, ...], draw: random.Random) -> Tensor:
    """Return random numbers that do not lie one after the other."""
    batch, heads, positions, width = shape
    how = draw.choice(["plain", "transposed", "sliced", "last"])
    if how == "transposed":
        return torch.randn(batch, positions, heads, width).transpose(1, 2)
    if how == "sliced":
        return torch.randn(batch, heads, positions, width + 3)[..., 1:-2]
    if how == "last":
        return torch.randn(batch, heads, width, positions).mT
    return torch.randn(shape)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_problems(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    kv_heads = draw.choice([1, 2, 3])
    heads = kv_heads * draw.choice([1, 2])
    batch, queries, keys = draw.choice([1, 2]), draw.randint(1, 150), draw.randint(1, 300)
    width, value_width = draw.choice([1, 3, 8, 16, 33]), draw.choice([1, 5, 8, 20])
    query = strided((batch, heads, queries, width), draw)
    key = strided((batch, kv_heads, keys, width), draw)
    value = strided((batch, kv_heads, keys, value_width), draw)
    mask = random_mask(draw, batch, heads, queries, keys)
    bias = None
    if draw.random() < 0.4:
        sizes = (batch, heads, queries, keys)
        bias = torch.randn([draw.choice([1, size]) for size in sizes])
        bias = bias.masked_fill(torch.rand(bias.shape) < 0.1, -math.inf)
    sinks = torch.randn(heads) if draw.random() < 0.3 else None
    options = {"mask": mask, "scale": draw.choice([None, 0.3, -0.5, 0.0]), "sinks": sinks}
    output, weights = heedmap.attention(query, key, value, bias=bias, backend="native", **options)
    exact, exact_weights = heedmap.attention(
        *(t.double() for t in (query, key, value)),
        bias=None if bias is None else bias.double(),
        backend="reference",
        **options | {"sinks": None if sinks is None else sinks.double()},
    )
    assert weights.backend == "native"
    close = {"atol": 4e-6, "rtol": 1e-5}
    torch.testing.assert_close(output.double(), exact, **close)
    torch.testing.assert_close(
        weights.log_normalizer.double(), exact_weights.log_normalizer, **close
    )
    top, pool = draw.randint(0, min(9, keys)), (draw.randint(1, 40), draw.randint(1, 40))
    found = weights.summarize(top=top, pool=pool)
    wanted = AttentionMap.from_weights(exact_weights.to_dense()).summarize(top=top, pool=pool)
    for name in ("received", "entropy", "pooled"):
        torch.testing.assert_close(
            getattr(found, name).double(), getattr(wanted, name), atol=2e-5, rtol=1e-5
        )
    if top:
        assert found.top_weights is not None
        assert wanted.top_weights is not None
        torch.testing.assert_close(found.top_weights.double(), wanted.top_weights, **close)
        gathered = exact_weights.to_dense().gather(-1, found.top_keys)
        torch.testing.assert_close(gathered, wanted.top_weights, **close)


def test_equal_weights_come_in_the_order_of_their_keys() -> None:
    query, key = torch.zeros(1, 1, 50, 4), torch.zeros(1, 1, 200, 4)
    for mask, expected in ((None, [0, 1, 2]), (Window("start", before=0, after=0), None)):
        summary = AttentionMap.from_factors(query, key, mask=mask).summarize(top=3)
        assert summary.top_keys is not None
        if expected is None:
            # One key of weight 1, then keys of weight 0 from the first on.
            assert summary.top_keys[0, 0, 0].tolist() == [0, 1, 2]
            assert summary.top_keys[0, 0, 7].tolist() == [7, 0, 1]
        else:
            assert summary.top_keys[0, 0].unique(dim=0).tolist() == [expected]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    inputs = [torch.randn(1, 2, 60, 16).to(dtype) for _ in range(3)]
    output, weights = heedmap.attention(*inputs, mask=Causal())
    assert (weights.backend, output.dtype) == ("native", dtype)
    exact = heedmap.attention(*(t.double() for t in inputs), mask=Causal())[0]
    assert torch.equal(output, exact.to(dtype)) or bool(
        ((output.double() - exact).abs() <= exact.abs() * torch.finfo(dtype).eps + 1e-6).all()
    )


@pytest.mark.parametrize("slot", ["query", "key", "value"])
def test_nan_shows_where_it_is_seen_and_nowhere_else(slot: str) -> None:
    inputs = {name: torch.randn(1, 1, 40, 8) for name in ("query", "key", "value")}
    inputs[slot][0, 0, 30] = math.nan
    output, _ = heedmap.attention(**inputs)
    spoilt = torch.isnan(output[0, 0]).all(-1)
    assert spoilt.tolist() == ([i == 30 for i in range(40)] if slot == "query" else [True] * 40)
    valid = torch.arange(40)[None] != 30
    output, weights = heedmap.attention(**inputs, mask=Padding(valid))
    assert not torch.isnan(output[0, 0, :30]).any()
    assert float(weights[..., 30].nan_to_num(0).abs().max()) == 0


def test_what_it_does_not_take_goes_elsewhere() -> None:
    inputs = torch.randn(3, 1, 2, 9, 8)
    ids = torch.tensor([[0, 1, 0, 1, 0, 1, 2, 2, 0]])
    others = {
        "tiles": [{"soft_cap": 2.0}],
        "fused": [{"mask": Documents(ids)}, {"mask": Padding(ids > 0) | Causal()}],
    }
    for backend, cases in others.items():
        for options in cases:
            assert heedmap.attention(*inputs, **options)[1].backend == backend
    assert heedmap.attention(*inputs.double())[1].backend == "fused"


@pytest.mark.parametrize("seed", range(60))
def test_random_gradients(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    kv_heads = draw.choice([1, 2, 3])
    heads = kv_heads * draw.choice([1, 2])
    batch, queries, keys = draw.choice([1, 2]), draw.randint(1, 120), draw.randint(1, 200)
    width, value_width = draw.choice([1, 3, 8, 16, 33, 64]), draw.choice([1, 5, 8, 20, 64])
    given = [
        strided((batch, heads, queries, width), draw),
        strided((batch, kv_heads, keys, width), draw),
        strided((batch, kv_heads, keys, value_width), draw),
    ]
    mask = random_mask(draw, batch, heads, queries, keys)
    sinks = torch.randn(heads) if draw.random() < 0.3 else None
    results = []
    for dtype, backend in ((torch.float32, "native"), (torch.float64, "reference")):
        inputs = [t.to(dtype).detach().requires_grad_() for t in given]
        own = None if sinks is None else sinks.to(dtype).requires_grad_()
        output, weights = heedmap.attention(*inputs, mask=mask, sinks=own, backend=backend)
        up = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        normalizer = weights.log_normalizer
        finite = normalizer.masked_fill(normalizer == -math.inf, 0)
        loss = (output * up).sum() + (finite * up[..., 0]).sum() + weights.entropy().sum()
        inputs += [] if own is None else [own]
        results.append(torch.autograd.grad(loss, inputs))
    for one, other in zip(*results, strict=True):
        # What cancels in a small gradient is as large as the largest, and rounded at that size.
        largest = other.abs().amax().item() if other.numel() else 0.0
        atol = 2e-5 if largest <= 10 else 2e-6 * largest
        torch.testing.assert_close(one.double(), other, atol=atol, rtol=2e-5)


# Some that other problems of the fuzzer do not reach: gradients of tens, of one number each.
@pytest.mark.parametrize("seed", [20_012_242, 20_012_078])
def test_large_gradients(seed: int) -> None:
    test_random_gradients(seed)


def test_the_same_bits_every_time() -> None:
    inputs = torch.randn(3, 2, 3, 500, 32)
    results = []
    for _ in range(4):
        output, weights = heedmap.attention(*inputs, mask=Causal())
        summary = weights.summarize(top=4, pool=(30, 30))
        results.append((output, weights.log_normalizer, *vars(summary.answers).values()))
    for again in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], again, strict=True))


def test_no_worse_than_pytorch() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 2048, 64)
    exact = heedmap.attention(*(t.double() for t in (query, key, value)))[0]
    errors = {}
    for backend in ("native", "fused"):
        output = heedmap.attention(query, key, value, backend=backend)[0]
        errors[backend] = float((output - exact).square().mean().sqrt())
    assert errors["native"] <= 1.1 * errors["fused"]


def test_threads_and_forks() -> None:
    inputs = torch.randn(3, 1, 2, 300, 16)
    expected = heedmap.attention(*inputs)[0]
    found: list[Tensor] = []
    threads = [
        threading.Thread(target=lambda: found.append(heedmap.attention(*inputs)[0]))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(expected, output) for output in found)


FORK = """
import os, torch, heedmap
torch.set_num_threads(4)
inputs = torch.randn(3, 1, 2, 300, 16)
heedmap.attention(*inputs)[1].summarize()
child = os.fork()
if child == 0:
    heedmap.attention(*inputs)[1].summarize()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )


@pytest.mark.slow
def test_in_a_forked_worker() -> None:
    done = run(FORK)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr


WHICH = """
import torch, heedmap
print(heedmap.attention(*torch.randn(3, 4, 8))[1].backend)
"""


@pytest.mark.slow
def test_the_kernel_can_be_chosen() -> None:
    assert run(WHICH, HEEDMAP_KERNEL="torch").stdout.strip() == "fused"
    assert run(WHICH, HEEDMAP_KERNEL="native").stdout.strip() == "native"
    for name in compiled.runnable():
        if (compiled.FOLDER / f"attend-{name}{compiled.SUFFIX}").exists():
            assert run(WHICH, HEEDMAP_KERNEL=name).stdout.strip() == "native"
    assert "HEEDMAP_KERNEL must be one of native, torch" in run(WHICH, HEEDMAP_KERNEL="gpu").stderr


@pytest.mark.bad_input
def test_a_kernel_that_cannot_serve_is_refused() -> None:
    inputs = torch.randn(3, 1, 2, 9, 8)
    with pytest.raises(ArgumentError, match="backend must be 'auto' or 'tiles' for this problem"):
        heedmap.attention(*inputs, soft_cap=1.0, backend="native")


@pytest.mark.parametrize("hidden", MASKS)
@pytest.mark.parametrize(("queries", "keys", "width"), [(3333, 8200, 64), (333, 33_000, 96)])
def test_blocks_that_take_in_far_keys_together(
    hidden: str, queries: int, keys: int, width: int
) -> None:
    torch.manual_seed(0)
    mask = MASKS[hidden](keys)
    query, key = torch.randn(1, 1, queries, width), torch.randn(1, 1, keys, width)
    value = torch.randn(1, 1, keys, width + 8)
    output, weights = heedmap.attention(query, key, value, mask=mask, backend="native")
    # One pass over output and answers takes other blocks together; all of either must be the same.
    asked = heedmap.Summary(top=3, pool=(7, 9))
    alone, expected = heedmap.attention(query, key, value, mask=mask, keep=asked)
    assert torch.equal(output, alone)
    found = weights.summarize(top=3, pool=(7, 9))
    for answer in ("received", "entropy", "top_weights", "top_keys", "pooled"):
        assert torch.equal(getattr(found, answer), getattr(expected, answer)), answer
    rows = [0, queries // 2, queries - 1]
    exact = AttentionMap.from_factors(query.double(), key.double(), mask=mask)[0, 0, rows]
    torch.testing.assert_close(output[0, 0, rows].double(), exact @ value[0, 0].double())
    torch.testing.assert_close(weights[0, 0, rows].to_dense().double(), exact.to_dense())


def test_log_normalizer_alone() -> None:
    query, key = torch.randn(1, 2, 77, 8), torch.randn(1, 2, 130, 8)
    problem, _ = make_problem(
        query, key, None, mask=Causal("end"), scale=None, soft_cap=None, bias=None, sinks=None
    )
    wanted = tiles.log_normalizer(problem, range(2), range(77))
    torch.testing.assert_close(native.log_normalizer(problem).flatten(0, 1), wanted)
