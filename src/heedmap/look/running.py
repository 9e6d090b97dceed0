"""From a text, a sound or a film to the attention of every layer and head over it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Bool
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.axes import Axis, Sequence
from heedmap.errors import ArgumentError, InputError
from heedmap.layers import Layer
from heedmap.media import Film, Sound, Text, open_media
from heedmap.models.hub import load_audio_model, load_text_model
from heedmap.models.loaded import AudioModel, Encoded, TextModel
from heedmap.models.packages import PACKAGED, PackagedFile
from heedmap.seen import Seen
from heedmap.watch import watch

Progress = Callable[[str], None]

NO_MODEL = "none"
MODEL_RATE_HZ = 16_000
LOUD_DECIBELS = 20.0
"""Moments at most this much below the loud ones (the 95th percentile) count as sounding."""


@dataclass(frozen=True, eq=False)
class Run:
    """What a model looked at in one input.

    Attributes:
        kind: ``"text"``, ``"audio"`` or ``"video"``.
        name: What the input is called.
        axis: What the positions are; the same for queries and keys.
        seen: All that was seen of the model.
        layers: Its self-attention, the weights of the one sample and of these positions alone.
        model: The name of the model, or ``"none"``.
        weights_from: Licence and origin of packaged weights; None for others.
        notes: Remarks on the input and on the model.
        plain: For sound and film, features that need no model, at times of their own.
        sounding: For sound, which positions of `plain` are not silent.
    """

    kind: str
    name: str
    axis: Axis
    seen: Seen
    layers: tuple[Layer, ...]
    model: str
    weights_from: dict[str, str] | None
    notes: tuple[str, ...]
    plain: Sequence | None = None
    sounding: Bool[Tensor, " positions"] | None = None


def open_source(
    source: str | Path | Text | Sound | Film, *, channel: int | None = None
) -> Text | Sound | Film:
    """Return what is to be looked at, opened; of a sound one `channel`, or the mean of all.

    Raises:
        ArgumentError: for a channel of what is no sound.
    """
    if isinstance(source, Text | Sound | Film):
        return source
    media = open_media(source, sample_rate_hz=MODEL_RATE_HZ, channel=channel)
    if channel is not None and not isinstance(media, Sound):
        what = "text" if isinstance(media, Text) else "film"
        raise ArgumentError(
            f"channel must be given for a sound; got {channel} for {media.name}, a {what}."
        )
    return media


def run(
    media: Text | Sound | Film,
    *,
    model: str | None,
    start_seconds: float,
    progress: Progress,
) -> Run:
    """Return the attention of a model over a text, sound or film.

    Args:
        media: What is looked at.
        model: A folder, a name on the hub, ``"none"``, or None for the model of the house.
        start_seconds: For sound, where to begin.
        progress: Called with a line of text before something slow begins.
    """
    if not isinstance(media, Sound) and start_seconds:
        raise ArgumentError(
            f"start_seconds must be 0 unless a sound is looked at; got {start_seconds:g} for "
            f"{media.name}."
        )
    if isinstance(media, Text):
        return _run_text(media, model, progress)
    if isinstance(media, Sound):
        return _run_sound(media, model, start_seconds, progress)
    return _run_film(media, model, progress)


def _run_text(text: Text, name: str | None, progress: Progress) -> Run:
    if name == NO_MODEL:
        sequence = text.sequence()
        notes = (*text.notes, "no model: each character looks at characters equal to it")
        return _plain_run("text", text.name, sequence, text.temperature, notes)
    model = load_text_model(name, progress)
    encoded = model.encode(text.text)
    seen = _seen(model, encoded)
    layers = _cropped(seen, model, encoded)
    notes = (*text.notes, *model.notes, *encoded.notes)
    origin = origin_of(PACKAGED["e5-small"]) if name is None else None
    return Run("text", text.name, encoded.axis, seen, layers, model.name, origin, notes)


def _run_sound(sound: Sound, name: str | None, start_seconds: float, progress: Progress) -> Run:
    if name == NO_MODEL:
        sound = _from(sound, start_seconds)
        plain = _shifted(sound.sequence(), start_seconds)
        notes = (*sound.notes, "no model: moments look at moments that sound alike")
        made = _plain_run("audio", sound.name, plain, sound.temperature, notes)
        return replace(made, sounding=_sounding(sound, len(plain.axis)))
    model = load_audio_model(name, progress)
    encoded = model.encode(sound.samples, start_seconds=start_seconds)
    seen = _seen(model, encoded)
    layers = _cropped(seen, model, encoded)
    end_seconds = encoded.axis.spans[-1][1]
    part = _from(sound, start_seconds, end_seconds)
    plain = _shifted(part.sequence(), start_seconds)
    notes = (*sound.notes, *model.notes, *encoded.notes)
    origin = origin_of(PACKAGED["whisper-tiny-en"]) if name is None else None
    return Run(
        "audio",
        sound.name,
        encoded.axis,
        seen,
        layers,
        model.name,
        origin,
        notes,
        plain,
        _sounding(part, len(plain.axis)),
    )


def _run_film(film: Film, name: str | None, progress: Progress) -> Run:
    if name not in (None, NO_MODEL):
        raise ArgumentError(
            f"model must be none for a film; got {name}. Films are looked at by plain features."
        )
    progress(f"Decoding {film.name} …")
    sequence = film.sequence()
    notes = (*film.notes, "no model: frames look at frames that look alike")
    return _plain_run("video", film.name, sequence, film.temperature, notes)


def _plain_run(
    kind: str, name: str, sequence: Sequence, temperature: float, notes: tuple[str, ...]
) -> Run:
    """Return attention with the identity as projections over plain features: one head."""
    values = sequence.values[None]
    weights = AttentionMap.from_factors(values, values, scale=1 / temperature)
    whole = Layer("plain features", "self", 0, 1, weights[None], door="features")
    plain = sequence if kind != "text" else None
    seen = Seen(lambda: (whole,), model=NO_MODEL)
    layers = (replace(whole, weights=weights),)
    return Run(kind, name, sequence.axis, seen, layers, NO_MODEL, None, notes, plain)


def _seen(model: TextModel | AudioModel, encoded: Encoded) -> Seen:
    """Return the attention of a model over what it is fed."""
    with watch(model.model) as seen:
        model.run(encoded)
    seen.model = model.name
    return seen


def _cropped(seen: Seen, model: TextModel | AudioModel, encoded: Encoded) -> tuple[Layer, ...]:
    """Return the self-attention of each layer, cropped to the positions that are real."""
    size, valid = encoded.positions, encoded.valid
    layers = tuple(
        replace(layer, weights=layer.weights[0, :, :valid, :valid])
        for layer in seen.layers
        if tuple(layer.weights.shape[-2:]) == (size, size)
    )
    if not layers:
        raise InputError(
            f"model must attend from each of its {size} positions to each; got {model.name}, "
            "whose attention has other sizes. Choose another model."
        )
    return layers


def _from(sound: Sound, start_seconds: float, end_seconds: float = math.inf) -> Sound:
    """Return a part of a sound."""
    if not 0 <= start_seconds < sound.duration_seconds:
        raise InputError(
            f"start_seconds must lie in the sound, from 0 to {sound.duration_seconds:g}; "
            f"got {start_seconds:g}."
        )
    start = round(start_seconds * sound.sample_rate_hz)
    stop = round(min(end_seconds, sound.duration_seconds) * sound.sample_rate_hz)
    return replace(sound, samples=sound.samples[start : max(stop, start + 1)])


def _shifted(sequence: Sequence, seconds: float) -> Sequence:
    spans = [(start + seconds, end + seconds) for start, end in sequence.axis.spans]
    return Sequence(sequence.values, Axis.of_seconds(spans))


def _sounding(sound: Sound, count: int) -> Bool[Tensor, " positions"]:
    """Return which of `count` equal stretches of a sound are not silent."""
    power = torch.nn.functional.adaptive_avg_pool1d(sound.samples.square()[None], count)[0]
    decibels = 10 * power.clamp_min(1e-12).log10()
    return decibels >= decibels.quantile(0.95) - LOUD_DECIBELS


def origin_of(pin: PackagedFile) -> dict[str, str]:
    """Return what is known of the weights of a package."""
    return {
        "package": f"{pin.package} {pin.version}",
        "licence": pin.licence,
        "origin": pin.origin,
    }
