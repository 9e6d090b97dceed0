"""Models by name: the packaged default, a local folder, or a name on the Hugging Face hub."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from heedmap.errors import InputError, MissingExtraError, ModelError
from heedmap.models.e5 import load_e5
from heedmap.models.loaded import AudioModel, Encoded, TextModel
from heedmap.models.packages import PACKAGED, Progress, fetch_file
from heedmap.models.quiet import quiet_transformers
from heedmap.models.sound import SAMPLE_RATE_HZ, wave_encoder, whisper_encoder
from heedmap.models.tokens import token_axis
from heedmap.models.whisper import load_whisper

# Tokenizers without a limit of their own say so with a number of 31 digits.
_NO_LIMIT = 10**9


def load_text_model(name: str | None = None, progress: Progress | None = None) -> TextModel:
    """Return a text model that attends through ``scaled_dot_product_attention``.

    Args:
        name: A folder in transformers' format or a name on the hub; None for multilingual-e5-small
            out of a package.
        progress: Called with one line of text before something is fetched.

    Raises:
        ModelError: if there is no such model, or none whose attention can be looked into.
        FetchError: if the packaged model cannot be fetched.
        MissingExtraError: if transformers is not installed.

    Cost:
        The packaged model takes about half a second and 160 MB once it is in the cache.
    """
    if name is None:
        return _packaged_text_model(progress)
    with quiet_transformers():
        config = _read_config(name, progress)
        model, notes = _load_weights(name, config, "AutoModel")
        if model.main_input_name != "input_ids":
            raise ModelError(
                f"model must take text; got {name}, which takes {model.main_input_name}."
            )
        tokenizer = _load_part(name, "AutoTokenizer", "tokenizer")
    # Where the files are missing, transformers makes a tokenizer that knows no pieces.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ModelError(f"model must come with its tokenizer; got {name}, which has none.")
    if not tokenizer.is_fast:
        raise ModelError(
            f"model must have a tokenizer that tells the characters of its tokens; got "
            f"{type(tokenizer).__name__} of {name}, which does not. Save one as tokenizer.json."
        )
    return TextModel(model, _text_encoder(tokenizer, _token_limit(model, tokenizer)), name, notes)


def load_audio_model(name: str | None = None, progress: Progress | None = None) -> AudioModel:
    """Return a Whisper or wav2vec 2.0 model that attends through ``scaled_dot_product_attention``.

    Args:
        name: A folder in transformers' format or a name on the hub, of Whisper or of a model that
            begins with convolutions over the wave, as wav2vec 2.0 and HuBERT do; None for Whisper
            tiny.en out of a package.
        progress: Called with one line of text before something is fetched.

    Raises:
        ModelError: if there is no such model, or none of this kind.
        FetchError: if the packaged model cannot be fetched.
        MissingExtraError: if transformers is not installed.

    Cost:
        The packaged model takes about half a second and 220 MB once it is in the cache.
    """
    if name is None:
        return _packaged_audio_model(progress)
    with quiet_transformers():
        config = _read_config(name, progress)
        is_whisper = config.model_type == "whisper"
        if not is_whisper and (
            not hasattr(config, "conv_stride") or getattr(config, "squeeze_factor", 1) != 1
        ):
            raise ModelError(
                "model must be Whisper, or begin with convolutions over the wave as wav2vec 2.0 "
                f"does; got {name}, a {config.model_type} model."
            )
        kind = "WhisperForConditionalGeneration" if is_whisper else "AutoModel"
        model, notes = _load_weights(name, config, kind)
        extractor = _load_part(name, "AutoFeatureExtractor", "feature extractor")
        processor = _load_processor(name) or extractor
    if extractor.sampling_rate != SAMPLE_RATE_HZ:
        raise ModelError(
            f"model must take {SAMPLE_RATE_HZ} samples a second; got {name}, which takes "
            f"{extractor.sampling_rate}."
        )
    if is_whisper:
        encode = whisper_encoder(extractor, config.max_source_positions)
    else:
        encode = wave_encoder(extractor, list(config.conv_kernel), list(config.conv_stride))
    return AudioModel(model, encode, processor, name, notes)


def _packaged_text_model(progress: Progress | None) -> TextModel:
    pin = PACKAGED["e5-small"]
    # Without transformers this fails before anything is fetched.
    with quiet_transformers():
        loaded = load_e5(fetch_file(pin, progress))
    tokenizer, limit = loaded.tokenizer, loaded.model.config.max_position_embeddings

    def encode(text: str) -> Encoded:
        _check_characters(text)
        tokens = tokenizer.encode(text)
        if len(tokens) == 2:
            raise InputError("text must hold some characters; got none, or only blanks.")
        _check_length(len(tokens), limit)
        ids = torch.tensor([[token.id for token in tokens]])
        spans = [(token.start, token.end) for token in tokens]
        axis = token_axis(text, [token.piece for token in tokens], spans)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        return Encoded(inputs, axis, len(tokens))

    notes = (f"multilingual-e5-small with weights of 4 bits, from {pin.package} {pin.version}",)
    return TextModel(loaded.model, encode, "multilingual-e5-small", notes)


def _packaged_audio_model(progress: Progress | None) -> AudioModel:
    pin = PACKAGED["whisper-tiny-en"]
    with quiet_transformers():
        # Unpacked together with the model, but each is looked for, should one have been deleted.
        for part in ("config", "tokenizer", "vocabulary"):
            fetch_file(PACKAGED[f"whisper-tiny-en-{part}"], progress)
        loaded = load_whisper(fetch_file(pin, progress).parent)
    extractor: Any = loaded.processor.feature_extractor
    encode = whisper_encoder(extractor, loaded.model.config.max_source_positions)
    notes = (f"Whisper tiny.en, English only, from {pin.package} {pin.version}",)
    return AudioModel(loaded.model, encode, loaded.processor, "whisper-tiny.en", notes)


def _read_config(name: str, progress: Progress | None) -> Any:
    """Return the configuration; where there is none, say why as plainly as can be."""
    from huggingface_hub.errors import LocalEntryNotFoundError
    from transformers import AutoConfig

    path = Path(name).expanduser()
    if not name.strip():
        raise ModelError("model must be a folder or a name on the hub; got an empty name.")
    # Those of os.path say no where those of Path raise: names too long, folders closed to us.
    if os.path.isdir(path):
        if not os.path.isfile(path / "config.json"):
            raise ModelError(
                f"model folder must hold a config.json; got {name}, which does not. "
                "Make one with save_pretrained."
            )
    elif os.path.exists(path) or path.is_absolute() or name.startswith((".", "~")):
        raise ModelError(f"model must be a folder or a name on the hub; got {name}, no folder.")
    elif progress:
        progress(f"Looking for {name} on the hub …")
    try:
        return AutoConfig.from_pretrained(_place(name), trust_remote_code=False)
    except OSError as error:
        if isinstance(error.__cause__, LocalEntryNotFoundError):
            raise ModelError(
                f"model must be a folder, or a name on the hub while the hub can be reached; got "
                f"“{name}”, which is no folder, and the hub does not answer. Check the network, or "
                "name a local folder that holds the model."
            ) from error
        raise ModelError(
            f"model must be a local folder or a name on the hub; got “{name}” "
            f"({_first_line(error)})."
        ) from error
    # A config.json that is nonsense raises whatever its reader stumbles over (KeyError, TypeError,
    # ValueError, errors of JSON and of validation), which has no common class. All are told.
    except Exception as error:
        raise ModelError(
            f"model must be of a kind that transformers knows; got {name} ({_first_line(error)})."
        ) from error


def _load_weights(name: str, config: Any, kind: str) -> tuple[Any, tuple[str, ...]]:
    """Return the model in evaluation mode, and a note when weights were missing."""
    import transformers

    try:
        model, found = getattr(transformers, kind).from_pretrained(
            _place(name),
            config=config,
            attn_implementation="sdpa",
            output_loading_info=True,
            trust_remote_code=False,
        )
    except ImportError as error:
        raise MissingExtraError(
            error.name or "a package that this model needs", "models"
        ) from error
    # Weights that are broken, or do not fit, raise what safetensors, pickle or the model's own
    # constructor raise, which has no common class. All are told.
    except Exception as error:
        if "scaled_dot_product_attention" in str(error):
            raise ModelError(
                f"model must attend through scaled_dot_product_attention; got {name}, a "
                f"{config.model_type} model, which has no such attention in transformers."
            ) from error
        raise ModelError(
            f"model must hold weights that fit its config.json; got {name} ({_first_line(error)})."
        ) from error
    return model.eval(), _note_missing(sorted(found["missing_keys"]))


def _note_missing(weights: list[str]) -> tuple[str, ...]:
    if not weights:
        return ()
    more = f" and {len(weights) - 3} more" if len(weights) > 3 else ""
    return (f"no weights for {', '.join(weights[:3])}{more}: these are random",)


def _load_part(name: str, kind: str, what: str) -> Any:
    """Return the tokenizer or feature extractor that goes with the model."""
    import transformers

    try:
        return getattr(transformers, kind).from_pretrained(_place(name), trust_remote_code=False)
    # Each kind of tokenizer raises its own, the one in Rust a bare Exception. All are told.
    except Exception as error:
        raise ModelError(
            f"model must come with its {what}; got {name}, whose {what} cannot be loaded "
            f"({_first_line(error)})."
        ) from error


def _load_processor(name: str) -> Any:
    """Return the processor with a tokenizer, or None: looking at a model does not need one."""
    from transformers import AutoProcessor

    try:
        return AutoProcessor.from_pretrained(_place(name), trust_remote_code=False)
    # As for its parts, one of which has been loaded by now and is used instead. Who needs what only
    # the processor has (words need a tokenizer) says so then.
    except Exception:
        return None


def _place(name: str) -> str:
    """Return the folder's path if it is one; a hub name stays as it is."""
    path = Path(name).expanduser()
    return str(path) if os.path.isdir(path) else name


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _text_encoder(tokenizer: Any, limit: int | None) -> Callable[[str], Encoded]:
    def encode(text: str) -> Encoded:
        _check_characters(text)
        with quiet_transformers():
            batch = tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
        spans = [(int(start), int(end)) for start, end in batch.pop("offset_mapping")[0]]
        if all(start == end for start, end in spans):
            raise InputError("text must hold some characters; got none, or only blanks.")
        _check_length(len(spans), limit)
        names = tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
        return Encoded(dict(batch), token_axis(text, names, spans), len(spans))

    return encode


def _token_limit(model: Any, tokenizer: Any) -> int | None:
    """Return how many tokens a text may have, or None where nothing limits it."""
    limits = [getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length]
    # RoBERTa and its kin begin to count after the number of the padding token.
    for module_name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if module_name.endswith("position_embeddings") and padding is not None:
            limits.append(module.num_embeddings - padding - 1)
    known = [limit for limit in limits if limit is not None and 0 < limit < _NO_LIMIT]
    return min(known) if known else None


def _check_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"text must be whole characters; got half of one, {text[error.start]!r}, at place "
            f"{error.start}. Read the file with its right encoding."
        ) from error


def _check_length(tokens: int, limit: int | None) -> None:
    if limit is not None and tokens > limit:
        raise InputError(
            f"text must have at most {limit} tokens, which is what this model has positions for; "
            f"got {tokens}. Look at a part of it."
        )
