"""What is said in a sound, with the times of each word."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from heedmap.analysis.word_times import SMOOTHED_FRAMES, Word, word_times
from heedmap.axes import Axis
from heedmap.errors import ArgumentError, InputError
from heedmap.look.decoding import Head, Heard, alignment_heads, detect_language, hear, text_of
from heedmap.look.folder import check_free, filled_at_once, write_summary
from heedmap.look.looking import SCHEMA
from heedmap.look.running import MODEL_RATE_HZ, NO_MODEL, Progress, open_source, origin_of
from heedmap.media import Film, Sound, Text
from heedmap.models.hub import load_audio_model
from heedmap.models.loaded import AudioModel
from heedmap.models.packages import PACKAGED
from heedmap.plot.labels import in_line

SILENCE_DECIBELS = -80.0
"""Below this there is nothing that a recording of 16 bits could hold."""

BELOW_LOUD_DECIBELS = 25.0
"""Frames at most this much below the loud ones (the 99th percentile) count as sounding.

Voices of one conversation lie within 20, breath and the rustling of clothes below 25. The 99th,
because speech may be a second out of thirty.
"""

LEAST_REST_SECONDS = 0.5
"""A shorter rest was in the window before; what was not heard there is not in it."""

LEAST_STEP_SECONDS = 1.0


@dataclass(frozen=True, eq=False)
class Transcript:
    """The words of a sound.

    Attributes:
        name: What the sound is called.
        start_seconds: Where listening began.
        end_seconds: Where the sound ends.
        model: The name of the model.
        weights_from: Licence and origin of packaged weights; None for others.
        heads: The layers and heads of the decoder by whose weights the times were told.
        words: What is said, in its order.
        notes: Remarks for people.
    """

    name: str
    start_seconds: float
    end_seconds: float
    model: str
    weights_from: dict[str, str] | None
    heads: tuple[Head, ...]
    words: tuple[Word, ...]
    notes: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """Return everything as plain values, as ``summary.json`` has it."""
        return {
            "schema": SCHEMA,
            "input": {
                "name": self.name,
                "kind": "audio",
                "start_seconds": self.start_seconds,
                "end_seconds": self.end_seconds,
            },
            "model": {
                "name": self.model,
                "alignment_heads": [{"layer": layer, "head": head} for layer, head in self.heads],
                "weights_from": self.weights_from,
            },
            "words": [
                {
                    "text": word.text,
                    "start_seconds": word.start_seconds,
                    "end_seconds": word.end_seconds,
                    "share": round(word.share, 5),
                }
                for word in self.words
            ],
            "notes": list(self.notes),
        }


def transcribe(
    source: str | Path | Text | Sound | Film,
    *,
    model: str | None = None,
    output: str | Path | None = None,
    force: bool = False,
    start_seconds: float = 0.0,
    progress: Progress = lambda _: None,
) -> Transcript:
    """Return what is said in a sound, and when each word is.

    The model listens to one window at a time (Whisper: 30 s) and the next begins where the last
    word of the last whole sentence ended. A window without a frame that sounds is passed over.

    Args:
        source: The path of a sound, or a `heedmap.media.Sound`.
        model: A folder or a name on the hub, of Whisper; None for Whisper tiny.en out of a package.
        output: The folder for ``summary.json``; None writes nothing.
        force: Whether to replace the results of an earlier look that lie there.
        start_seconds: Where in the sound to begin.
        progress: Called with a line of text before something slow begins.

    Returns:
        The words with their times in the whole sound; none for silence, and a note then says so.

    Raises:
        ArgumentError: for a text or a film, or a model that does not tell times of words.
        InputError: for a sound or an output folder that cannot be used, or a start outside.
        ModelError: for a model that cannot be loaded.
        FetchError: for packaged weights that cannot be fetched.
        MissingExtraError: for an optional package that is missing.

    Cost: the model's decoding; finding the times takes a tenth of a second for each window.
    """
    if output is not None:
        check_free(Path(output), force=force)
    sound = _sound_of(source)
    if not 0 <= start_seconds < sound.duration_seconds:
        raise InputError(
            f"start_seconds must lie in the sound, from 0 to {sound.duration_seconds:g}; "
            f"got {start_seconds:g}."
        )
    if model == NO_MODEL:
        raise ArgumentError("model must be Whisper to tell when words are spoken; got none.")
    loaded = load_audio_model(model, progress)
    heads = alignment_heads(loaded)
    words = _listen(loaded, heads, sound, start_seconds, progress)
    silent = ("there are no words: the sound is silent, or nobody speaks in it",)
    made = Transcript(
        name=sound.name,
        start_seconds=start_seconds,
        end_seconds=sound.duration_seconds,
        model=loaded.name,
        weights_from=origin_of(PACKAGED["whisper-tiny-en"]) if model is None else None,
        heads=heads,
        words=tuple(words),
        notes=(*sound.notes, *loaded.notes, *(() if words else silent)),
    )
    if output is not None:
        with filled_at_once(Path(output), force=force) as folder:
            write_summary(folder, made.summary())
    return made


def _sound_of(source: str | Path | Text | Sound | Film) -> Sound:
    media = open_source(source)
    if not isinstance(media, Sound):
        what = "text" if isinstance(media, Text) else "film"
        raise ArgumentError(
            f"source must be a sound to tell when words are spoken; got {media.name}, a {what}."
        )
    if media.sample_rate_hz != MODEL_RATE_HZ:
        raise InputError(
            f"source must have {MODEL_RATE_HZ} samples a second; got {media.name}, with "
            f"{media.sample_rate_hz}. Open its file with that rate."
        )
    return media


def _listen(
    model: AudioModel,
    heads: tuple[Head, ...],
    sound: Sound,
    start_seconds: float,
    progress: Progress,
) -> list[Word]:
    """Return the words of one window after the other."""
    words: list[Word] = []
    language = None
    place = start_seconds
    while place == start_seconds or sound.duration_seconds - place >= LEAST_REST_SECONDS:
        encoded = model.encode(sound.samples, start_seconds=place)
        end_seconds = encoded.axis.spans[-1][1]
        sounding = _sounding(sound, encoded.axis)
        found, next_seconds = [], end_seconds
        if bool(sounding.any()):
            until = f"{end_seconds:.2f} s of {sound.duration_seconds:.2f} s"
            progress(f"Listening to {place:.2f} s to {until} …")
            language = language or detect_language(model, encoded)
            heard = hear(model, encoded, heads, language)
            found, is_whole = _words_of(model, heard, encoded.axis, sounding)
            if not is_whole:
                next_seconds = max(found[-1].end_seconds, place + LEAST_STEP_SECONDS)
        words += found
        place = next_seconds
    return words


def _words_of(
    model: AudioModel, heard: Heard, frames: Axis, sounding: Bool[Tensor, " frames"]
) -> tuple[list[Word], bool]:
    """Return the words of the whole sentences of a window, and whether that is all it holds.

    Two times in a row are the end of one sentence and the beginning of the next, which the end of
    the window may have cut. Whisper's authors go on from there, too.
    """
    settings = model.model.generation_config
    tokens = heard.tokens
    positions = [i for i, token in enumerate(tokens) if token < settings.eos_token_id]
    pieces = text_of(model.processor.tokenizer, [tokens[i] for i in positions])
    # Decoding stopped at its limit, within the text: no row tells what comes after the last token.
    if positions and positions[-1] == heard.weights.shape[1]:
        del pieces[-1]
    else:
        positions.append(heard.weights.shape[1])
    words = word_times(heard.weights, pieces, positions, frames, sounding=sounding)
    is_time = [token > settings.no_timestamps_token_id for token in tokens]
    pairs = [i for i in range(1, len(tokens)) if is_time[i - 1] and is_time[i]]
    if not pairs or is_time[-3:-1] == [False, True]:
        return words, True
    whole = [word for word in words if word.positions[-1] < pairs[-1]]
    return (whole, False) if whole else (words, True)


def _sounding(sound: Sound, frames: Axis) -> Bool[Tensor, " frames"]:
    """Return which frames are not silent; a click of less than four frames does not count."""
    begins = [round(start * sound.sample_rate_hz) for start, _ in frames.spans]
    end = round(frames.spans[-1][1] * sound.sample_rate_hz)
    size = begins[1] - begins[0] if len(begins) > 1 else end - begins[0]
    samples = sound.samples[begins[0] : end]
    samples = torch.nn.functional.pad(samples, (0, len(frames) * size - len(samples)))
    decibels = 10 * samples.view(-1, size).square().mean(1).clamp_min(1e-12).log10()
    least = max(float(decibels.quantile(0.99)) - BELOW_LOUD_DECIBELS, SILENCE_DECIBELS)
    margin = SMOOTHED_FRAMES // 2
    wide = torch.nn.functional.pad(decibels[None], (margin, margin), mode="replicate")[0]
    return wide.unfold(0, SMOOTHED_FRAMES, 1).median(-1).values >= least


def report(made: Transcript) -> str:
    """Return what a person reads: the words with their times, and the notes."""
    span = f"{made.start_seconds:.2f} s to {made.end_seconds:.2f} s"
    parts = [
        f"{in_line(made.name)}: audio, {span}; {made.model}, {len(made.heads)} alignment heads"
    ]
    if made.words:
        lines = [
            f"{word.start_seconds:9.2f} {word.end_seconds:9.2f}  {in_line(word.text)}"
            for word in made.words
        ]
        parts.append("\n".join([f"{'start':>9} {'end':>9}  word", *lines]))
    if made.notes:
        parts.append("\n".join(f"note: {note}" for note in made.notes))
    return "\n\n".join(parts) + "\n"
