"""Where the sentences of the sample recording begin: ours, by the slow path, in its transcript.

    python benchmarks/words.py

The slow path is the same model with its eager attention, run once more over the same tokens with
``output_attentions=True``, which stores the weights of all heads of all layers. The times of the
transcript are those of the file that comes with the recording.
"""

import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from heedmap import AttentionMap
from heedmap.analysis import Word
from heedmap.look import decoding, transcribe, transcript
from heedmap.look.decoding import Head, Heard
from heedmap.models.loaded import AudioModel, Encoded
from heedmap.models.packages import PACKAGED, fetch_file

Hear = Callable[[AudioModel, Encoded, tuple[Head, ...], str | None], Heard]


@dataclass(frozen=True)
class Sentence:
    start_seconds: float
    words: tuple[str, ...]


def sentences_of_transcript() -> list[Sentence]:
    """Return the sentences of the recording, lower case, without punctuation."""
    lines = fetch_file(PACKAGED["sample.stm"]).read_text(encoding="utf-8").splitlines()
    parts = [line.split(maxsplit=5) for line in lines if line.strip()]
    return [Sentence(float(part[3]), plain(part[5].split())) for part in parts]


def plain(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(re.sub(r"[^\w']", "", word.lower()) for word in words)


def starts_found(words: Sequence[Word], sentence: Sentence) -> list[float]:
    """Return where the first three words of a sentence begin in what was recognised."""
    said, wanted = plain([word.text for word in words]), sentence.words[:3]
    return [words[i].start_seconds for i in range(len(said)) if said[i : i + len(wanted)] == wanted]


def hear_slowly(
    model: AudioModel, encoded: Encoded, heads: tuple[Head, ...], language: str | None = None
) -> Heard:
    """Return the tokens that the fast path chose with the weights that the slow path stores."""
    heard = decoding.hear(model, encoded, heads, language)
    whisper: Any = model.model
    whisper.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            outputs = whisper(
                encoder_outputs=model.run(encoded),
                decoder_input_ids=torch.tensor([heard.tokens[:-1]]),
                output_attentions=True,
            )
    finally:
        whisper.set_attn_implementation("sdpa")
    weights = [outputs.cross_attentions[layer][0, head] for layer, head in heads]
    return Heard(heard.tokens, AttentionMap.from_weights(torch.stack(weights)))


def words_by(hear: Hear) -> tuple[Word, ...]:
    """Return the words of the recording by one way of getting at the weights."""
    usual = transcript.hear
    transcript.hear = hear
    try:
        return transcribe(fetch_file(PACKAGED["sample.wav"])).words
    finally:
        transcript.hear = usual


def main() -> None:
    torch.set_num_threads(1)
    begun = time.perf_counter()
    fast = words_by(decoding.hear)
    seconds = time.perf_counter() - begun
    slow = words_by(hear_slowly)
    print("| sentence of which three words were recognised | ours | slow | transcript | error |")
    print("|---|---:|---:|---:|---:|")
    errors = []
    for sentence in sentences_of_transcript():
        ours, theirs = starts_found(fast, sentence), starts_found(slow, sentence)
        # Not recognised, or found twice.
        if len(ours) != 1 or len(theirs) != 1:
            continue
        errors.append(ours[0] - sentence.start_seconds)
        print(
            f"| {' '.join(sentence.words[:6])} | {ours[0]:.2f} | {theirs[0]:.2f} "
            f"| {sentence.start_seconds:.2f} | {errors[-1]:+.2f} |"
        )
    mean = statistics.mean(map(abs, errors))
    same = [(w.text, w.start_seconds, w.end_seconds) for w in fast] == [
        (w.text, w.start_seconds, w.end_seconds) for w in slow
    ]
    print(f"\nmean error {mean:.2f} s, largest {max(map(abs, errors)):.2f} s")
    print(f"{len(fast)} words; the two lists are {'the same' if same else 'NOT the same'}")
    print(f"{seconds:.1f} s for 30 s of sound, loading the model included, on one thread")


if __name__ == "__main__":
    main()
