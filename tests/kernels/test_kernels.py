"""Every kernel against the plain formula in float64: outputs, log-normalisers, gradients."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from heedmap import Causal, Documents, Mask, Padding, Visible, Window
from heedmap.kernels import differentiable, fused
from heedmap.problem import Problem, make_problem
from tests.derivatives import require_first_derivatives, require_second_derivatives

QUERIES, KEYS = 5, 7
VALID = torch.tensor([[1, 1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1, 1]])
NUMBERS = torch.Generator().manual_seed(11)
MASKS: dict[str, Mask | None] = {
    "none": None,
    "padding": Padding(VALID),
    "nothing valid": Padding(torch.zeros(2, KEYS)),
    "causal from the start": Causal("start"),
    "causal to the end": Causal("end"),
    "causal before the start": Causal(-2),
    "causal and padding": Causal("start") & Padding(VALID),
    "causal to the end and padding": Causal("end") & Padding(VALID),
    "window": Window("end", before=1, after=1),
    "causal window": Window("start", before=1) & Causal("start"),
    "documents": Documents(
        torch.tensor([[0, 0, 1, 1, 2], [3, 3, 3, 4, 4]]),
        torch.tensor([[0, 0, 1, 1, 2, 2, 2], [9, 9, 9, 4, 4, 4, 4]]),
    ),
    "table": Visible(torch.rand(QUERIES, KEYS, generator=NUMBERS) > 0.5),
    "table of keys": Visible(torch.rand(2, 1, 1, KEYS, generator=NUMBERS) > 0.5),
    "table or padding": Visible(torch.rand(2, 4, QUERIES, KEYS, generator=NUMBERS) > 0.7)
    | Padding(VALID),
}


def losses(problem: Problem, value: Tensor, backend: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return output, log-normaliser, and a loss that depends on both."""
    output, known = differentiable.run(problem, value, backend)
    normalizer = differentiable.log_normalizer(problem, known, backend)
    generator = torch.Generator().manual_seed(1)
    up, rise = (
        torch.randn(tuple(t.shape), generator=generator, dtype=t.dtype)
        for t in (output, normalizer)
    )
    finite = normalizer.masked_fill(normalizer == -math.inf, 0)
    return output, normalizer, (output * up).sum() + (finite * rise).sum()


def compare(
    mask: Mask | None,
    *,
    heads: tuple[int, int] = (4, 4),
    sizes: tuple[int, int] = (QUERIES, KEYS),
    widths: tuple[int, int] = (8, 8),
    bias: tuple[int, ...] | None = None,
    sinks: bool = False,
    soft_cap: float | None = None,
) -> list[str]:
    torch.manual_seed(5)
    numbers = {"dtype": torch.float64, "requires_grad": True}
    query = torch.randn(2, heads[0], sizes[0], widths[0], **numbers)
    key = torch.randn(2, heads[1], sizes[1], widths[0], **numbers)
    value = torch.randn(2, heads[1], sizes[1], widths[1], **numbers)
    inputs = [query, key, value]
    options: dict[str, Tensor | None] = {"bias": None, "sinks": None}
    if bias is not None:
        options["bias"] = torch.randn(bias, dtype=torch.float64)
        options["bias"].flatten()[0] = -math.inf
    if sinks:
        options["sinks"] = torch.randn(heads[0], **numbers)
        inputs.append(options["sinks"])
    problem, values = make_problem(
        query, key, value, mask=mask, scale=None, soft_cap=soft_cap, **options
    )
    assert values is not None
    backends = ["reference", "tiles"] + ["fused"] * fused.serves(problem, values)
    results = {}
    for backend in backends:
        output, normalizer, loss = losses(problem, values, backend)
        results[backend] = (
            output,
            normalizer,
            *torch.autograd.grad(loss, inputs, retain_graph=True),
        )
    for backend in backends[1:]:
        for found, expected in zip(results[backend], results["reference"], strict=True):
            torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    return backends


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)], ids=["each its own", "grouped"])
def test_kernels_agree(mask: str, heads: tuple[int, int]) -> None:
    for widths, bias, sinks, cap in itertools.product(
        [(8, 8), (8, 5), (4, 9)],
        [None, (QUERIES, KEYS), (2, 1, 1, KEYS), (1, 4, QUERIES, 1)],
        [False, True],
        [None, 2.0],
    ):
        ran = compare(MASKS[mask], heads=heads, widths=widths, bias=bias, sinks=sinks, soft_cap=cap)
        assert ("fused" in ran) == (cap is None)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (1, 1), (1, 9), (0, 0)])
