"""Modules and models that people have: dropout, heads, hooks, fast paths, decoding."""

import copy
import inspect
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

import heedmap
from heedmap.errors import ModelError, UnsupportedError
from heedmap.nn import SelfAttention

from ..watch.dense import require_close
from .common import HEADS, draw, heads_of, watched

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": HEADS}
SIZES |= {"vocab_size": 20, "intermediate_size": 8, "pad_token_id": 0}
IDS = torch.arange(3, 15).reshape(2, 6)


def make(class_name: str, implementation: str = "sdpa", **options: Any) -> Any:
    """Return a tiny random model of transformers."""
    torch.manual_seed(0)
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(**(SIZES | options))
    return model_class._from_config(config, attn_implementation=implementation).eval()


class Dropping(nn.Module):
    """A model that drops weights, whether it is being trained or not."""

    def __init__(self, heedless: bool = False) -> None:
        super().__init__()
        self.heedless = heedless

    def forward(self, x: Tensor) -> Tensor:
        torch.manual_seed(1)
        query = heads_of(x)
        dropout = 0.5 if self.training or self.heedless else 0.0
        found = F.scaled_dot_product_attention(query, query, query, dropout_p=dropout)
        return found.transpose(1, 2).flatten(2)


def test_h16_weights_are_those_before_dropout() -> None:
    x = draw(2, 6, 8)
    torch.manual_seed(0)
    ours = SelfAttention(8, 8, num_heads=HEADS, dropout=0.5)
    models = [Dropping(), nn.TransformerEncoderLayer(8, HEADS, dropout=0.5, batch_first=True)]
    found = [ours(x)[1]]
    for model in models:
        with heedmap.watch(model.train()) as seen:
            model(x)
        found.append(seen[0])
    for weights in found:
        require_close(weights.sum(-1).detach(), torch.ones(2, HEADS, 6))
        assert bool((weights.to_dense() > 0).all())
    require_close(found[0].detach(), ours.eval()(x)[1].to_dense().detach())


def test_h16_of_watched_models_in_training() -> None:
    model = make("BertModel", attention_probs_dropout_prob=0.5).train()
    with heedmap.watch(model) as seen:
        outputs = model(input_ids=IDS, output_attentions=True)
    for weights in (*seen, *outputs.attentions):
        require_close(weights.sum(-1).detach(), torch.ones(2, HEADS, 6))


def test_h17_dropout_ends_with_training() -> None:
    x = draw(2, 6, 8)
    layer = SelfAttention(8, 8, dropout=0.5)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
    assert "dropout" not in inspect.signature(heedmap.attention).parameters
    model = Dropping()
    _, trained = watched(model, x)
    _, ready = watched(model.eval(), x)
    require_close(ready.weights, trained.weights.to_dense())
    assert ready.output_error is not None
    assert ready.output_error < 1e-6


def test_h17_a_watched_model_that_forgets_to_is_left_as_it_is() -> None:
    _, layer = watched(Dropping(heedless=True).eval(), draw(2, 6, 8))
    require_close(layer.weights.sum(-1), torch.ones(2, HEADS, 6))


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_h18_each_head_has_weights_of_its_own(average: bool, need_weights: bool) -> None:
    x = draw(2, 6, 8)
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, HEADS, batch_first=True)
    with heedmap.watch(theirs) as seen:
        theirs(x, x, x, need_weights=need_weights, average_attn_weights=average)
    expected = theirs(x, x, x, average_attn_weights=False)[1].detach()
    require_close(seen[0], expected)
    ours = SelfAttention.from_multihead_attention(theirs)
    require_close(ours(x)[1].detach(), expected)
    require_close(seen[0].mean(1), expected.mean(1))
    assert bool((expected[:, 0] != expected[:, 1]).any())


