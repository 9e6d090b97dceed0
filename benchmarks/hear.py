"""How long `hear` takes and how much memory: `python -m benchmarks.hear [--minutes 1 10 60]`.

The recording is a conversation of four packaged voices with music and noise, made by the simulation
ten minutes at a time, each part at another level, as FLAC of 44.1 kHz stereo. Each length is heard
in a process of its own, whose largest memory is told by the system; models are in the cache before.
The shares are of the length of the recording: of time on the clock, and of the time of all
processors together, which tells more where the machine is busy.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RATE_HZ = 44_100
PART_SECONDS = 600
VOICES = ("Czech small fish", "Czech big fish", "Dutch small fish", "Dutch big fish")


def record(path: Path, minutes: float) -> None:
    """Write a recording of so many minutes."""
    import numpy
    import soundfile
    import soxr

    from heedmap.speech.material import packaged_music, packaged_voices
    from heedmap.speech.simulation import simulate

    voices, music = packaged_voices(VOICES, print), packaged_music(print)
    drawn = numpy.random.default_rng(0)
    with soundfile.SoundFile(path, "w", RATE_HZ, 2, subtype="PCM_16") as file:
        left, seed = round(60 * minutes * RATE_HZ), 1
        while left > 0:
            made = simulate(
                voices,
                seconds=min(PART_SECONDS, 60 * minutes),
                overlap_share=0.1,
                seed=seed,
                music=music,
                noise_snr_db=25,
            )
            part = soxr.resample(made.samples.numpy(), made.sample_rate_hz, RATE_HZ) / 2
            level = 10 ** (drawn.uniform(-6, 0) / 20)
            for block in numpy.array_split(part[:left], 60):
                noise = drawn.normal(0, 1e-3, (len(block), 2))
                file.write(level * block[:, None] + noise)
            left, seed = left - len(part), seed + 1


def heard(path: Path) -> dict[str, float]:
    """Return what hearing a recording costs in this process, and what was found."""
    from heedmap.speech.hearing import hear

    began, began_processor = time.perf_counter(), time.process_time()
    found = hear(path)
    return {
        "recording_seconds": found.duration_seconds,
        "clock_share": (time.perf_counter() - began) / found.duration_seconds,
        "processor_share": (time.process_time() - began_processor) / found.duration_seconds,
        # Linux counts kibibytes.
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "speakers": len(found.speakers),
        "turns": len(found.turns),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, nargs="+", default=[1, 10, 60])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(heard(options.one)))
        return
    print(f"{options.threads} threads\n")
    print("| minutes | of its length | of processors' time | peak memory, MB | speakers | turns |")
    print("|---:|---:|---:|---:|---:|---:|", flush=True)
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "recording.flac")
        for minutes in options.minutes:
            record(path, minutes)
            command = [sys.executable, "-m", "benchmarks.hear", "--one", str(path)]
            done = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, check=True, text=True
            )
            cost = json.loads(done.stdout.splitlines()[-1])
            print(
                f"| {minutes:g} | {cost['clock_share']:.3f} | {cost['processor_share']:.3f} "
                f"| {cost['peak_megabytes']:.0f} | {cost['speakers']} | {cost['turns']} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
