"""Models by name: what loads, what it is fed, and what is refused in plain words."""

import json
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    BartConfig,
    BartModel,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    MambaConfig,
    MambaModel,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    SEWConfig,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2Model,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from heedmap.errors import InputError, MissingExtraError, ModelError
from heedmap.models.hub import load_audio_model, load_text_model
from heedmap.models.loaded import AudioModel, TextModel

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL |= {"vocab_size": 300, "intermediate_size": 24}


def save_tokenizer(folder: Path) -> None:
    """Save a tokenizer of bytes, as GPT-2 has it: several tokens may share one character."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: i for i, piece in enumerate(["<pad>", *alphabet, "hi"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("h", "i")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>").save_pretrained(folder)


def save(folder: Path, kind: type[PreTrainedModel], config: PreTrainedConfig) -> str:
    torch.manual_seed(0)
    kind(config).save_pretrained(folder)
    save_tokenizer(folder)
    return str(folder)


def small_whisper(folder: Path) -> str:
    config = WhisperConfig(
        vocab_size=20,
        d_model=16,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_source_positions=50,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    torch.manual_seed(0)
    WhisperForConditionalGeneration(config).save_pretrained(folder)
    WhisperFeatureExtractor(chunk_length=1).save_pretrained(folder)
    return str(folder)


def small_wav2vec2(folder: Path) -> str:
    config = Wav2Vec2Config(
        **SMALL,
        conv_dim=(8, 8),
        conv_kernel=(10, 4),
        conv_stride=(5, 4),
        num_conv_pos_embedding_groups=2,
        num_conv_pos_embeddings=4,
    )
    torch.manual_seed(0)
    Wav2Vec2Model(config).save_pretrained(folder)
    Wav2Vec2FeatureExtractor().save_pretrained(folder)
    return str(folder)


def count_attention(
    model: TextModel | AudioModel, encoded: object, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """Return the number of queries of every call of the fused attention during a run."""
    fused, queries = F.scaled_dot_product_attention, []

    def counting(query: torch.Tensor, *rest: object, **named: object) -> torch.Tensor:
        queries.append(query.shape[-2])
        return fused(query, *rest, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counting)
    output = model.run(encoded)
    assert not output.last_hidden_state.requires_grad
    return queries


TEXT_MODELS = {
    "bert": (BertModel, BertConfig(**SMALL, max_position_embeddings=12), 12),
    "roberta": (RobertaModel, RobertaConfig(**SMALL, max_position_embeddings=14), 12),
    "gpt2": (
        GPT2Model,
        GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=12, vocab_size=300),
        12,
    ),
    "llama": (LlamaModel, LlamaConfig(**SMALL, max_position_embeddings=12), 12),
    "bart": (
        BartModel,
        BartConfig(
            vocab_size=300,
            d_model=16,
            encoder_layers=2,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            max_position_embeddings=12,
        ),
        12,
    ),
}


@pytest.mark.parametrize("kind", sorted(TEXT_MODELS))
def test_text_folders_load_and_run(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model_class, config, limit = TEXT_MODELS[kind]
    name = save(tmp_path, model_class, config)
    loaded = load_text_model(name)
    assert (loaded.name, loaded.notes, loaded.model.training) == (name, (), False)
    encoded = loaded.encode("hi 🌍")
    assert encoded.axis.labels == ("hi", "␣", "🌍·1/4", "🌍·2/4", "🌍·3/4", "🌍·4/4")
    assert encoded.axis.spans == ((0, 2), (2, 3), (3, 4), (3, 4), (3, 4), (3, 4))
    assert (encoded.valid, encoded.positions) == (6, 6)
    # Two layers; of an encoder–decoder only the encoder runs.
    assert count_attention(loaded, encoded, monkeypatch) == [6, 6]
    longest = loaded.encode("x" * limit)
    assert loaded.run(longest).last_hidden_state.shape == (1, limit, 16)
    with pytest.raises(InputError, match=f"at most {limit} tokens.*got {limit + 1}"):
        loaded.encode("x" * (limit + 1))


def test_runs_give_what_the_model_gives(tmp_path: Path):
    loaded = load_text_model(save(tmp_path, BertModel, BertConfig(**SMALL)))
    encoded = loaded.encode("hi there")
    plain = BertModel.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        expected = plain(**encoded.inputs).last_hidden_state
    assert torch.equal(loaded.run(encoded).last_hidden_state, expected)


@pytest.mark.parametrize("text", ["", " "])
def test_empty_text_is_refused_or_a_token(text: str, tmp_path: Path):
    loaded = load_text_model(save(tmp_path, BertModel, BertConfig(**SMALL)))
    if not text:
        with pytest.raises(InputError, match="text must hold some characters"):
            loaded.encode(text)
    else:
        assert loaded.encode(text).axis.labels == ("␣",)


def test_half_a_character_is_refused(tmp_path: Path):
    loaded = load_text_model(save(tmp_path, BertModel, BertConfig(**SMALL)))
    with pytest.raises(InputError, match=r"got half of one, '\\ud83c', at place 3"):
        loaded.encode("hi \ud83c")


def test_missing_weights_are_noted(tmp_path: Path):
    loaded = load_text_model(save(tmp_path, BertForMaskedLM, BertConfig(**SMALL)))
    assert loaded.notes == (
        "no weights for pooler.dense.bias, pooler.dense.weight: these are random",
    )


def test_whisper_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    loaded = load_audio_model(small_whisper(tmp_path))
    encoded = loaded.encode(torch.sin(torch.arange(8_000) / 5))
    assert (encoded.valid, encoded.positions) == (25, 50)
    assert encoded.axis.spans[-1] == pytest.approx((0.48, 0.5))
    assert count_attention(loaded, encoded, monkeypatch) == [50, 50]


def test_wav2vec2_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    loaded = load_audio_model(small_wav2vec2(tmp_path))
    encoded = loaded.encode(torch.sin(torch.arange(1_000) / 5), start_seconds=0.01)
    assert encoded.axis.spans[0] == pytest.approx((0.01, 0.01 + 20 / 16_000))
    # (840 − 10) // 5 + 1 = 167; (167 − 4) // 4 + 1 = 41
    assert (encoded.valid, encoded.positions) == (41, 41)
    assert count_attention(loaded, encoded, monkeypatch) == [41, 41]


def test_a_model_moved_to_another_number_type_still_runs(tmp_path: Path):
    loaded = load_audio_model(small_whisper(tmp_path))
    loaded.model.to(torch.float64)
    encoded = loaded.encode(torch.sin(torch.arange(8_000) / 5))
    assert loaded.run(encoded).last_hidden_state.dtype == torch.float64


def test_loading_is_silent(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    name = save(tmp_path, BertForMaskedLM, BertConfig(**SMALL, max_position_embeddings=12))
    small_whisper(tmp_path / "whisper")
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load_text_model(name)
        load_audio_model(str(tmp_path / "whisper"))
        with pytest.raises(InputError, match="text must have at most 12 tokens, which is what"):
            loaded.encode("x" * 100)
    assert capfd.readouterr() == ("", "")


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save(tmp_path / "model", BertModel, BertConfig(**SMALL))
    assert load_text_model("~/model").encode("hi").valid == 1


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The hub as it is without a network, at once and with nothing in its cache."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "empty"))


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("load", [load_text_model, load_audio_model])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("somebody/some-model", "the hub does not answer. Check the network, or name a local"),
        ("no such/name/at all", r"must be a local folder or a name on the hub; got “no such"),
        ("", "got an empty name"),
        (" ", "got an empty name"),
        ("/" + "x" * 5000, "no folder"),
        ("./nowhere", r"got \./nowhere, no folder"),
        ("/nowhere/at/all", "got /nowhere/at/all, no folder"),
        ("~/nowhere-at-all", "got ~/nowhere-at-all, no folder"),
    ],
)
def test_names_without_a_model(load: object, name: str, words: str):
    with pytest.raises(ModelError, match=words):
        load(name)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("load", [load_text_model, load_audio_model])
@pytest.mark.parametrize("name", [None, "somebody/some-model"])
def test_missing_transformers_is_told_before_anything_is_fetched(
    load: object, name: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "transformers.utils", None)
    lines: list[str] = []
    with pytest.raises(MissingExtraError, match=r"pip install 'heedmap\[models\]'"):
        load(name, lines.append)  # pyright: ignore[reportCallIssue]
    assert lines == []


@pytest.mark.usefixtures("offline")
def test_looking_on_the_hub_is_announced():
    lines: list[str] = []
    with pytest.raises(ModelError):
        load_text_model("somebody/some-model", lines.append)
    assert lines == ["Looking for somebody/some-model on the hub …"]


@pytest.mark.parametrize("load", [load_text_model, load_audio_model])
class TestBrokenFolders:
    def test_without_config(self, load: object, tmp_path: Path):
        with pytest.raises(ModelError, match=r"must hold a config\.json"):
            load(str(tmp_path))  # pyright: ignore[reportCallIssue]

    def test_a_file(self, load: object, tmp_path: Path):
        (tmp_path / "weights.bin").write_bytes(b"")
        with pytest.raises(
            ModelError, match=r"model must be a folder or a name on the hub; got .*, no folder"
        ):
            load(str(tmp_path / "weights.bin"))  # pyright: ignore[reportCallIssue]

    @pytest.mark.parametrize("content", ["{", "[]", "{}", '{"model_type": "unheard-of"}'])
    def test_with_a_config_that_says_nothing(self, load: object, content: str, tmp_path: Path):
        (tmp_path / "config.json").write_text(content)
        kinds = (
            "model must be of a kind that transformers knows|a local folder or a name on the hub"
        )
        with pytest.raises(ModelError, match=kinds):
            load(str(tmp_path))  # pyright: ignore[reportCallIssue]


def test_without_weights(tmp_path: Path):
    name = save(tmp_path, BertModel, BertConfig(**SMALL))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="must hold weights"):
        load_text_model(name)


def test_with_broken_weights(tmp_path: Path):
    name = save(tmp_path, BertModel, BertConfig(**SMALL))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])
    with pytest.raises(ModelError, match="must hold weights"):
        load_text_model(name)


def test_with_weights_of_other_sizes(tmp_path: Path):
    name = save(tmp_path, BertModel, BertConfig(**SMALL))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": 32}))
    with pytest.raises(ModelError, match="must hold weights that fit"):
        load_text_model(name)


def test_without_tokenizer(tmp_path: Path):
    BertModel(BertConfig(**SMALL)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="model must come with its tokenizer; got"):
        load_text_model(str(tmp_path))


def test_with_a_tokenizer_that_loses_the_characters(tmp_path: Path):
    name = save(tmp_path, BertModel, BertConfig(**SMALL))
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    with pytest.raises(ModelError, match="tells the characters of its tokens; got ByT5Tokenizer"):
        load_text_model(name)


def test_without_softmax_attention(tmp_path: Path):
    config = MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=300)
    name = save(tmp_path, MambaModel, config)
    with pytest.raises(ModelError, match=r"must attend through scaled_dot_product.*a mamba model"):
        load_text_model(name)


def test_a_model_of_sound_is_no_text_model(tmp_path: Path):
    with pytest.raises(ModelError, match=r"must take text; got .* which takes input_values"):
        load_text_model(small_wav2vec2(tmp_path))


def test_a_text_model_is_no_model_of_sound(tmp_path: Path):
    with pytest.raises(ModelError, match=r"must be Whisper, or begin .* a bert model"):
        load_audio_model(save(tmp_path, BertModel, BertConfig(**SMALL)))


def test_squeezed_sound_is_refused(tmp_path: Path):
    """Its attention has fewer positions than its convolutions give."""
    SEWConfig().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="a sew model"):
        load_audio_model(str(tmp_path))


def test_without_feature_extractor(tmp_path: Path):
    name = small_wav2vec2(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(
        ModelError, match=r"must come with its feature extractor; .* cannot be loaded"
    ):
        load_audio_model(name)


def test_another_sample_rate_is_refused(tmp_path: Path):
    name = small_wav2vec2(tmp_path)
    Wav2Vec2FeatureExtractor(sampling_rate=8_000).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"must take 16000 samples a second; got .* 8000\."):
        load_audio_model(name)


@pytest.mark.slow
def test_the_packaged_text_model():
    loaded = load_text_model()
    encoded = loaded.encode("他说他今天不能来")
    assert encoded.axis.labels == ("<s>", "▁", "他说", "他", "今天", "不能", "来", "</s>")
    assert encoded.axis.locate("他#2").positions == (3,)
    with pytest.raises(InputError, match="at most 512 tokens"):
        loaded.encode("他说，" * 400)
    with pytest.raises(InputError, match="must hold some characters"):
        loaded.encode(" \n")


@pytest.mark.slow
def test_a_published_weight_of_the_packaged_text_model(monkeypatch: pytest.MonkeyPatch):
    """The second 他 looks at the token with the first one, in layer 0 head 2, with 0.896."""
    loaded = load_text_model()
    fused, weights = F.scaled_dot_product_attention, []

    def recording(query: torch.Tensor, key: torch.Tensor, *rest: object, **named: object):
        weights.append((query @ key.mT * query.shape[-1] ** -0.5).softmax(-1))
        return fused(query, key, *rest, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", recording)
    loaded.run(loaded.encode("他说他今天不能来"))
    assert len(weights) == 12
    assert weights[0][0, 2, 3, 2].item() == pytest.approx(0.896, abs=5e-4)


@pytest.mark.slow
def test_the_packaged_audio_model():
    loaded = load_audio_model()
    encoded = loaded.encode(torch.sin(torch.arange(40_000) / 5))
    assert (encoded.valid, encoded.positions) == (125, 1500)
    assert loaded.run(encoded).last_hidden_state.shape == (1, 1500, 384)