VALID = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_h39_the_encoder_of_pytorch_keeps_its_length(nested: bool, mode: Any) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, HEADS, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
    x = draw(2, 6, 8)
    with mode():
        alone = model(x, src_key_padding_mask=VALID == 0)
        with heedmap.watch(model) as seen:
            output = model(x, src_key_padding_mask=VALID == 0)
    assert torch.equal(alone, output)
    assert len(seen) == 2
    for weights in seen:
        dense = weights.to_dense()
        live = VALID.bool()[:, None, :, None] & VALID.bool()[:, None, None]
        size = dense.shape[-1]
        assert size in (6, 4), "nested samples are as long as the longest"
        assert bool((dense[~live[..., :size, :size].expand_as(dense)].view(-1) >= 0).all())
        assert bool((dense * ~VALID.bool()[:, None, None, :size] == 0).all())
        sums = dense.sum(-1).masked_fill(~VALID.bool()[:, None, :size], 1)
        require_close(sums, torch.ones_like(sums))


def test_h39_our_module_keeps_its_length() -> None:
    x = draw(2, 6, 8)
    for layer in (SelfAttention(8, 8), SelfAttention(8, 8, num_heads=HEADS).eval()):
        for mask in (VALID, torch.zeros(2, 6)):
            output, weights = layer(x, mask)
            assert output.shape == (2, 6, 8)
            assert weights.shape[-2:] == (6, 6)


