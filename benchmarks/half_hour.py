"""Half an hour of real speech, 90,000 positions: `python -m benchmarks.half_hour FOLDER [-o WAV]`.

FOLDER holds recordings of several voices, a folder of sounds for each; Debian's packages
asterisk-core-sounds-{en,es,fr,it}-wav are such. Stretches of half a minute of one voice follow one
another in turn. Written is the joined recording and, beside it, a recording of the attention of
features every 20 ms, which `heedmap explore NAME.attention --media NAME.wav` shows.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import soundfile
import torch

from heedmap import AttentionMap
from heedmap.layers import Layer
from heedmap.media import Sound
from heedmap.seen import Seen

SECONDS = 1800
TURN_SECONDS = 30
RATE_HZ = 16_000
HOP_SECONDS = 0.02


def turns(folder: Path) -> Iterator[tuple[str, numpy.ndarray]]:
    """Yield half a minute of each voice in turn, until a voice has no more."""
    voices = {
        voice: iter(sorted(voice.rglob("*.wav")))
        for voice in sorted({file.parent for file in folder.rglob("*.wav")})
        if sum(file.stat().st_size for file in voice.rglob("*.wav")) > 8e6
    }
    while True:
        for voice, files in voices.items():
            pieces: list[numpy.ndarray] = []
            while sum(map(len, pieces)) < TURN_SECONDS * RATE_HZ:
                sound = Sound.of_file(next(files), sample_rate_hz=RATE_HZ)
                pieces += [sound.samples.numpy(), numpy.zeros(RATE_HZ // 4, numpy.float32)]
            yield voice.name, numpy.concatenate(pieces)[: TURN_SECONDS * RATE_HZ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("half-hour.wav"))
    options = parser.parse_args()
    joined, names = [], []
    for name, samples in turns(options.folder):
        joined.append(samples)
        names.append(name)
        if len(joined) * TURN_SECONDS >= SECONDS:
            break
    samples = numpy.concatenate(joined)
    soundfile.write(options.output, samples, RATE_HZ)
    print(f"{len(samples) / RATE_HZ:.0f} s; voices in turn: {', '.join(dict.fromkeys(names))}")
    sound = Sound(torch.from_numpy(samples), RATE_HZ, options.output.name)
    began = time.perf_counter()
    sequence = sound.sequence(hop_seconds=HOP_SECONDS)
    print(f"{len(sequence.axis)} positions, {time.perf_counter() - began:.1f} s")
    values = sequence.values[None, None]
    weights = AttentionMap.from_factors(values, values, scale=1 / sound.temperature)
    layer = Layer("plain features", "self", 0, 1, weights, door="features")
    folder = options.output.with_suffix(".attention")
    Seen(lambda: (layer,), model="none").save(folder, axis=sequence.axis, force=True)
    print(f"saved, {time.perf_counter() - began:.1f} s: {folder}")


if __name__ == "__main__":
    main()
