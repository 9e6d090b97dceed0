"""What is said in a recording of any length, piece by piece, each cut where nobody speaks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from heedmap.analysis.word_times import Word
from heedmap.look.transcript import transcribe
from heedmap.media import Sound
from heedmap.models.packages import Progress
from heedmap.plot.ticks import CLOCK_FROM_SECONDS, clock
from heedmap.speech.turns import Turn, spoken_spans

SAMPLE_RATE_HZ = 16_000
PIECE_SECONDS = 300.0
"""How much of the sound is held at once, about: 20 MB."""

SEARCHED_SECONDS = 60.0
"""In the last so many seconds of a piece the longest pause is looked for."""


def words_of(
    blocks: Iterable[Float[Tensor, "_"]],
    turns: Sequence[Turn],
    *,
    name: str,
    peak: float = 1.0,
    progress: Progress = lambda _: None,
) -> list[Word]:
    """Return the words that are said, in their order, with times in the whole recording.

    Args:
        blocks: The sound at 16 kHz, piece by piece.
        turns: Who speaks when: pieces without a turn are passed over.
        name: What the sound is called.
        peak: The largest absolute sample of the whole sound, by which it is divided above 1.
        progress: Called with a line of text before something slow begins.

    Raises:
        FetchError, ModelError: if the model cannot be had.
        MissingExtraError: if an optional package is not installed.

    Cost: Whisper tiny.en's decoding; memory for about five minutes of sound beside the model.
    """
    spans = spoken_spans(turns)
    words: list[Word] = []
    for start_seconds, samples in _pieces(blocks, spans):
        end_seconds = start_seconds + len(samples) / SAMPLE_RATE_HZ
        if not any(start < end_seconds and end > start_seconds for start, end in spans):
            continue
        longest = max(end_seconds, CLOCK_FROM_SECONDS)
        span = f"{clock(start_seconds, longest)} to {clock(end_seconds, longest)}"
        progress(f"Writing down {span} …")
        sound = Sound((samples / max(peak, 1.0)).clamp(-1, 1), SAMPLE_RATE_HZ, name)
        words += [_later(word, start_seconds) for word in transcribe(sound).words]
    return words


def _pieces(
    blocks: Iterable[Float[Tensor, "_"]], spans: Sequence[tuple[float, float]]
) -> Iterator[tuple[float, Float[Tensor, "_"]]]:
    """Yield pieces of about five minutes, and where each begins."""
    held: list[Tensor] = []
    start = samples = 0
    for block in blocks:
        held.append(block)
        samples += len(block)
        while samples > PIECE_SECONDS * SAMPLE_RATE_HZ:
            whole = torch.cat(held)
            begin_seconds = start / SAMPLE_RATE_HZ
            end_seconds = begin_seconds + PIECE_SECONDS
            pause = _pause(spans, end_seconds - SEARCHED_SECONDS, end_seconds)
            cut = round(pause * SAMPLE_RATE_HZ) - start
            yield begin_seconds, whole[:cut]
            held, start, samples = [whole[cut:]], start + cut, samples - cut
    if samples:
        yield start / SAMPLE_RATE_HZ, torch.cat(held)


def _pause(spans: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """Return the middle of the longest pause between two moments; the later one if there is none.

    >>> _pause([(0.0, 3.0), (4.0, 5.0), (5.5, 99.0)], 2.0, 10.0)
    3.5
    """
    near = [span for span in spans if span[1] > start and span[0] < end]
    edges = [start, *(edge for span in near for edge in span), end]
    pauses = zip(edges[::2], edges[1::2], strict=True)
    length, middle = max((after - before, (before + after) / 2) for before, after in pauses)
    return middle if length > 0 else end


def _later(word: Word, seconds: float) -> Word:
    return replace(
        word, start_seconds=word.start_seconds + seconds, end_seconds=word.end_seconds + seconds
    )
