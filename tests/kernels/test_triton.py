"""Statistics by Triton's kernel, run by its interpreter, against the plain formula in float64."""

import importlib.util
import itertools
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Padding, Summary, Window
from heedmap.bins import Bins
from heedmap.errors import ArgumentError
from heedmap.kernels import reference, tiles, triton
from heedmap.kernels.spans import Hidden, hidden_of
from heedmap.kernels.statistics import Found, Wanted
from heedmap.kernels.triton import library, trial
from heedmap.kernels.triton.shares import Sizes, groups_for, share_out
from heedmap.problem import Problem, make_problem
from tests.kernels.interpreted import Interpreter, summary_of, tried

IS_THERE = importlib.util.find_spec("triton") is not None
without_triton = pytest.mark.skipif(
    not IS_THERE, reason="needs Triton, which is not installed here; on Linux the checks install it"
)
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU; torch finds none on this machine"
)
CPU = torch.device("cpu")


def needs_triton(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that runs Triton's kernel, or its compiler: seconds, all together a minute."""
    return pytest.mark.slow(without_triton(test))


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    process = Interpreter()
    yield process
    process.close()


def problem_of(
    query: Tensor, key: Tensor, mask: Any = None, bias: Tensor | None = None, **options: Any
) -> Problem:
    given: dict[str, Any] = {"scale": None, "soft_cap": None, "sinks": None} | options
    return make_problem(query, key, None, mask=mask, bias=bias, **given)[0]


def bins(queries: int, keys: int, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    sides = Bins(queries, min(rows, queries)), Bins(keys, min(keys, columns))
    return sides[0].of(range(queries), CPU), sides[1].of(range(keys), CPU)


def everything(problem: Problem, top: int, rows: int = 3, columns: int = 4) -> Wanted:
    _, _, queries, keys = problem.extent
    sides = bins(queries, keys, rows, columns)
    return Wanted(True, True, min(top, keys), sides, sums=True, maxima=True)


def exact_weights(problem: Problem) -> tuple[Tensor, Tensor]:
    """Return weights and log-normaliser of a problem by the plain formula in float64."""
    return reference.dense_weights(problem.map_tensors(lambda tensor: tensor.double()))


def require_right(found: Found, wanted: Wanted, weights: Tensor) -> None:
    """See that statistics are those of exact weights, as far as float32 goes."""
    exact = AttentionMap.from_weights(weights)
    assert wanted.bins is not None
    size = [int(numbers[-1]) + 1 for numbers in wanted.bins]
    pairs = [
        (found.received, exact.received()),
        (found.entropy, exact.entropy()),
        (found.sums, exact.pool(*size, "sum")),
        (found.maxima, exact.pool(*size, "max")),
    ]
    for one, other in pairs:
        assert one is not None
        torch.testing.assert_close(one.double(), other, atol=2e-5, rtol=1e-5)
    if wanted.top:
        assert found.top_weights is not None
        assert found.top_keys is not None
        close = {"atol": 4e-6, "rtol": 1e-5}
        strongest = weights.sort(dim=-1, descending=True, stable=True).values[..., : wanted.top]
        torch.testing.assert_close(found.top_weights.double(), strongest, **close)
        gathered = weights.gather(-1, found.top_keys)
        torch.testing.assert_close(gathered, strongest, **close)
        assert bool((found.top_keys.sort(-1).values.diff() > 0).all()), "a key came twice"


QUERY, KEY = torch.randn(2, 2, 40, 33), torch.randn(2, 1, 70, 33)
LEFT = torch.arange(70)[None] >= torch.tensor([[0], [20]])
SPOTTED = torch.arange(70)[None] % torch.tensor([[3], [7]]) != 1
KINDS: dict[str, dict[str, Any]] = {
    "plain, grouped, odd width": {},
    "causal from the start": {"mask": Causal("start")},
    "causal from the end": {"mask": Causal("end")},
    "causal, rows that see nothing": {"mask": Causal(-25)},
    "padded": {"mask": Padding(LEFT)},
    "causal and padded with holes": {"mask": Causal("end") & Padding(SPOTTED)},
    "a window": {"mask": Window("end", before=5, after=2)},
    "a table": {"mask": torch.rand(2, 2, 40, 70) < 0.3},
    "nothing seen": {"mask": Padding(torch.zeros(2, 70))},
    "a bias of heads": {"bias": torch.randn(1, 2, 40, 70)},
    "a bias that hides": {
        "bias": torch.randn(40, 70).masked_fill(torch.rand(40, 70) < 0.2, -math.inf)
    },
    "a bias of keys": {"bias": torch.randn(2, 1, 1, 70)},
    "sinks": {"sinks": torch.randn(2)},
    "a negative scale": {"scale": -0.5},
}


@needs_triton
@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())
def test_kinds_of_problems(options: dict[str, Any], interpreter: Interpreter) -> None:
    problem = problem_of(QUERY, KEY, **options)
    weights, normalizer = exact_weights(problem)
    wanted = everything(problem, 3)
    found = interpreter(triton.statistics, problem, normalizer.float(), wanted)
    require_right(found, wanted, weights)


@needs_triton
@pytest.mark.parametrize("width", [1, 3, 32, 129, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_widths_and_number_types(width: int, dtype: torch.dtype, interpreter: Interpreter) -> None:
    torch.manual_seed(width)
    query, key = (torch.randn(1, 1, n, width).to(dtype) for n in (20, 70))
    problem = problem_of(query, key, mask=Causal("end"))
    weights, normalizer = exact_weights(problem)
    wanted = everything(problem, 2)
    found = interpreter(triton.statistics, problem, normalizer.float(), wanted)
    require_right(found, wanted, weights)


def strided(shape: tuple[int, ...], how: str) -> Tensor:
    """Return random numbers that do not lie one after the other."""
    batch, heads, positions, width = shape
    if how == "transposed":
        return torch.randn(batch, positions, heads, width).transpose(1, 2)
    if how == "sliced":
        return torch.randn(batch, heads, positions, width + 3)[..., 1:-2]
    if how == "last":
        return torch.randn(batch, heads, width, positions).mT
    return torch.randn(1, 1, positions, width).expand(shape)


@needs_triton
@pytest.mark.parametrize("how", ["transposed", "sliced", "last", "expanded"])
def test_strides_as_they_come(how: str, interpreter: Interpreter) -> None:
    problem = problem_of(strided((2, 3, 40, 8), how), strided((2, 3, 50, 8), how))
    weights, normalizer = exact_weights(problem)
    wanted = everything(problem, 1)
    # A process gets copies, which lie as the originals do.
    found = interpreter(triton.statistics, problem, normalizer.float(), wanted)
    require_right(found, wanted, weights)


@needs_triton
@pytest.mark.parametrize("seed", range(8))
def test_random_problems(seed: int, interpreter: Interpreter) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    kv_heads = draw.choice([1, 2])
    heads = kv_heads * draw.choice([1, 2])
    queries, keys, width = draw.randint(1, 140), draw.randint(1, 140), draw.choice([1, 5, 24])
    masks = [None, Causal("end"), Causal("start"), Padding(torch.rand(1, keys) < 0.7)]
    problem = problem_of(
        torch.randn(1, heads, queries, width),
        torch.randn(1, kv_heads, keys, width) * draw.choice([0.1, 1, 3]),
        mask=draw.choice(masks),
    )
    weights, normalizer = exact_weights(problem)
    top, size = draw.randint(0, min(5, keys)), (draw.randint(1, 9), draw.randint(1, 9))
    wanted = everything(problem, top, *size)
    found = interpreter(triton.statistics, problem, normalizer.float(), wanted)
    require_right(found, wanted, weights)


@needs_triton
def test_strips_are_parts_of_the_whole(interpreter: Interpreter) -> None:
    problem = problem_of(QUERY, KEY, mask=Causal("end") & Padding(SPOTTED))
    weights, normalizer = exact_weights(problem)
    matrices, rows = range(1, 3), range(11, 35)
    wanted = Wanted(True, True, 4, bins(24, 70, 5, 8), sums=True, maxima=True)
    strip = weights[1:3, 11:35]
    found = interpreter(
        triton.statistics,
        problem,
        normalizer.float()[1:3, 11:35],
        wanted,
        matrices=matrices,
        rows=rows,
    )
    require_right(found, wanted, strip)


@needs_triton
def test_any_of_them(interpreter: Interpreter) -> None:
    problem = problem_of(QUERY[:1], KEY[:1])
    normalizer = exact_weights(problem)[1].float()
    whole = everything(problem, 2)
    every = interpreter(triton.statistics, problem, normalizer, whole)
    for name in Wanted._fields:
        if name == "bins":
            continue
        wanted = Wanted(bins=whole.bins)._replace(**{name: getattr(whole, name)})
        found = interpreter(triton.statistics, problem, normalizer, wanted)
        asked = ("top_weights", "top_keys") if name == "top" else (name,)
        for kind, one, other in zip(Found._fields, found, every, strict=True):
            assert one is None if kind not in asked else torch.equal(one, other)
    nothing = interpreter(triton.statistics, problem, normalizer, Wanted())
    assert nothing == Found()


@needs_triton
def test_the_same_bits_every_time(interpreter: Interpreter) -> None:
    problem = problem_of(QUERY, KEY, mask=Causal("end"))
    normalizer = exact_weights(problem)[1].float()
    wanted = everything(problem, 3)
    one, other = (interpreter(triton.statistics, problem, normalizer, wanted) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@needs_triton
@pytest.mark.parametrize("top", [1, 5, 70, 200])
def test_equal_weights_come_in_the_order_of_their_keys(top: int, interpreter: Interpreter) -> None:
    for mask in (None, Window("start", before=0, after=0), Window("start", before=100, after=0)):
        problem = problem_of(torch.zeros(1, 1, 30, 4), torch.zeros(1, 1, 200, 4), mask=mask)
        weights, normalizer = exact_weights(problem)
        found = interpreter(triton.statistics, problem, normalizer.float(), Wanted(top=top))
        ordered = weights.sort(dim=-1, descending=True, stable=True)
        assert torch.equal(found.top_keys, ordered.indices[..., :top])


@needs_triton
def test_what_is_not_a_number_is_the_largest(interpreter: Interpreter) -> None:
    query = torch.randn(1, 1, 70, 8)
    query[0, 0, 33] = math.nan
    problem = problem_of(query, torch.randn(1, 1, 90, 8))
    normalizer = exact_weights(problem)[1].float()
    found = interpreter(triton.statistics, problem, normalizer, everything(problem, 2))
    for picture in (found.sums, found.maxima):
        assert torch.isnan(picture[0]).any(-1).nonzero().flatten().tolist() == [1]
    assert torch.isnan(found.entropy[0]).nonzero().flatten().tolist() == [33]
    assert torch.isnan(found.top_weights[0, 33]).all()
    assert found.top_keys[0, 33].tolist() == [0, 1]


def error(found: Found, exact: Found) -> float:
    """Return the root of the mean square of all differences."""
    pairs = zip(found, exact, strict=True)
    parts = [(a - b).flatten() for a, b in pairs if a is not None and b is not None]
    return float(torch.cat(parts).square().mean().sqrt())


@needs_triton
def test_as_exact_as_by_blocks(interpreter: Interpreter) -> None:
    """No further from float64 than statistics of weights that are made block by block."""
    torch.manual_seed(0)
    problem = problem_of(*torch.randn(2, 1, 1, 256, 64), mask=Causal())
    weights, normalizer = exact_weights(problem)
    wanted = Wanted(True, True, 0, bins(256, 256, 8, 8), sums=True)
    found = interpreter(triton.statistics, problem, normalizer.float(), wanted)
    dense = AttentionMap.from_weights(weights)
    exact = Found(dense.received(), dense.entropy(), sums=dense.pool(8, 8, "sum"))
    blocks = tiles.weights(problem, normalizer.float(), range(1), range(256), range(256))
    by_blocks = AttentionMap.from_weights(blocks)
    other = Found(by_blocks.received(), by_blocks.entropy(), sums=by_blocks.pool(8, 8, "sum"))
    assert error(found, exact) <= 1.1 * error(other, exact)


@needs_triton
def test_products_of_bfloat16_are_those_of_rounded_numbers(interpreter: Interpreter) -> None:
    query, key = torch.randn(1, 2, 30, 16), torch.randn(1, 1, 70, 16)
    problem, rounded = problem_of(query, key), problem_of(query.bfloat16(), key.bfloat16())
    normalizer = exact_weights(problem)[1].float()
    wanted = everything(problem, 3)
    found = {
        kind: interpreter(triton.statistics, problem, normalizer, wanted, products=kind)
        for kind in library.PRODUCTS
    }
    of_rounded = interpreter(triton.statistics, rounded, normalizer, wanted)
    for one, other in zip(found["bfloat16"], of_rounded, strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(found["bfloat16"].received, found["float32"].received)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal and padded": {"mask": Causal("end") & Padding(SPOTTED)},
    "biased": {"bias": torch.randn(40, 70)},
    "sinks": {"sinks": torch.randn(2)},
}


@needs_triton
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_summaries_are_gathered_by_it(options: dict[str, Any], interpreter: Interpreter) -> None:
    value = torch.randn(2, 1, 70, 5)
    asked = Summary(top=3, pool=(7, 9))
    answers, calls = interpreter(summary_of, QUERY, KEY, value, keep=asked, **options)
    expected = heedmap.attention(QUERY, KEY, value, keep=asked, **options)[1].answers
    assert calls == 1
    assert expected is not None
    for name, found in vars(answers).items():
        torch.testing.assert_close(found, getattr(expected, name), atol=2e-6, rtol=1e-5)


@needs_triton
def test_what_it_does_not_take_goes_elsewhere(interpreter: Interpreter) -> None:
    value = torch.randn(2, 1, 70, 5)
    documents = heedmap.Documents(torch.zeros(2, 40).long(), torch.arange(70).expand(2, 70) // 50)
    for options in ({"soft_cap": 2.0}, {"mask": documents}):
        assert interpreter(summary_of, QUERY, KEY, value, keep=Summary(), **options)[1] == 0
    doubles = (tensor.double() for tensor in (QUERY, KEY, value))
    assert interpreter(summary_of, *doubles, keep=Summary())[1] == 0
    wide = torch.randn(1, 1, 4, 300), torch.randn(1, 1, 300, 300), torch.randn(1, 1, 300, 1)
    assert interpreter(summary_of, *wide, keep=Summary(top=300))[1] == 0
    assert interpreter(summary_of, *wide, keep=Summary(top=256))[1] == 1


@needs_triton
@pytest.mark.parametrize("architecture", [80, 90])
def test_it_compiles_for_gpus(architecture: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("compiled.py")), str(architecture)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    for name, found in json.loads(done.stdout).items():
        # Tensor cores multiply half precision alone.
        assert (found["products"] > 0) == (name != "float32"), name
        assert found["spilt"] <= 128, name


def plainly(problem: Problem, _: Tensor, wanted: Wanted) -> Found:
    """Return the same statistics without Triton."""
    weights = exact_weights(problem)[0].float()
    dense = AttentionMap.from_weights(weights)
    assert wanted.bins is not None
    size = [int(numbers[-1]) + 1 for numbers in wanted.bins]
    sums, maxima = dense.pool(*size, "sum"), dense.pool(*size, "max")
    strongest = weights.topk(wanted.top)
    return Found(dense.received(), dense.entropy(), *strongest, sums, maxima)


def raising(*_: Any) -> Found:
    raise RuntimeError("Failed to find C compiler.\nMore lines.")


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_trial_on_a_gpu_is_passed_by_the_interpreter(
    dtype: torch.dtype, interpreter: Interpreter
) -> None:
    assert interpreter(tried, dtype)


def test_the_trial_on_a_gpu_tells_right_from_wrong() -> None:
    kind = CPU, torch.float32, 8
    assert trial.is_right(plainly, *kind)
    for name in Found._fields:

        def wrong(*given: Any, name: str = name) -> Found:
            found = plainly(*given)
            return found._replace(**{name: getattr(found, name) + 1})

        with pytest.warns(
            UserWarning, match=rf"does not work on cpu \({name} differ from float64\)"
        ):
            assert not trial.is_right(wrong, *kind)
        # Once is enough.
        assert not trial.is_right(wrong, *kind)
    with pytest.warns(UserWarning, match=r"\(RuntimeError: Failed to find C compiler\.\); heedmap"):
        assert not trial.is_right(raising, *kind)


WITHOUT = """
import sys, torch, heedmap
from heedmap.doctor import examine
inputs = torch.randn(3, 1, 2, 30, 8)
heedmap.attention(*inputs, keep=heedmap.Summary(top=2))
print(examine()["triton"])
assert "triton" not in sys.modules
sys.modules["triton"] = None  # importing it fails
heedmap.attention(*inputs)[1].summarize()
"""


@pytest.mark.parametrize("kernel", ["native", "torch"])
def test_triton_is_not_imported_where_it_is_not_used(kernel: str) -> None:
    environment = os.environ | {"HEEDMAP_KERNEL": kernel}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_without_a_gpu_it_serves_nothing() -> None:
    assert not triton.serves(problem_of(QUERY, KEY), 0)


@pytest.mark.bad_input
def test_products_that_there_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEEDMAP_PRODUCTS", "float8")
    with pytest.raises(
        ArgumentError, match="HEEDMAP_PRODUCTS must be float32 or bfloat16; got 'float8'"
    ):
        triton.statistics(problem_of(QUERY, KEY), torch.zeros(4, 40), Wanted(received=True))


@pytest.mark.parametrize("mask", [None, Causal(), Window(before=20, after=0)])
def test_shares_are_about_as_much_work(mask: Any) -> None:
    length, block, groups = 4096, 64, 7
    problem = problem_of(*torch.zeros(2, 1, 1, length, 1), mask=mask)
    hidden = hidden_of(problem, range(length))
    cuts = share_out(hidden, length, block, groups, CPU).tolist()
    assert (cuts[0], cuts[-1], len(cuts)) == (0, length, groups + 1)
    assert all(cut % block == 0 for cut in cuts)
    seen = torch.ones(length) if hidden.first is None else (hidden.last - hidden.first + 1)[0, 0]
    work = [float(seen[a:b].sum()) for a, b in itertools.pairwise(cuts)]
    # A group is a whole number of blocks.
    assert max(work) - min(work) <= 2 * block * float(seen.max())


def test_shares_of_few_rows() -> None:
    assert share_out(Hidden(), 5, 64, 1, CPU).tolist() == [0, 5]
    assert share_out(Hidden(), 130, 64, 3, CPU).tolist() == [0, 64, 128, 130]


def test_as_many_groups_as_there_is_room_for() -> None:
    assert groups_for(Sizes(1, 8192, 8192), 528, 64) == 128
    assert groups_for(Sizes(32, 8192, 8192), 528, 64) == 17
    assert groups_for(Sizes(1000, 8192, 8192), 528, 64) == 1
    assert groups_for(Sizes(1, 10**6, 10**6), 528, 64) == 268
    assert groups_for(Sizes(8, 10**8, 10**8), 528, 64) == 1


@needs_triton
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())
def test_on_a_gpu(options: dict[str, Any], dtype: torch.dtype) -> None:
    options = {
        name: option.cuda() if isinstance(option, Tensor) else option
        for name, option in options.items()
    }
    if isinstance(mask := options.get("mask"), heedmap.Mask):
        options["mask"] = mask.to("cuda")
    problem = problem_of(QUERY.to(dtype).cuda(), KEY.to(dtype).cuda(), **options)
    assert triton.serves(problem, 3)
    weights, normalizer = exact_weights(problem)
    wanted = everything(problem, 3)
    found = triton.statistics(problem, normalizer.float(), wanted)
    require_right(found, wanted, weights)
    again = triton.statistics(problem, normalizer.float(), wanted)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
