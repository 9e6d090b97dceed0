"""Whisper out of a CTranslate2 folder, as an ordinary transformers model with its processor.

The folder holds ``model.bin`` (CTranslate2 binary version 6, little endian), ``tokenizer.json``,
``vocabulary.txt`` and ``config.json``. The binary is a list of named tensors. Its attention
projections are fused: query, key and value of self-attention in one matrix, key and value of
cross-attention in another.
"""

import json
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.errors import MissingExtraError, ModelError

if TYPE_CHECKING:
    from transformers import WhisperForConditionalGeneration, WhisperProcessor, WhisperTokenizer

_VERSION = 6
_SPECIFICATION = "WhisperSpec"
_TYPES = {0: torch.float32, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.float16}

# What reading nonsense raises, here and where a model of nonsensical sizes is built.
_DAMAGE = (
    *(OSError, struct.error, ValueError, LookupError),
    *(TypeError, AssertionError, RuntimeError),
)


@dataclass(frozen=True)
class Whisper:
    """The model, in evaluation mode, and its feature extractor and tokenizer in one processor."""

    model: "WhisperForConditionalGeneration"
    processor: "WhisperProcessor"


def load_whisper(folder: Path) -> Whisper:
    """Return the model (``attn_implementation="sdpa"``, float32) and its processor.

    Args:
        folder: A folder of a Whisper model that was converted for CTranslate2, not quantised.

    Raises:
        ModelError: if a file is missing, broken off, or not what it should be.
        MissingExtraError: if transformers is not installed.

    Cost:
        For tiny.en a quarter of a second and 220 MB, half of it for the decoder.
    """
    try:
        from transformers import WhisperFeatureExtractor, WhisperProcessor
    except ImportError as error:
        raise MissingExtraError("transformers", "models") from error
    try:
        variables = read_variables(folder / "model.bin")
        tokenizer = _read_tokenizer(folder)
        model = _build(variables, tokenizer, json.loads((folder / "config.json").read_bytes()))
    except _DAMAGE as error:
        raise ModelError(
            f"{folder} must be a whole folder of a CTranslate2 Whisper model; got "
            f"“{error}”. Delete it, so that it is fetched again."
        ) from error
    extractor = WhisperFeatureExtractor(feature_size=model.config.num_mel_bins)
    return Whisper(model, WhisperProcessor(extractor, tokenizer))


