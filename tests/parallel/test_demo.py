"""The demo, as it is run: on two processes that torchrun starts."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from .processes import ROOT

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TORCHRUN, "-m", "heedmap.parallel.demo", *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    place = np.arange(16_000 * 12) / 16_000
    sound = 0.3 * np.sin(2 * np.pi * 200 * place * (1 + (place % 3 > 1.5)))
    sound += np.random.default_rng(0).normal(0, 0.02, len(place))
    soundfile.write(tmp_path / "sound.wav", sound, 16_000)
    done = run(str(tmp_path / "sound.wav"), "--seconds", "10")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "sound.wav: 500 positions of 0.02 s, 38 features"
    for line, name in zip(
        lines[1:6], ("output", "received", "entropy", "top 3", "64 × 64"), strict=True
    ):
        assert line.startswith(name)
        assert "largest difference" in line
    assert lines[-4].startswith("rank 0 of 2 ")
    assert lines[-3].startswith("rank 1 of 2 ")
    assert lines[-2].startswith("one process ")
    assert lines[-1] == "the same"


@pytest.mark.slow
def test_a_recording_that_is_not_there(tmp_path: Path) -> None:
    done = run(str(tmp_path / "nothing.wav"))
    assert done.returncode == 1, "torchrun's own status of a failure"
    assert "nothing.wav" in done.stderr
    assert done.stdout == ""
