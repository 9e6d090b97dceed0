"""The layers of `nn.Transformer`, watched on their fast paths and off them."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import heedmap

BATCH, LENGTH, WIDTH, HEADS = 2, 7, 16, 4
PADDING = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
CAUSAL = nn.Transformer.generate_square_subsequent_mask(LENGTH)
MODES = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "with gradients": torch.enable_grad,
}


@contextmanager
def quiet() -> Iterator[None]:
    """Let pass what PyTorch itself says about its nested tensors and its masks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype")
        warnings.filterwarnings("ignore", "Support for mismatched")
        yield


def encoder(**options: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    nested = options.pop("enable_nested_tensor", True)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 24, dropout=0.0, batch_first=True, **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "enable_nested_tensor is True, but")
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)


def x(seed: int = 1) -> Tensor:
    return torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(seed))


def asked(model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
    """Return what the attention modules give when they are asked, off all fast paths."""
    found: dict[str, Tensor] = {}
    model = copy.deepcopy(model).train()
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            _ask(name, module, found)
    with quiet():
        model(*args, **kwargs)
    return found


def _ask(name: str, module: nn.MultiheadAttention, found: dict[str, Tensor]) -> None:
    forward = module.forward

    def ask(*args: Any, **kwargs: Any) -> Any:
        kwargs |= {"need_weights": True, "average_attn_weights": False}
        output, found[name] = forward(*args, **kwargs)
        return output, None

    module.forward = ask


def require(model: nn.Module, kinds: list[str], *args: Any, **kwargs: Any) -> None:
    """Compare outputs to the bit and weights with those that the modules give when asked."""
    expected = asked(model, *args, **kwargs)
    for mode in MODES.values():
        with quiet(), mode():
            alone = model(*args, **kwargs)
            with heedmap.watch(model) as seen:
                watched = model(*args, **kwargs)
            after = model(*args, **kwargs)
        assert torch.equal(alone, watched)
        assert torch.equal(alone, after)
        assert seen.names == list(expected)
        assert [layer.kind for layer in seen.layers] == kinds
        assert seen.missed == []
        for name, dense in expected.items():
            got = seen[name].to_dense()
            assert got.shape == dense.shape
            padding = kwargs.get("src_key_padding_mask")
            live = torch.ones(got.shape[:-1], dtype=torch.bool)
            if seen.layer(name).door != "scaled_dot_product_attention" and padding is not None:
                # The fast path of the whole encoder computes no padded queries.
                sums = got.sum(-1)
                live = sums > 0
                assert bool((live | padding[:, None]).all())
            torch.testing.assert_close(got[live], dense[live], atol=1e-6, rtol=0)


ENCODERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm first": {"norm_first": True},
    "gelu": {"activation": "gelu"},
    "no biases": {"bias": False},
    "no nested tensors": {"enable_nested_tensor": False},
}
CALLS: dict[str, dict[str, Any]] = {
    "no mask": {},
    "padding": {"src_key_padding_mask": PADDING},
    "causal": {"mask": CAUSAL, "is_causal": True},
    "padding and a mask": {"mask": CAUSAL.isinf(), "src_key_padding_mask": PADDING},
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("options", ENCODERS)
def test_encoder(options: str, call: str, training: bool) -> None:
    model = encoder(**ENCODERS[options]).train(training)
    kind = "causal" if "mask" in CALLS[call] else "self"
    require(model, [kind] * 2, x(), **CALLS[call])


@pytest.mark.parametrize("training", [True, False])
def test_one_encoder_layer(training: bool) -> None:
    model = encoder().layers[0].train(training)
    require(model, ["self"], x(), src_key_padding_mask=PADDING)


@pytest.mark.parametrize("training", [True, False])
def test_encoder_that_does_not_put_the_batch_first(training: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 24, dropout=0.0)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(training)
    require(model, ["self"] * 2, x().transpose(0, 1), src_key_padding_mask=PADDING)


@pytest.mark.parametrize("training", [True, False])
def test_encoder_and_decoder(training: bool) -> None:
    torch.manual_seed(0)
    model = nn.Transformer(WIDTH, HEADS, 2, 2, 24, dropout=0.0, batch_first=True).train(training)
    kinds = ["self", "self", "causal", "cross", "causal", "cross"]
    require(
        model,
        kinds,
        x(1),
        x(2)[:, :5],
        src_key_padding_mask=PADDING,
        memory_key_padding_mask=PADDING,
        tgt_mask=CAUSAL[:5, :5],
        tgt_is_causal=True,
    )


def test_padding_that_comes_first_is_not_nested() -> None:
    model = encoder(enable_nested_tensor=False).eval()
    require(model, ["self"] * 2, x(), src_key_padding_mask=PADDING.flip(1))


def test_padded_queries_of_nested_tensors_are_not_there() -> None:
    model = encoder().eval()
    with torch.no_grad(), quiet(), heedmap.watch(model) as seen:
        model(x(), src_key_padding_mask=PADDING)
    assert seen.layer(0).door == "_transformer_encoder_layer_fwd"
    rows = seen[0].to_dense().sum(-1)
    torch.testing.assert_close(rows, (~PADDING).float()[:, None].expand_as(rows))