class Bypassing(nn.Module):
    """A model that calls its layer's `forward`, so that no hook of the layer is called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, HEADS, batch_first=True)

    def forward(self, *, features: Tensor) -> Tensor:
        return self.layer.forward(query=features, key=features, value=features, need_weights=False)[
            0
        ]


def test_h40_no_hook_is_needed() -> None:
    model, x = Bypassing(), draw(2, 6, 8)
    alone = model(features=x)
    with heedmap.watch(model) as seen:
        assert torch.equal(model(features=x), alone)
    require_close(seen[0].detach(), model.layer(x, x, x, average_attn_weights=False)[1].detach())
    assert seen.missed == []


@pytest.mark.parametrize("train", [True, False])
def test_h40_inside_the_layers_of_pytorch(train: bool) -> None:
    torch.manual_seed(0)
    model = nn.Transformer(8, HEADS, 2, 2, 16, dropout=0.0, batch_first=True).train(train)
    with torch.no_grad(), heedmap.watch(model) as seen:
        model(draw(2, 6, 8), draw(2, 5, 8, seed=1))
    assert len(seen) == 6
    assert all(weights.shape[:2] == (2, HEADS) for weights in seen)
    assert len(repr(seen).splitlines()) == 7, "it says how many layers were captured"


def test_h40_nothing_captured_is_an_error() -> None:
    model = nn.Sequential(nn.Linear(8, 8))

    def run() -> None:
        with heedmap.watch(model):
            model(draw(2, 6, 8))

    with pytest.raises(ModelError, match="no attention was captured"):
        run()


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_h41_output_attentions_on_any_implementation(implementation: str) -> None:
    model = make("BertModel", implementation)
    with torch.no_grad():
        expected = make("BertModel", "eager")(input_ids=IDS, output_attentions=True).attentions
        with heedmap.watch(model) as seen:
            outputs = model(input_ids=IDS, output_attentions=True)
    assert len(outputs.attentions) == len(seen) == 2
    for found, weights, dense in zip(outputs.attentions, seen, expected, strict=True):
        require_close(torch.as_tensor(found), dense)
        require_close(weights, dense)
    assert model.config._attn_implementation == implementation


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kdim", [None, 6])
def test_h44_packed_and_split_projections_load(bias: bool, kdim: int | None) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, HEADS, bias=bias, kdim=kdim, vdim=kdim, batch_first=True)
    options: dict[str, Any] = {"num_heads": HEADS, "bias": bias, "output_dim": 8}
    loaded = SelfAttention(8, 8, context_dim=kdim, **options)
    loaded.load_state_dict(theirs.state_dict())
    made = SelfAttention.from_multihead_attention(theirs)
    x = draw(2, 6, 8)
    context = x if kdim is None else draw(2, 5, kdim, seed=1)
    expected, dense = theirs(x, context, context, average_attn_weights=False)
    for layer in (loaded, made, copy.deepcopy(made)):
        output, weights = layer(x, context=context)
        require_close(output.detach(), expected.detach())
        require_close(weights.detach(), dense.detach())
    with heedmap.watch(theirs) as seen:
        theirs(x, context, context, need_weights=False)
    require_close(seen[0].detach(), dense.detach())


def test_h44_a_state_that_does_not_fit_is_refused() -> None:
    theirs = nn.MultiheadAttention(8, HEADS).state_dict()
    for options, words in (
        ({"bias": False, "output_dim": 8}, "Unexpected key"),
        ({"bias": True, "output_dim": None}, "Unexpected key"),
        ({"bias": True, "output_dim": 4}, "size mismatch"),
    ):
        layer = SelfAttention(8, 8, num_heads=HEADS, **options)
        with pytest.raises(RuntimeError, match=words):
            layer.load_state_dict(theirs)


FURTHER = {"add_bias_kv": 1, "add_zero_attn": 1}


@pytest.mark.parametrize("options", [("add_bias_kv",), ("add_zero_attn",), tuple(FURTHER)], ids=str)
@pytest.mark.parametrize("need_weights", [True, False])
def test_h45_further_keys_are_refused_by_ours_and_shown_where_watched(
    options: tuple[str, ...], need_weights: bool
) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, HEADS, batch_first=True, **dict.fromkeys(options, True))
    with pytest.raises(UnsupportedError, match="keys that belong to no position"):
        SelfAttention.from_multihead_attention(theirs)
    x = draw(2, 6, 8)
    with heedmap.watch(theirs) as seen:
        theirs(x, x, x, need_weights=need_weights)
    assert seen[0].shape == (2, HEADS, 6, 6 + len(options))
    dense = theirs(x, x, x, average_attn_weights=False)[1]
    require_close(seen[0].detach(), dense.detach())


@pytest.mark.parametrize("cache", [None, "static"])
def test_h49_the_steps_of_decoding_are_one_causal_map(cache: str | None) -> None:
    model = make("LlamaForCausalLM")
    model.generation_config.eos_token_id = None
    with torch.no_grad(), heedmap.watch(model) as seen:
        ids = model.generate(
            IDS[:, :4], max_new_tokens=5, do_sample=False, cache_implementation=cache
        )
    with torch.no_grad(), heedmap.watch(model) as at_once:
        model(input_ids=ids[:, :-1])
    assert len(seen) == 2
    for weights, whole in zip(seen, at_once, strict=True):
        assert weights.shape == (2, HEADS, 8, 8)
        require_close(weights, whole.to_dense(), 1e-5)
        assert bool((weights.to_dense()[..., torch.ones(8, 8).triu(1).bool()] == 0).all())


def test_h49_cross_attention_keeps_its_own_keys() -> None:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": HEADS}
    model = make("T5ForConditionalGeneration", decoder_start_token_id=1, **sizes)
    model.generation_config.eos_token_id = None
    with torch.no_grad(), heedmap.watch(model) as seen:
        model.generate(IDS, max_new_tokens=4, do_sample=False)
    (cross,) = seen.cross_attention
    assert cross.shape == (2, HEADS, 4, 6)
    require_close(cross.sum(-1), torch.ones(2, HEADS, 4))


CLASSES = {"BertModel": "right", "LlamaModel": "left", "GPT2Model": "left"}


@pytest.mark.parametrize("class_name", CLASSES)
def test_h50_watched_models_of_padded_batches(class_name: str) -> None:
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": HEADS} if class_name == "GPT2Model" else {}
    model = make(class_name, **sizes)
    valid = torch.ones(2, 6, dtype=torch.long)
    place = slice(4) if CLASSES[class_name] == "right" else slice(2, 6)
    valid[1] = 0
    valid[1, place] = 1
    options: dict[str, Any] = {}
    if CLASSES[class_name] == "left":
        options["position_ids"] = (valid.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        with heedmap.watch(model) as seen:
            model(input_ids=IDS, attention_mask=valid, **options)
        with heedmap.watch(model) as alone:
            model(input_ids=IDS[1:, place])
    for weights, expected in zip(seen, alone, strict=True):
        require_close(weights[1:, :, place, place], expected.to_dense())
        total = float(weights[1, :, place].detach().sum())
        assert math.isclose(total, HEADS * 4, abs_tol=1e-4)
