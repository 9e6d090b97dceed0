"""What people try to do with the attention of models, at small sizes."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

import heedmap
from heedmap import AttentionMap, Axis, Padding
from heedmap.analysis import received, rollout
from heedmap.errors import DTypeError, HeedmapError, ShapeError
from heedmap.look import look
from heedmap.media import Sound
from heedmap.models.hub import load_audio_model
from heedmap.plot import plot_arcs, plot_atlas, plot_heatmap, plot_timeline, save_figure

from ..watch.dense import require_close
from .common import HEADS, draw, heads_of

TRANSFORMER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": HEADS}
TRANSFORMER |= {"intermediate_size": 8}
WAVE = TRANSFORMER | {"conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 8)}
WAVE |= {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
WHISPER = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "vocab_size": 20}
WHISPER |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 8}
WHISPER |= {"decoder_ffn_dim": 8, "max_source_positions": 200, "pad_token_id": 0}
WHISPER |= {"bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 1}
WHISPER |= {"suppress_tokens": None, "begin_suppress_tokens": None}
FILM = TRANSFORMER | {"image_size": 16, "patch_size": 8, "num_frames": 4}


def make(class_name: str, implementation: str = "sdpa", **options: Any) -> Any:
    torch.manual_seed(0)
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(**options)
    return model_class._from_config(config, attn_implementation=implementation).eval()


class Block(nn.Module):
    """A layer of a vision transformer as timm writes it, with its fused path on."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.fused_attn = True
        self.attn_drop = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(query, key, value)
        return x + found.transpose(1, 2).flatten(2)


def test_u01_rollout_of_a_vision_transformer_on_its_fused_path() -> None:
    torch.manual_seed(0)
    models = [
        nn.Sequential(Block(), Block()),
        make("ViTModel", image_size=16, patch_size=8, **TRANSFORMER),
    ]
    inputs = [draw(1, 5, 8), draw(1, 3, 16, 16)]
    for model, given in zip(models, inputs, strict=True):
        with torch.no_grad(), heedmap.watch(model) as seen:
            model(given)
        assert len(seen) == 2
        for weights in seen:
            require_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        flow = rollout(list(seen), [0])
        assert flow.shape[-1] == seen[0].shape[-1]
        assert bool(torch.isfinite(flow).all())


def test_u03_encoder_decoder_and_cross_by_name() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(8, HEADS, 1, 1, 16, batch_first=True).eval()
    with torch.no_grad(), heedmap.watch(model) as seen:
        model(draw(1, 6, 8), draw(1, 4, 8, seed=1))
    sizes = {
        "encoder.layers.0.self_attn": (1, HEADS, 6, 6),
        "decoder.layers.0.self_attn": (1, HEADS, 4, 4),
        "decoder.layers.0.multihead_attn": (1, HEADS, 4, 6),
    }
    assert {name: tuple(seen[name].shape) for name in seen.names} == sizes
    assert [weights.shape[-1] for weights in seen.cross_attention] == [6]
    assert len(seen.self_attention) == 2


def saved(folder: Path, class_name: str, extractor: Any, options: dict[str, Any]) -> str:
    """Write a tiny model of speech, and return its folder."""
    make(class_name, **options).save_pretrained(folder)
    extractor.save_pretrained(folder)
    return str(folder)


def test_u04_a_model_of_speech_has_times(tmp_path: Path) -> None:
    extractor = transformers.Wav2Vec2FeatureExtractor()
    folder = saved(tmp_path, "Wav2Vec2Model", extractor, WAVE)
    samples = draw(400).clamp(-1, 1)
    seen = look(Sound(samples, 16000, "noise"), model=folder, query="@3")
    frames = len(seen.axis)
    assert seen.layers[0].weights.shape == (HEADS, frames, frames)
    require_close(seen.layers[0].weights.sum(-1), torch.ones(HEADS, frames))
    assert seen.axis.unit == "second"
    step = 20 / 16000
    assert seen.axis.spans[1] == pytest.approx((step, 2 * step))
    assert seen.axis.spans[-1][1] <= 400 / 16000


@pytest.fixture
def tiny_whisper(tmp_path: Path) -> str:
    extractor = transformers.WhisperFeatureExtractor(chunk_length=4)
    return saved(tmp_path, "WhisperForConditionalGeneration", extractor, WHISPER)


