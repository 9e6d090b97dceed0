"""The gradient with respect to the weights: lazy, of low rank, equal to that of stored weights."""

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import heedmap
from heedmap import AttentionMap, Causal, Mask, Padding
from heedmap.errors import FrozenError, UnsupportedError
from heedmap.kernels.differentiable import KERNELS, serves
from heedmap.nn import SelfAttention

VALID = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
MASK = Padding(VALID) & Causal()
"""Under which the first two queries of the second sample see nothing."""


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=numbers, dtype=torch.float64).to(dtype)


def factors(kv_heads: int = 4, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    query, key = draw(2, 4, 5, 3, seed=1, dtype=dtype), draw(2, kv_heads, 5, 3, seed=2, dtype=dtype)
    value = draw(2, kv_heads, 5, 2, seed=3, dtype=dtype)
    return query.requires_grad_(), key.requires_grad_(), value.requires_grad_()


def types_of(backend: str) -> list[torch.dtype]:
    """Return the number types that a backend computes on this machine."""
    if backend == "auto":
        return [torch.float64, torch.float32]
    found = []
    for dtype in (torch.float64, torch.float32):
        query, key, value = factors(dtype=dtype)
        problem = heedmap.attention(query, key, value)[1]._rule.problem
        found += [dtype] if serves(backend, problem, value) else []
    return found


BACKENDS = [
    pytest.param(name, dtype, id=f"{name} {dtype}".replace("torch.", ""))
    for name in ("auto", *KERNELS)
    for dtype in types_of(name)
]
backends = pytest.mark.parametrize(("backend", "dtype"), BACKENDS)


def score_of(output: Tensor) -> Tensor:
    return (output * draw(*output.shape, seed=9).to(output.dtype)).square().sum()


def stored(query: Tensor, key: Tensor, value: Tensor, mask: Mask | None) -> tuple[Tensor, Tensor]:
    """Return output and weights as code does that stores them."""
    weights = heedmap.attention(query, key, value, mask=mask)[1].to_dense()
    groups = query.shape[1] // key.shape[1]
    return weights @ value.repeat_interleave(groups, 1), weights


Ask = Callable[[Tensor, Tensor], Tensor | None]


def by_grad(score: Tensor, weights: Tensor) -> Tensor | None:
    return torch.autograd.grad(score, [weights])[0]


def by_one_grad(score: Tensor, weights: Tensor) -> Tensor | None:
    return torch.autograd.grad(score, weights)[0]


def by_retain_grad(score: Tensor, weights: Tensor) -> Tensor | None:
    weights.retain_grad()
    score.backward()
    return weights.grad


def by_hook(score: Tensor, weights: Tensor) -> Tensor | None:
    came: list[Tensor] = []
    weights.register_hook(came.append)
    score.backward()
    assert len(came) == 1
    return came[0]


def by_inputs(score: Tensor, weights: Tensor) -> Tensor | None:
    score.backward(inputs=[weights])
    return weights.grad


WAYS: dict[str, Ask] = {
    "grad": by_grad,
    "grad of one": by_one_grad,
    "retain_grad": by_retain_grad,
    "hook": by_hook,
    "backward(inputs=)": by_inputs,
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def require_equal(found: Tensor | None, expected: Tensor, weights: Tensor) -> None:
    """Compare where anything is visible."""
    assert isinstance(found, AttentionMap)
    assert found.shape == expected.shape
    visible = weights.detach().clone() > 0
    assert bool(visible.any())
    atol, rtol = (1e-5, 1e-5) if found.dtype == torch.float32 else (1e-10, 1e-10)
    torch.testing.assert_close(
        found.clone()[visible].to(expected.dtype), expected[visible], atol=atol, rtol=rtol
    )


class TestOfAttention:
    @ways
    @backends
    @pytest.mark.parametrize("kv_heads", [4, 2])
    @pytest.mark.parametrize("mask", [None, MASK], ids=["all", "some"])
    def test_equals_that_of_stored_weights(
        self, way: Ask, backend: str, dtype: torch.dtype, kv_heads: int, mask: Mask | None
    ) -> None:
        output, weights = stored(*factors(kv_heads), mask)
        expected = torch.autograd.grad(score_of(output), [weights])[0]
        output, held = heedmap.attention(*factors(kv_heads, dtype), mask=mask, backend=backend)
        require_equal(way(score_of(output), held), expected, weights)

    @pytest.mark.parametrize("rank", [2, 3])
    def test_leading_dimensions_may_be_left_out(self, rank: int) -> None:
        given = [tensor[(0,) * (4 - rank)] for tensor in factors()]
        output, weights = heedmap.attention(*given)
        (found,) = torch.autograd.grad(output.sum(), [weights])
        expected = torch.ones_like(output) @ given[2].mT
        torch.testing.assert_close(found.clone(), expected)

    def test_of_half_precision(self) -> None:
        given = [tensor.detach().bfloat16().requires_grad_() for tensor in factors()]
        output, weights = heedmap.attention(*given)
        (found,) = torch.autograd.grad(output.float().square().sum(), [weights])
        assert found.dtype == torch.bfloat16
        expected = 2 * output.float() @ given[2].float().mT
        torch.testing.assert_close(found.clone().float(), expected, rtol=1e-2, atol=1e-2)

    def test_through_sinks_and_a_soft_cap(self) -> None:
        query, key, value = factors()
        options = {"sinks": draw(4), "soft_cap": 2.0}
        output, weights = heedmap.attention(query, key, value, **options)
        (found,) = torch.autograd.grad(score_of(output), [weights], retain_graph=True)
        dense = weights.to_dense()
        expected = torch.autograd.grad(score_of(dense @ value), [dense])[0]
        require_equal(found, expected, weights)

    def test_beside_others(self) -> None:
        query, key, value = factors()
        output, weights = heedmap.attention(query, key, value)
        of_weights, of_value = torch.autograd.grad(score_of(output), [weights, value])
        dense, expected = stored(query, key, value, None)
        wanted = torch.autograd.grad(score_of(dense), [expected, value])
        require_equal(of_weights, wanted[0], expected)
        torch.testing.assert_close(of_value, wanted[1])

    def test_it_can_be_derived_again(self) -> None:
        query, key, value = factors()
        found = []
        for attend in (heedmap.attention, lambda *given: stored(*given, None)):
            output, weights = attend(query, key, value)
            (slope,) = torch.autograd.grad(score_of(output), [weights], create_graph=True)
            penalty = (slope * slope).sum()
            found.append(torch.autograd.grad(penalty, [query, key, value]))
        torch.testing.assert_close(*found)

    def test_it_is_as_lazy_as_the_weights(self, forbid_dense: Callable[..., object]) -> None:
        query, key, value = torch.randn(3, 1, 1, 3000, 4).unbind()
        query.requires_grad_()
        with forbid_dense(3000 * 3000):
            output, weights = heedmap.attention(query, key, value, mask=Causal())
            weights.retain_grad()
            output.square().sum().backward()
            relevance = (weights.grad * weights.detach()).clamp(min=0)
            assert relevance.sum(-1).shape == (1, 1, 3000)
            torch.testing.assert_close(
                weights.grad[0, 0, 7, :4].clone(), 2 * output[0, 0, 7].detach() @ value[0, 0, :4].mT
            )


class TestWhatIsKept:
    def test_it_adds_up_until_it_is_taken_away(self) -> None:
        output, weights = heedmap.attention(*factors())
        assert not weights.retains_grad
        assert not weights.is_leaf
        weights.retain_grad()
        weights.retain_grad()
        assert weights.retains_grad
        assert weights.grad is None
        output.sum().backward(retain_graph=True)
        once = weights.grad.clone()
        output.sum().backward(retain_graph=True)
        torch.testing.assert_close(weights.grad.clone(), 2 * once)
        weights.grad = None
        assert weights.grad is None
        output.sum().backward(inputs=[weights])
        torch.testing.assert_close(weights.grad.clone(), once)

    def test_a_hook_that_was_removed_hears_nothing(self) -> None:
        output, weights = heedmap.attention(*factors())
        came: list[Tensor] = []
        first, second = weights.register_hook(came.append), weights.register_hook(came.append)
        first.remove()
        output.sum().backward(retain_graph=True)
        assert len(came) == 1
        second.remove()
        (output.sum() + weights.entropy().sum()).backward()
        assert len(came) == 1

    def test_a_hook_outlives_the_map(self) -> None:
        output, weights = heedmap.attention(*factors())
        came: list[Tensor] = []
        weights.register_hook(came.append)
        del weights
        output.sum().backward()
        assert came[0].shape == (2, 4, 5, 5)

    def test_nothing_is_kept_alive(self) -> None:
        output, weights = heedmap.attention(*factors())
        weights.retain_grad()
        weights.register_hook(lambda _: None)
        output.sum().backward()
        node = weakref.ref(output.grad_fn)
        held = weakref.ref(weights)
        del output, weights
        gc.collect()
        assert node() is None
        assert held() is None

    def test_a_loss_that_does_not_depend_on_it(self) -> None:
        query, key, value = factors()
        _, weights = heedmap.attention(query, key, value)
        with pytest.raises(RuntimeError, match="not have been used"):
            torch.autograd.grad(query.sum(), [weights])
        with pytest.raises(RuntimeError, match="not have been used"):
            query.sum().backward(inputs=[weights])
        assert torch.autograd.grad(query.sum(), [weights], allow_unused=True) == (None,)
        zeros, ones = torch.autograd.grad(query.sum(), [weights, query], materialize_grads=True)
        assert bool((zeros.clone() == 0).all())
        assert bool((ones == 1).all())


READS: dict[str, Callable[[AttentionMap, Tensor], Tensor]] = {
    "entropy": lambda w, _: w.entropy(),
    "a row": lambda w, _: w[0, 0, 3].square(),
    "top": lambda w, _: w.topk(2).values,
    "product": lambda w, value: w @ value,
    "every cell": lambda w, _: w.to_dense(),
    "logarithms": lambda w, _: w.log_weights[0, 0, 3],
}


@backends
@pytest.mark.parametrize("read", READS.values(), ids=READS)
class TestALossThatReadsTheWeightsToo:
    """Then the output does not tell all of the gradient, so there is none."""

    def test_asked_for(self, read: Callable[..., Tensor], backend: str, dtype: torch.dtype) -> None:
        query, key, value = factors(dtype=dtype)
        output, weights = heedmap.attention(query, key, value, backend=backend)
        loss = output.sum() + read(weights, value).sum()
        for ask in (
            lambda: torch.autograd.grad(loss, [weights], retain_graph=True),
            lambda: torch.autograd.grad(loss, [weights], retain_graph=True, allow_unused=True),
            lambda: loss.backward(inputs=[weights], retain_graph=True),
        ):
            with pytest.raises(UnsupportedError, match="by the output alone; it also reads"):
                ask()

    def test_kept(self, read: Callable[..., Tensor], backend: str, dtype: torch.dtype) -> None:
        query, key, value = factors(dtype=dtype)
        for listen in (lambda w: w.retain_grad(), lambda w: w.register_hook(lambda _: None)):
            output, weights = heedmap.attention(query, key, value, backend=backend)
            loss = output.sum() + read(weights, value).sum()
            listen(weights)
            with pytest.raises(UnsupportedError, match="by the output alone where retain_grad"):
                loss.backward()

    def test_nobody_asks(
        self, read: Callable[..., Tensor], backend: str, dtype: torch.dtype
    ) -> None:
        query, key, value = factors(dtype=dtype)
        output, weights = heedmap.attention(query, key, value, backend=backend)
        (output.sum() + read(weights, value).sum()).backward()
        assert query.grad is not None


NONE_TO_HAVE: dict[str, Callable[[AttentionMap], AttentionMap]] = {
    "selected": lambda w: w[0],
    "reduced": lambda w: w.mean(1),
    "computed with": lambda w: w * 2,
    "turned": lambda w: w.mT,
    "scores": lambda w: w.scores,
    "without an output": lambda w: AttentionMap.from_factors(*w._rule.problem.tensors()),
    "given": lambda w: AttentionMap.from_weights(w.to_dense()),
}


class TestWhatCannotBeHad:
    @pytest.mark.parametrize("make", NONE_TO_HAVE.values(), ids=NONE_TO_HAVE)
    def test_says_so(self, make: Callable[[AttentionMap], AttentionMap]) -> None:
        output, weights = heedmap.attention(*factors())
        held = make(weights)
        for ask in (
            lambda: torch.autograd.grad(output.sum(), [held], retain_graph=True),
            lambda: output.sum().backward(inputs=[held], retain_graph=True),
            lambda: held.retain_grad(),
            lambda: held.register_hook(lambda _: None),
            lambda: held.grad,
        ):
            with pytest.raises(UnsupportedError, match="must be asked of a whole map"):
                ask()

    def test_without_gradients_there_is_none(self) -> None:
        _, weights = heedmap.attention(*(tensor.detach() for tensor in factors()))
        assert weights.grad is None
        assert weights.is_leaf
        with pytest.raises(UnsupportedError, match="output that requires a gradient"):
            weights.retain_grad()

    def test_not_asked_for_in_time(self) -> None:
        output, weights = heedmap.attention(*factors())
        output.sum().backward()
        with pytest.raises(UnsupportedError, match=r"before the backward pass; it was not"):
            _ = weights.grad

    def test_what_else_torch_offers(self) -> None:
        output, weights = heedmap.attention(*factors())
        with pytest.raises(UnsupportedError, match="is_grads_batched must be False"):
            torch.autograd.grad(
                output, [weights], torch.ones(2, *output.shape), is_grads_batched=True
            )
        with pytest.raises(UnsupportedError, match="alone for a backward pass; got both"):
            output.sum().backward(inputs=[weights, weights.to_dense()])
        with pytest.raises(FrozenError, match="grad must not be set"):
            weights.grad = torch.ones(2, 4, 5, 5)
        with pytest.raises(ValueError, match="non-leaf"):
            torch.optim.SGD([weights])
        with pytest.raises(RuntimeError, match="non-leaf"):
            weights.register_post_accumulate_grad_hook(lambda _: None)
        weights.register_hook(lambda grad: grad)
        with pytest.raises(UnsupportedError, match="must return None"):
            output.sum().backward()


class TestOfSelfAttention:
    @ways
    @pytest.mark.parametrize("num_heads", [1, 2])
    def test_equals_that_of_multi_head_attention(self, way: Ask, num_heads: int) -> None:
        torch.manual_seed(0)
        theirs = nn.MultiheadAttention(8, num_heads, batch_first=True).double()
        layer = SelfAttention.from_multihead_attention(theirs)
        x = draw(2, 5, 8)
        output, weights = layer(x, VALID)
        found = way(score_of(output), weights)
        _, expected = layer(x, VALID)
        dense = expected.to_dense()
        value = layer.w_v(x).unflatten(-1, (num_heads, -1)).transpose(1, 2)
        gathered = dense.reshape(2, num_heads, 5, 5) @ value
        mixed = layer.w_o(gathered.transpose(1, 2).flatten(2))
        wanted = torch.autograd.grad(score_of(mixed), [dense])[0]
        require_equal(found, wanted, dense)

    def test_dropout_stands_between(self) -> None:
        output, weights = SelfAttention(8, 8, dropout=0.5).double()(draw(2, 5, 8))
        assert output.requires_grad
        with pytest.raises(UnsupportedError, match="without dropout"):
            weights.retain_grad()

    def test_hooks_for_all_outputs_leave_the_weights_a_map(self) -> None:
        layer = SelfAttention(8, 8).double()
        came: list[tuple[Tensor | None, ...]] = []
        layer.register_full_backward_hook(lambda _, __, grads: came.append(grads))
        output, weights = layer(draw(2, 5, 8).requires_grad_())
        weights.retain_grad()
        score_of(output).backward()
        assert weights.grad.shape == (2, 5, 5)
        assert came[0][0].shape == output.shape
        layer.zero_grad()
        layer(draw(2, 5, 8).requires_grad_())[1].entropy().sum().backward()
        assert layer.w_q.weight.grad is not None
