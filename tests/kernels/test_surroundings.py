"""What a caller has set around a call changes nothing in it: default number type and device."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import heedmap
from heedmap import Padding, Summary
from heedmap.nn import SelfAttention

VALID = torch.arange(6)[None] < 5


@pytest.fixture(params=[torch.float64, torch.bfloat16, "meta"], ids=str)
def around(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_default_dtype()
    if request.param == "meta":
        with torch.device("meta"):
            yield
    else:
        torch.set_default_dtype(request.param)
        yield
        torch.set_default_dtype(before)


def answers(inputs: list[Tensor], mask: Padding | None) -> list[Tensor]:
    given = [tensor.clone().requires_grad_() for tensor in inputs]
    output, weights = heedmap.attention(*given, mask=mask)
    gradients = torch.autograd.grad(output.square().sum(), given)
    _, found = heedmap.attention(*inputs, mask=mask, keep=Summary(top=2, pool=(2, 2)))
    asked = weights.detach().summarize(top=2, pool=(2, 2))
    made = [output.detach(), *gradients, weights.detach().to_dense()]
    for summary in (found, asked):
        made += [summary.received, summary.entropy]
        made += [
            t for t in (summary.top_weights, summary.top_keys, summary.pooled) if t is not None
        ]
    return made


@pytest.fixture
def expected() -> Callable[[Padding | None], tuple[list[Tensor], list[Tensor]]]:
    """What a problem gives where nothing is set, asked for before anything is."""
    torch.manual_seed(0)
    inputs = list(torch.randn(3, 1, 2, 6, 8))
    known = {mask: answers(inputs, mask) for mask in (None, PADDED)}
    return lambda mask: (inputs, known[mask])


PADDED = Padding(VALID)


@pytest.mark.parametrize("mask", [None, PADDED], ids=["all", "padded"])
@pytest.mark.usefixtures("expected", "around")
def test_defaults_change_nothing(
    expected: Callable[[Padding | None], tuple[list[Tensor], list[Tensor]]], mask: Padding | None
) -> None:
    inputs, before = expected(mask)
    for one, two in zip(answers(inputs, mask), before, strict=True):
        assert one.dtype == two.dtype
        assert one.device == two.device
        assert torch.equal(one, two)


def test_a_view_with_its_sign_turned() -> None:
    given = list(torch.randn(3, 2, 5, 4))
    turned = [torch._neg_view(tensor) for tensor in given]
    output, weights = heedmap.attention(*turned)
    expected, same = heedmap.attention(*(-tensor for tensor in given))
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights.to_dense(), same.to_dense())


def test_junk_never_reaches_the_projections() -> None:
    layer, mask = SelfAttention(4, 8, dropout=0.5), torch.arange(5)[None] < torch.tensor([[5], [3]])
    x, seen = torch.randn(2, 5, 4), []
    layer.w_q.register_forward_hook(
        lambda _, given, __: seen.append(bool(given[0].isfinite().all()))
    )
    results = []
    for junk in (0.0, torch.nan):
        x[1, 3:] = junk
        torch.manual_seed(1)
        results.append(layer(x, mask)[0][mask])
    assert torch.equal(*results)
    assert seen == [True, True]


def test_no_positions_while_training_with_dropout() -> None:
    layer = SelfAttention(4, 8, dropout=0.3)
    assert layer(torch.randn(2, 0, 4), torch.ones(2, 0))[0].shape == (2, 0, 8)
    assert layer(torch.randn(0, 3, 4))[0].shape == (0, 3, 8)


def test_masks_of_numbers_under_functionalize() -> None:
    layer, x = SelfAttention(4, 8), torch.randn(2, 5, 4)
    made = torch.func.functionalize(lambda x, mask: layer(x, mask)[0])(x, torch.ones(2, 5))
    torch.testing.assert_close(made, layer(x)[0])
