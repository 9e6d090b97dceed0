"""What attention, masks, maps and modules say of inputs that make no sense, word for word."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import heedmap
from heedmap import AttentionMap, Axis, Causal, Padding, Visible, Window, compiled
from heedmap.axes import Sequence
from heedmap.errors import (
    ArgumentError,
    BudgetError,
    DTypeError,
    FrozenError,
    HeedmapError,
    InputError,
    ShapeError,
    UnsupportedError,
)
from heedmap.masks import Spans
from heedmap.nn import SelfAttention

X = torch.zeros(2, 3, 4)


def attend(**options: object) -> object:
    inputs = {"query": X, "key": X, "value": X} | options
    return heedmap.attention(**inputs)  # pyright: ignore[reportArgumentType]


def a_map() -> AttentionMap:
    return AttentionMap.from_factors(X, X)


def watch(**options: object) -> object:
    return heedmap.watch(nn.Linear(1, 1), **options)  # pyright: ignore[reportArgumentType]


def with_gradient() -> None:
    a_map().requires_grad = True


def restored() -> None:
    make, parts = a_map().__reduce_ex__(4)
    make(99, *parts[1:])


def along_nothing() -> None:
    with heedmap.watch(SelfAttention(4, 4)) as seen:
        seen.along(torch.zeros(3, 9).long())


def below_torch() -> None:
    with torch._C.DisableTorchFunctionSubclass():
        torch.sin(a_map())


CASES: list[tuple[Callable[[], object], type[HeedmapError], str]] = [
    (
        lambda: attend(key=X[0]),
        ShapeError,
        "key must have as many dimensions as query; got 2 and 3.",
    ),
    (
        lambda: attend(value=X.to("meta")),
        UnsupportedError,
        "value must have numbers; got a tensor without any, on the meta device or under "
        "FakeTensorMode. The output would have the shape of query, as wide as value.",
    ),
    (
        lambda: attend(key="x"),
        DTypeError,
        "key must be a torch.Tensor; got str.",
    ),
    (
        lambda: attend(value=None),
        DTypeError,
        "value must be a torch.Tensor; got None. For weights alone: from_factors.",
    ),
    (
        lambda: attend(mask="causal"),
        ArgumentError,
        "mask must be a mask such as Padding(valid) or Causal(), or a bool tensor; got str.",
    ),
    (
        lambda: attend(backend="cuda"),
        ArgumentError,
        "backend must be 'auto', 'native', 'fused', 'tiles' or 'reference'; got 'cuda'.",
    ),
    (
        lambda: attend(bias=torch.zeros(3)),
        ShapeError,
        "bias must be [query, key], [batch, query, key] or [batch, heads, query, key]; got [3].",
    ),
    (
        lambda: attend(scale=math.inf),
        ArgumentError,
        "scale must be a finite number; got inf.",
    ),
    (
        lambda: attend(scale="1"),
        ArgumentError,
        "scale must be a finite number; got '1'.",
    ),
    (
        lambda: attend(soft_cap="3"),
        ArgumentError,
        "soft_cap must be a finite number above 0; got '3'.",
    ),
    (
        lambda: Causal("middle"),  # pyright: ignore[reportArgumentType]
        ArgumentError,
        "alignment must be 'start', 'end' or the number of the key at which query 0 stands; got "
        "'middle'.",
    ),
    (
        lambda: Window(after=-2),
        ArgumentError,
        "after must be a whole number of keys from 0 on, or None; got -2.",
    ),
    (
        lambda: Padding.from_key_padding_mask(torch.zeros(1, 3)),
        DTypeError,
        "ignored must be bool; got torch.float32.",
    ),
    (
        lambda: Visible(torch.zeros(3, 3)),
        DTypeError,
        "table must be bool, True for visible; got torch.float32. Scores to add are given as "
        "bias=.",
    ),
    (
        lambda: Visible(torch.zeros(3).bool()),
        ShapeError,
        "table must be [query, key], [batch, query, key] or [batch, heads, query, key]; got [3].",
    ),
    (
        lambda: attend(mask=Visible(torch.zeros(3, 4).bool())),
        ShapeError,
        "table must be [query, key] = [3, 3]; got [3, 4].",
    ),
    (
        lambda: attend(mask=Spans(*torch.zeros(2, 5, 1, 3).long())),
        ShapeError,
        "first must be [batch, heads, query] = [2, 1, 3]; got [5, 1, 3].",
    ),
    (
        with_gradient,
        FrozenError,
        "requires_grad must not be set on a map; got True. Set it on query and key.",
    ),
    (
        restored,
        UnsupportedError,
        "a saved map must have form 1; got 99. Another version of heedmap wrote it.",
    ),
    (
        below_torch,
        UnsupportedError,
        "aten.sin.default must not reach a map below torch's functions; it did. Use to_dense() "
        "first.",
    ),
    (
        lambda: heedmap.Summary().received,
        ArgumentError,
        "summary must come from a pass over a map; got questions alone. Give it to "
        "heedmap.attention or heedmap.watch as keep=, or ask a map with summarize().",
    ),
    (
        lambda: attend(query=X[:, 1:], mask=Causal()),
        ArgumentError,
        "Causal must be given an alignment when there are 2 queries and 3 keys; got None. Use "
        "alignment='end' (the last query stands at the last key, as in decoding with a cache) or "
        "alignment='start'.",
    ),
    (
        lambda: SelfAttention(4, 8, num_heads=3),
        ArgumentError,
        "attn_dim must be a multiple of num_heads; got 8 and 3.",
    ),
    (
        lambda: SelfAttention(4, 8, num_heads=4, kv_heads=3),
        ArgumentError,
        "num_heads must be a multiple of kv_heads; got 4 and 3.",
    ),
    (
        lambda: SelfAttention(4, 8, dropout=1.0),
        ArgumentError,
        "dropout must be from 0 to below 1; got 1.0.",
    ),
    (
        lambda: SelfAttention(4, 8, num_heads=0),
        ArgumentError,
        "num_heads must be a whole number from 1 on; got 0.",
    ),
    (
        lambda: SelfAttention(4.0, 8),  # pyright: ignore[reportArgumentType]
        ArgumentError,
        "input_dim must be a whole number from 1 on; got 4.0.",
    ),
    (
        lambda: SelfAttention(4, 8)(torch.zeros(2, 3, 4), context=torch.zeros(1, 3, 4)),
        ShapeError,
        "context must have the batch size of x; got 1 and 2.",
    ),
    (
        lambda: SelfAttention(4, 8, causal=True)(
            torch.zeros(1, 3, 4), context=torch.zeros(1, 2, 4)
        ),
        ShapeError,
        "context must have as many positions as x where causal=True; got 2 and 3. "
        "heedmap.attention takes others, with mask=Causal(alignment='end') or "
        "Causal(alignment='start').",
    ),
    (
        lambda: SelfAttention.from_multihead_attention(nn.Linear(2, 2)),  # pyright: ignore
        DTypeError,
        "module must be a torch.nn.MultiheadAttention; got Linear.",
    ),
    (
        lambda: heedmap.dense_budget("1GB").__enter__(),  # pyright: ignore
        ArgumentError,
        "max_bytes must be a number of bytes from 0 on; got '1GB'.",
    ),
    (
        lambda: SelfAttention(4, 8)(torch.zeros(2, 3, 5)),
        ShapeError,
        "x must be [batch, positions, features] with 4 features; got [2, 3, 5].",
    ),
    (
        lambda: SelfAttention.from_multihead_attention(nn.MultiheadAttention(4, 1, kdim=3, vdim=5)),
        UnsupportedError,
        "module must have kdim = vdim; got 3 and 5.",
    ),
    (
        lambda: Axis.of_tokens("a b", ["a", "b"], [(0, 1), (2, 3)]).locate(" "),
        InputError,
        "query must be a piece that some token holds; got “ ”.",
    ),
    (
        lambda: Sequence(torch.zeros(2, 4), Axis.of_positions(3)),
        ShapeError,
        "values must be one row for each of 3 positions; got (2, 4).",
    ),
    (
        lambda: watch(layers=[1.5]),
        ArgumentError,
        "layers must be names, patterns or numbers; got [1.5].",
    ),
    (
        lambda: watch(device="nowhere"),
        ArgumentError,
        "device must be one that is there; got 'nowhere'.",
    ),
    (
        lambda: watch(device="meta"),
        ArgumentError,
        "device must hold numbers; got 'meta'. Use keep=heedmap.Summary().",
    ),
    (
        along_nothing,
        ArgumentError,
        "beam_indices must be [batch, step] for the steps that were watched; got [3, 9], and no "
        "layer took 9 steps.",
    ),
    (
        lambda: watch(heads=["all"]),
        ArgumentError,
        "heads must be whole numbers or a slice; got ['all'].",
    ),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("call", "error", "words"), CASES, ids=[case[2] for case in CASES])
def test_it_says(call: Callable[[], object], error: type[HeedmapError], words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == words


def test_a_factor_that_was_written_into() -> None:
    query = torch.randn(3, 4)
    weights = AttentionMap.from_factors(query, query)
    query.mul_(2)
    with pytest.raises(UnsupportedError, match="must not be written into while their map is in"):
        weights.sum()
    assert copy.copy(weights).shape == (3, 3)


@pytest.mark.skipif(compiled.load() is None, reason="no kernel was compiled on this machine")
def test_no_memory_for_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __getattr__(self, name: str) -> Callable[..., int]:
            return lambda *_: 1

    monkeypatch.setattr("heedmap.kernels.native.load", lambda: ("full", Full()))
    with pytest.raises(BudgetError, match="memory must hold a tile for each thread; there was no"):
        heedmap.attention(X, X, X, backend="native")


def test_another_device_is_named() -> None:
    class Elsewhere(Tensor):
        @property
        def device(self) -> torch.device:  # pyright: ignore[reportIncompatibleVariableOverride]
            return torch.device("cuda")

    with pytest.raises(DTypeError, match="key must be on the device of query; got cuda and cpu"):
        heedmap.attention(X, X.as_subclass(Elsewhere), X)
