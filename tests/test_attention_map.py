"""A map is a tensor to the code that people have, and cannot be written into."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import einops
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import default_collate

import heedmap
from heedmap import AttentionMap, Causal, Padding, compiled
from heedmap.errors import ArgumentError, BudgetError, FrozenError, ShapeError, UnsupportedError


def fastest() -> str:
    """Return the kernel that plain problems go to on this machine."""
    return "fused" if compiled.load() is None else "native"


@pytest.fixture
def weights() -> AttentionMap:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 3, 7, 4)
    mask = Padding(torch.tensor([[1] * 7, [1] * 5 + [0] * 2])) & Causal()
    return heedmap.attention(query, key, value, mask=mask)[1]


class TestAsATensor:
    def test_is_one(self, weights: AttentionMap) -> None:
        assert isinstance(weights, Tensor)
        assert torch.is_tensor(weights)
        assert torch.is_floating_point(weights)
        assert (weights.dim(), weights.ndim, weights.numel(), len(weights)) == (4, 4, 294, 2)
        assert weights.size() == weights.shape == (2, 3, 7, 7)
        assert weights.size(-1) == 7
        assert weights.device == torch.device("cpu")
        assert weights.dtype == torch.float32

    def test_einops(self, weights: AttentionMap) -> None:
        dense = weights.to_dense()
        merged = einops.rearrange(weights, "b h q k -> (b h) q k")
        assert isinstance(merged, AttentionMap)
        assert torch.equal(merged.to_dense(), einops.rearrange(dense, "b h q k -> (b h) q k"))
        mean = einops.reduce(weights, "b h q k -> b q k", "mean")
        torch.testing.assert_close(mean.to_dense(), dense.mean(1))
        assert einops.rearrange(weights, "b h q k -> b q (h k)").shape == (2, 7, 21)

    def test_default_collate(self, weights: AttentionMap) -> None:
        batch = default_collate([weights[0], weights[1]])
        assert torch.equal(batch.to_dense(), weights.to_dense())
        nested = default_collate([{"weights": weights[0]}, {"weights": weights[1]}])
        assert nested["weights"].shape == weights.shape

    @pytest.mark.parametrize(
        "again",
        [copy.deepcopy, copy.copy, lambda held: pickle.loads(pickle.dumps(held))],
        ids=["deepcopy", "copy", "pickle"],
    )
    def test_copies(self, weights: AttentionMap, again: Callable[[Any], Any]) -> None:
        assert torch.equal(again(weights).to_dense(), weights.to_dense())
        assert torch.equal(
            again(weights[0].mean(0) * 2).to_dense(), (weights[0].mean(0) * 2).to_dense()
        )

    @pytest.mark.parametrize("weights_only", [True, False])
    def test_save_and_load(self, weights: AttentionMap, weights_only: bool) -> None:
        for held in (
            weights,
            weights.mean(1),
            weights[0, :, 1:, [0, 2]],
            weights.log(),
            weights.mT,
        ):
            stored = io.BytesIO()
            torch.save({"weights": held}, stored)
            stored.seek(0)
            loaded = torch.load(stored, weights_only=weights_only)["weights"]
            assert isinstance(loaded, AttentionMap)
            torch.testing.assert_close(loaded.to_dense(), held.to_dense(), rtol=0, atol=0)

    def test_saving_keeps_factors_not_cells(self) -> None:
        query = torch.zeros(1, 1, 5000, 4)
        stored = io.BytesIO()
        torch.save(AttentionMap.from_factors(query, query), stored)
        assert stored.tell() < 400_000

    def test_numpy_and_lists(self, weights: AttentionMap) -> None:
        dense = weights.to_dense()
        assert np.array_equal(np.asarray(weights), dense.numpy())
        assert np.asarray(weights, dtype=np.float64).dtype == np.float64
        assert np.array_equal(np.stack([weights, weights]), np.stack([dense, dense]))
        assert weights.tolist() == dense.tolist()
        assert weights[0, 0, 0].tolist() == dense[0, 0, 0].tolist()
        assert weights[0, 0, 3, 2].item() == dense[0, 0, 3, 2].item()
        assert float(weights[1, 2, 3, 3]) == float(dense[1, 2, 3, 3])

    def test_iteration_gives_views(self, weights: AttentionMap) -> None:
        for sample, twin in zip(weights, weights.to_dense(), strict=True):
            assert isinstance(sample, AttentionMap)
            for head, other in zip(sample, twin, strict=True):
                torch.testing.assert_close(head.to_dense(), other)

    def test_moves_and_casts_stay_lazy(self, weights: AttentionMap) -> None:
        for moved in (weights.cpu(), weights.to("cpu"), weights.float(), weights.contiguous()):
            assert isinstance(moved, AttentionMap)
        for dtype in (torch.float64, torch.float16, torch.bfloat16):
            cast = weights.to(dtype)
            assert isinstance(cast, AttentionMap)
            assert cast.dtype == cast.sum(-1).dtype == cast[0, 0, 0].clone().dtype == dtype
        assert weights.to(weights.mean(1).double()).dtype == torch.float64

    def test_truth_of_many_is_refused_as_for_tensors(self, weights: AttentionMap) -> None:
        with pytest.raises(RuntimeError):
            bool(weights)
        assert bool((weights <= 1.001).all())

    def test_repr_of_a_small_map_is_that_of_a_tensor(self, weights: AttentionMap) -> None:
        assert repr(weights[0, 0]) == repr(weights[0, 0].to_dense())
        assert f"{weights[0, 0, 1, 0].item():.2f}" in str(weights[0, 0, 1])

    def test_repr_of_a_large_map_shows_corners(self) -> None:
        query = torch.zeros(1, 1, 40_000, 4)
        shown = repr(AttentionMap.from_factors(query, query, mask=Causal()))
        for word in ("[1, 1, 40000, 40000]", "Causal", "6.0 GiB", fastest(), "2.5e-05", "…"):
            assert word in shown

    def test_reading_elements_in_a_loop(self, weights: AttentionMap) -> None:
        dense = weights[0, 0].to_dense()
        for i in range(7):
            for j in range(7):
                assert weights[0, 0, i, j] == pytest.approx(dense[i, j].item(), abs=1e-7)


def _set_item(held: Any) -> None:
    held[..., 0] = 0


def _set_row(held: Any) -> None:
    held[0, 0, 1][2] = 0


def _add_in_place(held: Any) -> None:
    held += 1


def _write_out(held: Any) -> None:
    torch.add(torch.ones(2, 3, 7, 7), 1, out=held)


def _set_data(held: Any) -> None:
    held.data = torch.zeros(2, 3, 7, 7)


WRITES: dict[str, Callable[[Any], object]] = {
    "setitem": _set_item,
    "setitem of a row": _set_row,
    "+=": _add_in_place,
    "out=": _write_out,
    "data": _set_data,
    "fill_diagonal_": lambda held: held[0, 0].fill_diagonal_(0),
    "mul_": lambda held: held.mul_(2),
    "zero_": lambda held: held.zero_(),
    "clamp_": lambda held: held.clamp_(0, 1),
    "masked_fill_": lambda held: held.masked_fill_(torch.ones(7, 7).bool(), 0.0),
    "copy_": lambda held: held.copy_(torch.zeros(2, 3, 7, 7)),
    "index_fill_": lambda held: held.index_fill_(-1, torch.tensor([0]), 0.0),
    "scatter_": lambda held: held.scatter_(-1, torch.zeros(2, 3, 7, 1).long(), 0.0),
    "torch.fill_": lambda held: torch.fill_(held, 0),
    "a write into a view of another shape": lambda held: held.view(2, -1).zero_(),
    "a write into a flattened row": lambda held: held.flatten()[3:5].fill_(0),
    "a write into a permuted view": lambda held: held.permute(0, 2, 1, 3).mul_(2),
    "a write into the diagonal": lambda held: held[0, 0].mT.fill_diagonal_(1),
    "a write into an unbound row": lambda held: held.unbind(0)[0].add_(1),
}


@pytest.mark.parametrize("write", WRITES)
def test_every_write_raises(weights: AttentionMap, write: str) -> None:
    before = weights.to_dense()
    with pytest.raises(FrozenError, match="clone"):
        WRITES[write](weights)
    assert torch.equal(weights.to_dense(), before)


def test_a_clone_is_an_ordinary_tensor(weights: AttentionMap) -> None:
    cloned = weights.clone()
    assert type(cloned) is Tensor
    cloned[..., 0] = 0
    assert bool((weights[..., 0].clone() > 0).any())


def test_a_map_can_be_written_into_other_tensors(weights: AttentionMap) -> None:
    rows = torch.zeros(3, 7)
    rows[1] = weights[0, 0, 4]
    assert torch.equal(rows[1], weights[0, 0, 4].clone())
    rows += weights[0, 0, :3]
    stored = torch.zeros(2, 3, 7, 7).copy_(weights)
    assert torch.equal(stored, weights.to_dense())


@pytest.mark.parametrize("which", ["query", "key"])
def test_a_map_of_factors_that_were_written_into_is_refused(which: str) -> None:
    factors = {"query": torch.randn(5, 4), "key": torch.randn(5, 4)}
    held = AttentionMap.from_factors(**factors)
    held.sum(-1)
    copied = copy.deepcopy(held)
    factors[which].mul_(2)
    for ask in (
        lambda: held.sum(-1),
        lambda: held[0].tolist(),
        lambda: held.summarize(),
        lambda: held.diagonal(),
        lambda: held.log_normalizer,
        lambda: held.scores.clone(),
    ):
        with pytest.raises(UnsupportedError, match="written into"):
            ask()
    torch.testing.assert_close(copied.sum(-1), torch.ones(5))


class TestBudget:
    def test_what_has_no_lazy_form_is_refused_over_the_budget(self, weights: AttentionMap) -> None:
        with heedmap.dense_budget(100):
            for wish in (
                lambda: weights.to_dense(),
                lambda: weights.clone(),
                lambda: weights.numpy(),
                lambda: weights.tolist(),
                lambda: weights.cumsum(-1),
                lambda: weights.view(2, -1),
                lambda: torch.zeros_like(weights),
            ):
                with pytest.raises(BudgetError, match=r"1\.1 KiB") as caught:
                    wish()
                assert isinstance(caught.value, MemoryError)
            assert weights[0, 0, 1].tolist()
            assert weights[..., -1:, :].clone().shape == (2, 3, 1, 7)

    def test_max_bytes_stands_above_the_budget(self, weights: AttentionMap) -> None:
        with heedmap.dense_budget(0):
            assert weights.to_dense(max_bytes=2000).shape == weights.shape
        with pytest.raises(BudgetError):
            weights.to_dense(max_bytes=10)

    def test_the_variable_sets_it(
        self, weights: AttentionMap, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEEDMAP_DENSE_BYTES", "10")
        with pytest.raises(BudgetError, match="10 bytes"):
            weights.clone()
        monkeypatch.setenv("HEEDMAP_DENSE_BYTES", "much")
        with pytest.raises(
            ArgumentError, match="HEEDMAP_DENSE_BYTES must be a number of bytes; got 'much'"
        ):
            weights.clone()


class TestWhatOnlyMapsHave:
    def test_scores_and_logarithms(self, weights: AttentionMap) -> None:
        scores = weights.scores.to_dense()
        dense = weights.to_dense()
        assert bool((scores[dense == 0] == -torch.inf).all())
        torch.testing.assert_close(scores.softmax(-1), dense)
        torch.testing.assert_close(weights.log_weights.to_dense().exp(), dense)
        torch.testing.assert_close(weights.log()[0, 1, 2].clone(), dense[0, 1, 2].log())
        torch.testing.assert_close(weights[0, 1, 2:4].scores.to_dense(), scores[0, 1, 2:4])
        torch.testing.assert_close(weights.log_normalizer, scores.logsumexp(-1))
        torch.testing.assert_close(
            weights[1, :, 2:4].log_normalizer, scores[1, :, 2:4].logsumexp(-1)
        )

    def test_they_are_refused_where_there_are_none(self, weights: AttentionMap) -> None:
        for held in (weights.mean(1), weights * 2, AttentionMap.from_weights(torch.eye(2))):
            with pytest.raises(UnsupportedError):
                _ = held.scores
            with pytest.raises(UnsupportedError):
                _ = held.log_normalizer

    def test_backend_is_named(self, weights: AttentionMap) -> None:
        assert weights.backend == weights[0].mean(0).backend == fastest()
        x = torch.zeros(3, 4)
        assert heedmap.attention(x, x, x, soft_cap=1.0)[1].backend == "tiles"
        assert heedmap.attention(x, x, x, backend="reference")[1].backend == "reference"
        assert AttentionMap.from_weights(torch.eye(2)).backend == "dense"

    def test_ties_go_to_the_lowest_key(self) -> None:
        even = AttentionMap.from_factors(torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 5000, 4))
        assert even.topk(5).indices[0, 0].tolist() == [[0, 1, 2, 3, 4]] * 3
        assert even.argmax(-1)[0, 0].tolist() == [0, 0, 0]
        causal = AttentionMap.from_factors(*torch.zeros(2, 1, 1, 2000, 4), mask=Causal())
        assert causal.topk(4).indices[0, 0, [0, 1, 5, -1]].tolist() == [[0, 1, 2, 3]] * 4
        assert causal.summarize(top=4).top_keys[0, 0, [0, -1]].tolist() == [[0, 1, 2, 3]] * 2


@pytest.mark.bad_input
class TestBadInput:
    def test_shapes_that_are_no_map(self) -> None:
        for wrong in (torch.zeros(3), torch.zeros(())):
            with pytest.raises(ShapeError, match="query, key"):
                AttentionMap.from_weights(wrong)
        with pytest.raises(ShapeError, match="list"):
            AttentionMap.from_weights([[1.0]])

    def test_questions_that_make_no_sense(self, weights: AttentionMap) -> None:
        with pytest.raises(ShapeError, match="an index has taken a side"):
            weights[0, 0, 1].entropy()
        with pytest.raises(ArgumentError, match="rows and columns"):
            weights.pool(0, 3)
        with pytest.raises(ArgumentError, match="how must be"):
            weights.pool(2, 2, "median")
        with pytest.raises(ShapeError, match="top must be"):
            weights.summarize(top=8)
        with pytest.raises(ArgumentError, match="max_bytes"), heedmap.dense_budget(-1):
            pass

    def test_indices_out_of_range(self, weights: AttentionMap) -> None:
        for key in ((2,), (0, 0, 7), (0, 0, 0, -8), (0, 0, [7]), (0,) * 5):
            with pytest.raises(IndexError):
                weights[key]
        for call in (
            lambda: weights.sum(4),
            lambda: weights.topk(8),
            lambda: weights.reshape(5, -1),
            lambda: weights.permute(0, 1, 2, 2),
            lambda: weights @ torch.zeros(3, 2),
        ):
            with pytest.raises((IndexError, RuntimeError, ValueError)):
                call()