def read_variables(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a CTranslate2 binary by name, copied out of the file.

    Raises:
        ValueError: if the file is of another version or another kind of model, or is not whole.
    """
    with path.open("rb") as file:
        # Copy-on-write, because torch wants memory that is writable.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    (version,) = struct.unpack_from("<I", data, 0)
    specification, head = _read_string(data, 4)
    if (version, specification) != (_VERSION, _SPECIFICATION):
        raise ValueError(f"version {version} of {specification}")
    _, count = struct.unpack_from("<II", data, head)
    head += 8
    variables = {}
    for _ in range(count):
        name, head = _read_string(data, head)
        (rank,) = struct.unpack_from("<B", data, head)
        *shape, kind, size = struct.unpack_from(f"<{rank}IBI", data, head + 1)
        head += 1 + 4 * rank + 5
        numbers = torch.frombuffer(data, dtype=torch.uint8, count=size, offset=head)
        # Names stand between the tensors, so these lie at odd addresses until they are copied.
        variables[name] = numbers.clone().view(_TYPES[kind]).view(shape)
        head += size
    return variables


def _read_string(data: mmap.mmap, head: int) -> tuple[str, int]:
    """Return a string, whose length counts a closing zero byte, and the place after it."""
    (length,) = struct.unpack_from("<H", data, head)
    return data[head + 2 : head + 1 + length].decode(), head + 2 + length


def _read_tokenizer(folder: Path) -> "WhisperTokenizer":
    """Return the tokenizer, with all control tokens registered as special and times after them.

    transformers takes the last special token for the one before the time 0.00. Were only the end of
    text special, as the file alone would have it, every time would come out 2.12 s late.
    """
    from transformers import AddedToken, WhisperTokenizer

    described = json.loads((folder / "tokenizer.json").read_bytes())
    names = (folder / "vocabulary.txt").read_text(encoding="utf-8").split("\n")
    merges = [
        tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge)
        for merge in described["model"]["merges"]
    ]
    tokenizer = WhisperTokenizer(vocab=described["model"]["vocab"], merges=merges)
    added = sorted(described["added_tokens"], key=lambda token: token["id"])
    special = [token["content"] for token in added if token["special"]]
    tokenizer.add_special_tokens({"extra_special_tokens": special})
    # It was set when the tokens it is made of were not known yet.
    tokenizer.set_prefix_tokens()
    times = [name for name in names[added[-1]["id"] + 1 :] if name]
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in times])
    for number in (added[0]["id"], added[-1]["id"], added[-1]["id"] + len(times)):
        if tokenizer.convert_tokens_to_ids(names[number]) != number:
            raise ValueError(f"token {names[number]} is not number {number}")
    return tokenizer


def _build(
    variables: dict[str, Tensor], tokenizer: "WhisperTokenizer", settings: dict[str, Any]
) -> "WhisperForConditionalGeneration":
    """Return the model with the weights of the file."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    vocabulary, width = variables["decoder/embeddings/weight"].shape
    config = WhisperConfig(
        vocab_size=vocabulary,
        num_mel_bins=variables["encoder/conv1/weight"].shape[1],
        d_model=width,
        encoder_layers=_count_layers(variables, "encoder"),
        decoder_layers=_count_layers(variables, "decoder"),
        encoder_attention_heads=int(variables["encoder/num_heads"]),
        decoder_attention_heads=int(variables["decoder/num_heads"]),
        encoder_ffn_dim=len(variables["encoder/layer_0/ffn/linear_0/bias"]),
        decoder_ffn_dim=len(variables["decoder/layer_0/ffn/linear_0/bias"]),
        max_source_positions=len(variables["encoder/position_encodings/encodings"]),
        max_target_positions=len(variables["decoder/position_encodings/encodings"]),
        pad_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.convert_tokens_to_ids("<|startoftranscript|>"),
        attn_implementation="sdpa",  # pyright: ignore[reportCallIssue]
    )
    # On the meta device nothing is allocated or initialised only to be overwritten.
    with torch.device("meta"):
        model = WhisperForConditionalGeneration(config)
    weights = {
        name: _weight(variables, name) for name in model.state_dict() if name != "proj_out.weight"
    }
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    _configure_generation(model, tokenizer, settings)
    return model.eval()


def _count_layers(variables: dict[str, Tensor], side: str) -> int:
    layers = {name.split("/")[1] for name in variables if name.startswith(f"{side}/layer_")}
    return len(layers - {"layer_norm"})


def _configure_generation(
    model: "WhisperForConditionalGeneration",
    tokenizer: "WhisperTokenizer",
    settings: dict[str, Any],
) -> None:
    """Set what `generate` has to know beyond the weights."""
    generation: Any = model.generation_config
    generation.is_multilingual = False
    generation.max_length = model.config.max_target_positions
    generation.max_initial_timestamp_index = 50
    generation.no_timestamps_token_id = tokenizer.convert_tokens_to_ids("<|notimestamps|>")
    generation.prev_sot_token_id = tokenizer.convert_tokens_to_ids("<|startofprev|>")
    generation.suppress_tokens = settings["suppress_ids"]
    generation.begin_suppress_tokens = settings["suppress_ids_begin"]
    generation.alignment_heads = settings["alignment_heads"]


# What the file calls a part of a layer, and which share of it is meant: (third) 1 of 3, and so on.
_LAYER_PARTS = {
    "self_attn.q_proj": ("self_attention/linear_0", 0, 3),
    "self_attn.k_proj": ("self_attention/linear_0", 1, 3),
    "self_attn.v_proj": ("self_attention/linear_0", 2, 3),
    "self_attn.out_proj": ("self_attention/linear_1", 0, 1),
    "self_attn_layer_norm": ("self_attention/layer_norm", 0, 1),
    "encoder_attn.q_proj": ("attention/linear_0", 0, 1),
    "encoder_attn.k_proj": ("attention/linear_1", 0, 2),
    "encoder_attn.v_proj": ("attention/linear_1", 1, 2),
    "encoder_attn.out_proj": ("attention/linear_2", 0, 1),
    "encoder_attn_layer_norm": ("attention/layer_norm", 0, 1),
    "fc1": ("ffn/linear_0", 0, 1),
    "fc2": ("ffn/linear_1", 0, 1),
    "final_layer_norm": ("ffn/layer_norm", 0, 1),
}
_OTHER_PARTS = {
    "embed_tokens.weight": "embeddings/weight",
    "embed_positions.weight": "position_encodings/encodings",
}


def _weight(variables: dict[str, Tensor], name: str) -> Float[Tensor, "..."]:
    """Return one weight of the model as float32, cut out of the fused tensor that holds it."""
    _, side, rest = name.split(".", 2)
    if rest in _OTHER_PARTS:
        return _as_float(variables[f"{side}/{_OTHER_PARTS[rest]}"])
    part, kind = rest.rsplit(".", 1)
    share, shares = 0, 1
    if part.startswith("layers."):
        _, layer, part = part.split(".", 2)
        stem, share, shares = _LAYER_PARTS[part]
        part = f"layer_{layer}/{stem}"
    if part.endswith("layer_norm"):
        kind = {"weight": "gamma", "bias": "beta"}[kind]
    return _as_float(variables[f"{side}/{part}/{kind}"].chunk(shares)[share])


def _as_float(values: Tensor) -> Float[Tensor, "..."]:
    if not values.is_floating_point():
        raise ValueError(f"weights of type {values.dtype}, which stand for others with a scale")
    return values.float()
