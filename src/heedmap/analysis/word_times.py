"""When each word is spoken, read off the cross-attention of a model that writes down speech."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heedmap.analysis.rows import rows_of
from heedmap.analysis.spoken import Spoken, spoken_words
from heedmap.axes import Axis
from heedmap.errors import ArgumentError, DTypeError, MissingExtraError, ShapeError

SMOOTHED_FRAMES = 7
"""The median is taken over so many frames, as Whisper's authors do: 0.14 s."""


@dataclass(frozen=True)
class Word:
    """A word and when it is spoken.

    Attributes:
        text: The word, with the punctuation that belongs to it.
        start_seconds: Where its first spoken token begins.
        end_seconds: Where its last spoken token ends; a pause at the punctuation after it is not
            part of it.
        share: How much of their weight the heads give, while they write the word, to the sound
            between start and end: 0 to 1, the mean over heads and tokens. Low where they look
            elsewhere, as at a word that nobody said. It is not a probability.
        positions: Where its spoken tokens stand in the decoder's sequence.
    """

    text: str
    start_seconds: float
    end_seconds: float
    share: float
    positions: tuple[int, ...]


def word_times(
    weights: Float[Tensor, "heads query key"],
    pieces: Sequence[str],
    positions: Sequence[int],
    frames: Axis,
    *,
    sounding: Bool[Tensor, " frames"] | None = None,
) -> list[Word]:
    """Return the words that pieces of text make, and when each is spoken.

    The row of a token is the one that predicts it: that of the token before. With w[h, i, j] the
    weight that head h gives frame j in row i, each frame's weights are brought to mean 0 and
    deviation 1 over the rows, smoothed by a median over 7 frames, and averaged over heads. Dynamic
    time warping then gives every frame to one token, in their order, so that the sum is largest.
    Tokens become words by `heedmap.analysis.spoken`.

    Args:
        weights: Cross-attention of the heads that follow the sound; queries are positions of the
            decoder, keys are frames. Keys beyond the last of `frames` are not used.
        pieces: The text of each token, without times and control tokens; empty for a token that
            holds only part of a character, which the next one that is not empty completes.
        positions: Where each piece stands in the decoder's sequence, counted from 0, and last
            where the text is over. The row read for a position is the one before it.
        frames: When the frames are, in seconds, without gaps between them.
        sounding: Which frames are not silent. What lies before the first and after the last of
            them belongs to no word, though without this the first word would begin with the first
            frame.

    Returns:
        The words in their order, none overlapping. None at all where there is no text, or no frame
        that sounds.

    Raises:
        ShapeError: for sizes that do not fit each other.
        DTypeError: for weights that are no floating-point numbers.
        ArgumentError: for positions that do not rise or are not rows, or weights that are not
            finite.
        MissingExtraError: if monotonic-alignment-search is not installed.

    Cost: heads × tokens × frames cells, several times over: for 8 heads, 130 tokens and 30 s of
    Whisper 0.1 s and 50 MB.

    Example:
        >>> weights = torch.zeros(1, 4, 20)                # of a sound of 20 frames of 0.1 s
        >>> weights[0, 1, 2:9] = weights[0, 2, 9:15] = weights[0, 3, 15:] = 0.2
        >>> frames = Axis.of_seconds((i / 10, (i + 1) / 10) for i in range(20))
        >>> loud = torch.arange(20) >= 2
        >>> found = word_times(weights, [" Hello", " you"], [2, 3, 4], frames, sounding=loud)
        >>> [(word.text, word.start_seconds, word.end_seconds) for word in found]
        [('Hello', 0.2, 0.9), ('you', 0.9, 1.5)]

    Source: the word times of OpenAI's Whisper (``whisper/timing.py``), where the path may also give
    one frame to several tokens, and punctuation lengthens the word before it. The path is found by
    monotonic alignment search (Kim et al., Glow-TTS, 2020, algorithm 1).
    """
    _check(weights, pieces, positions, frames, sounding)
    words = spoken_words(pieces)
    heard = range(len(frames)) if sounding is None else _from_first_to_last(sounding)
    if not words or not heard:
        return []
    rows = rows_of(weights[:, torch.tensor(positions) - 1][..., : len(frames)])
    if not bool(torch.isfinite(rows).all()):
        raise ArgumentError("weights must be finite; got NaN or infinity.")
    parts = math.ceil(len(positions) / len(heard))
    starts = _first_parts(_evidence(rows[..., heard.start : heard.stop]), parts)
    places = [heard.start + part / parts for part in (*starts, len(heard) * parts)]
    return [_timed(word, places, rows.mean(0), positions, frames) for word in words]