def test_u06_a_sound_shorter_than_the_window(tiny_whisper: str) -> None:
    tone = 0.3 * torch.sin(torch.arange(16000) / 16000 * 2 * math.pi * 440)
    seen = look(Sound(tone, 16000, "tone"), model=tiny_whisper, query="0.5s")
    assert seen.layers[0].weights.shape == (2, 50, 50)
    assert seen.axis.spans[-1][1] == pytest.approx(1)
    assert any("fills the first 50 of the model's 200 positions" in note for note in seen.notes)

    loaded = load_audio_model(tiny_whisper)
    encoded = loaded.encode(tone)
    with torch.no_grad(), heedmap.watch(loaded.model) as watched:
        loaded.model(**encoded.inputs, decoder_input_ids=torch.tensor([[1, 2, 3]]))
    (cross,) = watched.cross_attention
    assert cross.shape == (1, 2, 3, 200)
    heard = cross[..., : encoded.valid]
    assert heard.shape[-1] == len(encoded.axis) == 50
    beyond = cross[..., encoded.valid :].sum(-1)
    require_close(heard.sum(-1) + beyond, torch.ones(1, 2, 3))


@pytest.mark.parametrize("class_name", ["WhisperModel", "Wav2Vec2Model"])
def test_u07_fused_models_of_speech_give_their_weights(class_name: str) -> None:
    options = WHISPER if class_name == "WhisperModel" else WAVE
    inputs: dict[str, Tensor] = {"input_values": draw(1, 600)}
    if class_name == "WhisperModel":
        inputs = {"input_features": draw(1, 80, 400)}
        inputs["decoder_input_ids"] = torch.tensor([[1, 2, 3]])
    model = make(class_name, **options)
    with torch.no_grad():
        eager = make(class_name, "eager", **options)(**inputs, output_attentions=True)
        with heedmap.watch(model) as seen:
            fused = model(**inputs, output_attentions=True)
    name = "encoder_attentions" if class_name == "WhisperModel" else "attentions"
    for found, expected in zip(fused[name], eager[name], strict=True):
        require_close(torch.as_tensor(found), expected)
    assert model.config._attn_implementation == "sdpa"
    assert seen.missed == []


def test_u10_space_and_time_of_a_token() -> None:
    frames, height, width = 4, 2, 3
    features = torch.zeros(frames, height, width, 8)
    features[2, 1, 0] = 5.0
    tokens = features.flatten(0, 2)
    query = torch.full((1, 8), 1.0)
    weights = AttentionMap.from_factors(query, tokens)
    cube = weights.unflatten(-1, (frames, height, width))
    number = int(weights[0].argmax())
    place = torch.unravel_index(torch.tensor(number), (frames, height, width))
    assert [int(part) for part in place] == [2, 1, 0]
    assert float(cube[0, 2, 1, 0]) == float(weights[0].amax())
    require_close(torch.as_tensor(cube.sum((-1, -2, -3))), torch.ones(1))
    assert cube.shape == (1, frames, height, width)


@pytest.mark.parametrize("class_name", ["TimesformerModel", "VideoMAEModel"])
def test_u10_models_of_film_are_seen(class_name: str) -> None:
    options = FILM | ({"tubelet_size": 2} if class_name == "VideoMAEModel" else {})
    model = make(class_name, "eager" if class_name == "TimesformerModel" else "sdpa", **options)
    with torch.no_grad(), heedmap.watch(model) as seen:
        model(draw(1, 4, 3, 16, 16))
    shapes = {tuple(weights.shape) for weights in seen}
    # Divided: 4 patches look along 4 frames, and each frame at itself and its class token.
    divided = {(4, HEADS, 4, 4), (4, HEADS, 5, 5)}
    assert shapes == (divided if class_name == "TimesformerModel" else {(1, HEADS, 8, 8)})
    for weights in seen:
        require_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert seen.check().ok


@pytest.mark.parametrize("tokens", [512, 2048, 8192])
def test_u12_long_texts_are_drawn_at_once_and_small(tokens: int, tmp_path: Path) -> None:
    weights = AttentionMap.from_factors(draw(tokens, 16, seed=1), draw(tokens, 16, seed=2))
    drawn = plot_heatmap(weights)
    for name in ("map.png", "map.svg"):
        save_figure(drawn, tmp_path / name)
    # One picture of as many cells as can be seen, however many tokens there are.
    (image,) = drawn.images
    assert image.get_size() <= (800, 800)
    assert all(path.stat().st_size < 5e6 for path in tmp_path.iterdir())


@pytest.mark.slow
def test_u12_a_look_at_a_long_text(tmp_path: Path) -> None:
    look(("abcdefgh ij" * 800)[:8000], model="none", output=tmp_path / "out")
    assert sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) < 5e6


RANKS = {"[query, key]": (4, 4), "[heads, query, key]": (2, 4, 4), "with a batch": (1, 2, 4, 4)}


@pytest.mark.parametrize("rank", RANKS)
def test_u14_weights_of_ones_own_in_any_rank(rank: str) -> None:
    dense = torch.softmax(draw(*RANKS[rank]), -1)
    weights = AttentionMap.from_weights(dense)
    require_close(weights.received(), dense.sum(-2))
    require_close(weights.to_dense(), dense)
    if dense.ndim > 2:
        require_close(received([dense, dense]), received([weights, weights]))
    matrix = weights[(0,) * (dense.ndim - 2)]
    assert plot_heatmap(matrix).get_xlabel() == "key"