@pytest.mark.parametrize("causal", [False, True])
def test_small_sizes(sizes: tuple[int, int], causal: bool) -> None:
    compare(Causal("end") if causal else None, heads=(2, 2), sizes=sizes, widths=(4, 4))


@pytest.mark.parametrize(
    "mask",
    [Causal("end"), Window("end", before=300, after=20), Causal("end") & Window("end", before=99)],
)
def test_many_blocks(mask: Mask) -> None:
    ran = compare(mask, heads=(2, 1), sizes=(1500, 2100), widths=(4, 4))
    assert ran == ["reference", "tiles", "fused"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", ["none", "causal and padding", "window"])
def test_no_worse_than_the_fused_kernel(dtype: torch.dtype, mask: str) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 4, n, 32).to(dtype) for n in (QUERIES, KEYS, KEYS))
    options = {"scale": None, "soft_cap": None, "bias": None, "sinks": None}
    exact_problem, exact_value = make_problem(
        query.double(), key.double(), value.double(), mask=MASKS[mask], **options
    )
    assert exact_value is not None
    exact = differentiable.run(exact_problem, exact_value, "reference")
    problem, values = make_problem(query, key, value, mask=MASKS[mask], **options)
    assert values is not None
    output, normalizer = differentiable.run(problem, values, "fused")
    assert output.dtype == dtype
    assert normalizer.dtype == torch.float32
    tiled, tiled_normalizer = differentiable.run(problem, values, "tiles")
    allowed = (output.double() - exact[0]).abs().max() + torch.finfo(dtype).eps
    assert (tiled.double() - exact[0]).abs().max() <= allowed
    for found in (normalizer, tiled_normalizer):
        torch.testing.assert_close(found.double(), exact[1], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("backend", ["fused", "tiles", "reference"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", ["none", "causal and padding", "window"])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_half_precision_is_rounded_once(
    backend: str, dtype: torch.dtype, mask: str, with_sinks: bool
) -> None:
    torch.manual_seed(0)
    given = [torch.randn(2, 4, n, 32).to(dtype) for n in (QUERIES, KEYS, KEYS)]
    sinks = torch.randn(4).to(dtype) if with_sinks else None
    outputs = []
    for numbers, name in ((dtype, backend), (torch.float64, "reference")):
        query, key, value = (t.to(numbers) for t in given)
        problem, values = make_problem(
            query, key, value, mask=MASKS[mask], scale=None, soft_cap=None, bias=None, sinks=sinks
        )
        assert values is not None
        outputs.append(differentiable.run(problem, values, name)[0])
    output, exact = outputs
    assert output.dtype == dtype
    step = torch.finfo(dtype).eps * torch.exp2(torch.frexp(exact).exponent - 1.0)
    assert bool(((output.double() - exact).abs() <= step / 2 + 1e-6).all())


@pytest.mark.parametrize("backend", ["fused", "tiles"])
def test_gradients_of_gradients(backend: str) -> None:
    numbers = {"dtype": torch.float64, "requires_grad": True}
    query, key, value = (torch.randn(1, 2, n, 3, **numbers) for n in (3, 4, 4))
    mask = Padding(torch.tensor([[0, 1, 1, 1]])) & Causal("start")

    def call(*inputs: Tensor) -> Tensor:
        problem, values = make_problem(
            *inputs, mask=mask, scale=None, soft_cap=None, bias=None, sinks=None
        )
        assert values is not None
        return differentiable.run(problem, values, backend)[0]

    require_first_derivatives(call, (query, key, value))
    require_second_derivatives(call, (query, key, value))