def _check(
    weights: Tensor,
    pieces: Sequence[str],
    positions: Sequence[int],
    frames: Axis,
    sounding: Tensor | None,
) -> None:
    if weights.ndim != 3 or not weights.shape[0]:
        raise ShapeError(f"weights must be [heads, query, key]; got {list(weights.shape)}.")
    if not weights.dtype.is_floating_point:
        raise DTypeError(f"weights must be floating-point numbers; got {weights.dtype}.")
    if len(positions) != len(pieces) + 1:
        raise ShapeError(
            f"positions must be one for each of {len(pieces)} pieces and one for the end; got "
            f"{len(positions)}."
        )
    queries, keys = weights.shape[1:]
    bounds = [0, *positions, queries + 1]
    if any(first >= second for first, second in pairwise(bounds)):
        raise ArgumentError(
            f"positions must rise and lie from 1 to {queries}, the number of rows; got "
            f"{list(positions)}."
        )
    if frames.unit != "second" or not 1 <= len(frames) <= keys:
        raise ShapeError(
            f"frames must be from 1 to {keys} stretches of time, as the weights have keys; got "
            f"{len(frames)}, counted in {frames.unit}s."
        )
    if sounding is not None and tuple(sounding.shape) != (len(frames),):
        raise ShapeError(
            f"sounding must say so for each of {len(frames)} frames; got {list(sounding.shape)}."
        )


def _from_first_to_last(sounding: Bool[Tensor, " frames"]) -> range:
    found = sounding.nonzero().flatten().tolist()
    return range(found[0], found[-1] + 1) if found else range(0)


def _evidence(rows: Float[Tensor, "heads row frame"]) -> Float[Tensor, "row frame"]:
    """Return how much more than the other rows a row looks at a frame."""
    deviation = rows.std(1, keepdim=True, correction=0)
    # A frame that all rows look at alike speaks for none of them.
    standing_out = (rows - rows.mean(1, keepdim=True)) / deviation.clamp_min(1e-12)
    margin = SMOOTHED_FRAMES // 2
    wide = torch.nn.functional.pad(standing_out, (margin, margin), mode="replicate")
    return wide.unfold(-1, SMOOTHED_FRAMES, 1).median(-1).values.mean(0)


def _first_parts(evidence: Float[Tensor, "row frame"], parts: int) -> list[int]:
    """Return where each row begins, each frame being cut into so many parts.

    The library gives each row at least one, which rows outnumbering frames would not get.
    """
    try:
        from monotonic_alignment_search import maximum_path
    except ImportError as error:
        raise MissingExtraError("monotonic-alignment-search", "models") from error
    values = evidence.repeat_interleave(parts, dim=1)[None]
    path = maximum_path(values, torch.ones_like(values))[0]
    return path.argmax(1).tolist()


def _timed(
    word: Spoken,
    places: Sequence[float],
    rows: Float[Tensor, "row frame"],
    positions: Sequence[int],
    frames: Axis,
) -> Word:
    first, last = places[word.tokens[0]], places[word.tokens[-1] + 1]
    held = slice(math.floor(first), math.ceil(last))
    return Word(
        text=word.text,
        start_seconds=_seconds(frames, first),
        end_seconds=_seconds(frames, last),
        share=float(rows[list(word.tokens), held].sum(1).mean()),
        positions=tuple(positions[token] for token in word.tokens),
    )


def _seconds(frames: Axis, place: float) -> float:
    """Return the moment of a place counted in frames."""
    number = min(math.floor(place), len(frames) - 1)
    start, end = frames.spans[number]
    # Whole milliseconds, so that a time reads as what it is.
    return round(start + (place - number) * (end - start), 3)