WRONG: dict[str, tuple[Callable[[], object], type[HeedmapError], str]] = {
    "a row as a map": (
        lambda: AttentionMap.from_weights(torch.ones(4)),
        ShapeError,
        r"weights must be a tensor \[\.\.\., query, key\]; got \[4\]",
    ),
    "None as a map": (lambda: AttentionMap.from_weights(None), ShapeError, "got NoneType"),
    "layers of None": (lambda: rollout((None, None), [0]), ShapeError, "got NoneType"),
    "one tensor for layers": (lambda: received(torch.ones(4, 4)), HeedmapError, "one per layer"),
    "all heads as one picture": (
        lambda: plot_heatmap(torch.ones(2, 4, 4)),
        ShapeError,
        r"must be \[query, key\]; got \[2, 4, 4\]\. Choose one matrix",
    ),
    "None as a picture": (lambda: plot_heatmap(None), DTypeError, "got NoneType"),
    "a tuple of None as a picture": (lambda: plot_heatmap((None, None)), DTypeError, "got tuple"),
    "an array as a picture": (
        lambda: plot_heatmap(np.ones((4, 4))),
        DTypeError,
        "weights must be a tensor or an AttentionMap; got ndarray",
    ),
    "layers of None as an atlas": (lambda: plot_atlas((None, None)), DTypeError, "got NoneType"),
    "None as an atlas": (lambda: plot_atlas(None), ShapeError, "at least one layer"),
    "None as arcs": (lambda: plot_arcs(None, axis=WORDS), DTypeError, "got NoneType"),
    "lists as a row": (lambda: plot_timeline([0.5], axis=WORDS, query=0), DTypeError, "got list"),
}
WORDS = Axis.of_tokens("a b", ["a", "b"], [(0, 1), (2, 3)])


@pytest.mark.bad_input
@pytest.mark.parametrize("case", WRONG)
def test_u14_what_is_no_weights_is_refused_with_the_shape_that_is_wanted(case: str) -> None:
    call, error, words = WRONG[case]
    with pytest.raises(error, match=words):
        call()


def test_u16_pictures_need_no_network(tmp_path: Path) -> None:
    look("to be or not to be", model="none", query="b", output=tmp_path / "out")
    save_figure(plot_heatmap(torch.eye(4)), tmp_path / "out" / "map.svg")
    for path in (tmp_path / "out").iterdir():
        assert path.suffix in (".png", ".svg", ".json")
    drawing = (tmp_path / "out" / "map.svg").read_text(encoding="utf-8")
    assert "<script" not in drawing
    linked = re.findall(r'(?:href|src)="([^"]*)"', drawing)
    assert all(link.startswith(("#", "data:")) for link in linked)
    assert not re.findall(r"url\((?!#)", drawing)


def test_u19_weights_again_from_the_normaliser() -> None:
    query, key = draw(1, 2, 4, 8, seed=1), draw(1, 2, 4, 8, seed=2)
    weights = heedmap.attention(query, key, key, mask=Padding(torch.tensor([[1, 1, 1, 0]])))[1]
    scores = (query @ key.mT / math.sqrt(8))[..., :3]
    rows = torch.exp(scores - weights.log_normalizer[..., None])
    require_close(weights[..., :3], rows)
    require_close(weights.log_weights.exp(), weights.to_dense())
    require_close(rows.sum(-1), torch.ones(1, 2, 4))


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("padded", [False, True])
def test_u20_asking_for_weights_changes_no_logits(implementation: str, padded: bool) -> None:
    model = make("LlamaForCausalLM", implementation, vocab_size=20, **TRANSFORMER)
    inputs = {"input_ids": torch.arange(3, 15).reshape(2, 6)}
    if padded:
        inputs["attention_mask"] = torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]])
    with torch.no_grad():
        alone = model(**inputs).logits
        with heedmap.watch(model) as seen:
            watched = model(**inputs).logits
            asked = model(**inputs, output_attentions=True)
    assert torch.equal(alone, watched)
    assert torch.equal(alone, asked.logits)
    assert len(seen) == 4
    assert len(asked.attentions) == 2
    later = torch.ones(6, 6).triu(1).bool()
    for weights in seen:
        assert bool((weights.to_dense()[..., later] == 0).all())


def test_u20_nor_does_our_own_module() -> None:
    x = draw(2, 5, 8)
    output, weights = heedmap.attention(*[heads_of(x)] * 3)
    weights.summarize(top=2)
    assert torch.equal(output, heedmap.attention(*[heads_of(x)] * 3)[0])
