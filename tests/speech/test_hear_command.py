"""``heedmap hear``: what it prints where, its status, and what it makes of difficult recordings."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from numpy.typing import NDArray

from heedmap.cli import main
from heedmap.models.packages import PACKAGED, fetch_file
from heedmap.speech import hear
from heedmap.speech.report import report

ROOT = Path(__file__).parents[2]
RATE_HZ = 16_000
FILES = ["speakers.json", "speakers.png", "speakers.rttm", "speakers.vtt"]
Hear = Callable[..., tuple[int, str, str]]
Samples = NDArray[np.float32]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Hear:
    """Return a function from arguments to status, standard output and standard error."""
    del folder

    def call(*arguments: str) -> tuple[int, str, str]:
        handler = signal.getsignal(signal.SIGTERM)
        capsys.readouterr()
        try:
            status = main(["hear", *arguments])
        finally:
            signal.signal(signal.SIGTERM, handler)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


@pytest.fixture(scope="module")
def sample() -> Samples:
    """Return twenty seconds in which two people speak, of the sample of pyannote.audio."""
    samples, rate = soundfile.read(fetch_file(PACKAGED["sample.wav"]), dtype="float32")
    assert rate == RATE_HZ
    return np.asarray(samples, np.float32)[6 * RATE_HZ : 26 * RATE_HZ]


@pytest.fixture(scope="module")
def printed_of_the_sample() -> list[str]:
    """Return the lines that are printed of the whole sample."""
    return report(hear(fetch_file(PACKAGED["sample.wav"]))).splitlines()


@pytest.fixture(scope="module")
def one_voice(sample: Samples) -> Samples:
    """Return three seconds of one of them."""
    return sample[5 * RATE_HZ : 8 * RATE_HZ]


def summary(name: str) -> dict:
    return json.loads(Path("heedmap-out", name, "speakers.json").read_text("utf-8"))


def chords(seconds: int) -> Samples:
    """Return plucked chords: music with nobody in it."""
    times = np.arange(seconds * RATE_HZ) / RATE_HZ
    fading = np.exp(-3 * (2 * times % 1))
    notes = sum(np.sin(2 * np.pi * hertz * times) for hertz in (220.0, 277.2, 329.6, 440.0))
    return (0.15 * fading * notes).astype(np.float32)


@pytest.mark.slow
def test_two_people_are_told_apart(run: Hear, sample: Samples) -> None:
    soundfile.write("two people.wav", sample, RATE_HZ)
    status, out, err = run("two people.wav", "--save", "map", "--words")
    assert status == 0, err
    assert err.splitlines() == [
        "Loading …",
        "Hearing two people.wav …",
        "Writing down 0:00 to 0:20 …",
        "Writing …",
    ]
    assert out.startswith("two people.wav: 0:20.0; 2 speakers, ")
    assert " · looked at 0:" in out
    assert "Chicago" in out
    assert out.splitlines()[-2:] == [
        "speakers.png, speakers.rttm, speakers.vtt and speakers.json are in heedmap-out/two-people",
        "heedmap explore map --media 'two people.wav' opens the map",
    ]
    made = Path("heedmap-out", "two-people")
    assert sorted(path.name for path in made.iterdir()) == FILES
    assert "<v speaker 2>" in (made / "speakers.vtt").read_text()
    assert (made / "speakers.rttm").read_text().startswith("SPEAKER two_people 1 ")
    status, out, _ = run("two people.wav", "--force", "--json", "--speakers", "3")
    assert status == 0
    assert json.loads(out) == summary("two-people")
    assert len(json.loads(out)["speakers"]) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("silence", np.zeros(3 * RATE_HZ, np.float32)),
        ("music", chords(5)),
        ("noise", np.random.default_rng(0).normal(0, 0.1, 3 * RATE_HZ).astype(np.float32)),
    ],
)
def test_nobody_speaks(run: Hear, name: str, samples: Samples) -> None:
    soundfile.write(f"{name}.wav", samples, RATE_HZ)
    status, out, err = run(f"{name}.wav", "--save", "map", "--words")
    assert status == 0, err
    assert f"{name}.wav: 0:0{len(samples) // RATE_HZ}.0; 0 speakers, 0 turns" in out
    assert "note: nobody speaks, as far as could be heard" in out
    assert err.splitlines()[-1] == "There is no map to save in map: nobody speaks."
    assert not Path("map").exists()
    made = summary(name)
    assert (made["turns"], made["words"]) == ([], [])
    heard = max(made["kinds"], key=lambda kind: sum(b - a for a, b in made["kinds"][kind]))
    assert heard == ("music" if name == "music" else "background")


@pytest.mark.slow
def test_one_speaker_for_long_and_for_a_moment(run: Hear, one_voice: Samples) -> None:
    soundfile.write("one.wav", one_voice, RATE_HZ)
    soundfile.write("moment.wav", one_voice[: round(0.3 * RATE_HZ)], RATE_HZ)
    for name, length in (("one", "0:03.0"), ("moment", "0:00.3")):
        status, out, err = run(f"{name}.wav", "--save", f"{name}-map")
        assert status == 0, err
        assert f"{name}.wav: {length}; 1 speaker, 1 turn\n" in out
        assert "speaker 1 · looked at itself (1.00)" in out
    status, out, _ = run("one.wav", "--speakers", "4", "--force")
    assert status == 0
    assert "1 speaker, 1 turn" in out
    assert "note: speakers asked for: 4; told apart: 1" in out


@pytest.mark.slow
def test_telephone_and_six_channels(run: Hear, sample: Samples) -> None:
    soundfile.write("phone.wav", soxr.resample(sample, RATE_HZ, 8000), 8000)
    channels = np.stack([sample * gain for gain in (1, 0.5, 0.2, 0, 0.1, 0.9)], axis=1)
    soundfile.write("six.wav", channels, RATE_HZ)
    for name, note in (("phone", ["resampled from 8000 Hz to 16000 Hz"]), ("six", [])):
        status, out, err = run(f"{name}.wav", "-o", f"heedmap-out/{name}")
        assert status == 0, err
        assert f"{name}.wav: 0:20.0; 2 speakers, " in out
        assert summary(name)["notes"] == note
    status, out, _ = run("six.wav", "--channel", "3", "--force")
    assert status == 0
    assert "note: every sample is 0: the sound is silent" in out


@pytest.mark.slow
def test_channels_that_cancel_and_clipping_are_named(run: Hear, sample: Samples) -> None:
    soundfile.write("antiphase.wav", np.stack([sample, -sample], axis=1), RATE_HZ)
    status, out, err = run("antiphase.wav")
    assert status == 0, err
    assert "note: the mean of its 2 channels is nearly silent though they are not" in out
    status, out, _ = run("antiphase.wav", "--channel", "1", "--force")
    assert status == 0
    assert "antiphase.wav: 0:20.0; 2 speakers, " in out
    soundfile.write("clipped.wav", np.clip(sample * 30, -1, 1), RATE_HZ)
    status, out, err = run("clipped.wav")
    assert status == 0, err
    assert "of its samples are at full scale: it seems to be clipped" in out


@pytest.mark.slow
def test_a_number_of_speakers_is_kept_though_more_speak(run: Hear, sample: Samples) -> None:
    soundfile.write("talk.wav", sample, RATE_HZ)
    for options in (("--speakers", "1"), ("--max-speakers", "1")):
        status, out, err = run("talk.wav", "--force", *options)
        assert status == 0, err
        assert "talk.wav: 0:20.0; 1 speaker, " in out
        assert "voices share a speaker with another" in out
    status, out, _ = run("talk.wav", "--force", "--min-speakers", "3", "--max-speakers", "3")
    assert status == 0
    assert "talk.wav: 0:20.0; 3 speakers, " in out


BAD: dict[str, tuple[list[str], str]] = {
    "nobody": (["talk.wav", "--speakers", "0"], "speakers must be a number of people, 1 or more"),
    "less than nobody": (["talk.wav", "--max-speakers", "-2"], "max_speakers must be a number"),
    "bounds crossed": (
        ["talk.wav", "--min-speakers", "3", "--max-speakers", "2"],
        "max_speakers must be no smaller than min_speakers; got 2 and 3",
    ),
    "exact and bounds": (
        ["talk.wav", "--speakers", "2", "--min-speakers", "1"],
        "speakers must be given without",
    ),
    "no number": (["talk.wav", "--speakers", "two"], "invalid int value"),
    "missing": (["missing.wav"], "input must be a file that exists; got missing.wav"),
    "nothing": ([""], "input must be the file of a recording; got nothing"),
    "empty": (["empty.wav"], "which is empty"),
    "a text": (["words.txt"], "input must be a sound that can be decoded; got words.txt"),
    "NaN": (["nan.wav"], "samples must be finite; got nan.wav"),
    "no samples": (["zero.wav"], "has no samples"),
    "no such channel": (["talk.wav", "--channel", "2"], "channel must be from 0 to 0"),
    "a file for results": (["talk.wav", "-o", "words.txt"], "output must be a folder"),
    "a file for the map": (["talk.wav", "--save", "words.txt"], "folder must be a folder"),
    "one place for both": (
        ["talk.wav", "-o", "here", "--save", "./here"],
        "--save must name a folder in that of the results, or elsewhere; got here for here",
    ),
    "results in the map": (
        ["talk.wav", "-o", "map/results", "--save", "map"],
        "--save must name a folder in that of the results, or elsewhere; got map for map/results",
    ),
    "no projections": (
        ["talk.wav", "--projections", "words.txt"],
        "projections must be a file that heedmap train hear wrote",
    ),
    "unknown option": (["talk.wav", "--nonsense"], "unrecognized arguments: --nonsense"),
    "no input": ([], "RECORDING"),
}


@pytest.fixture
def inputs(folder: Path) -> Iterator[Path]:
    """Make a file of each kind that is named, and see that nothing is added to them."""
    soundfile.write("talk.wav", np.zeros(800, np.float32), RATE_HZ)
    soundfile.write("zero.wav", np.zeros(0, np.float32), RATE_HZ)
    soundfile.write("nan.wav", np.full(800, np.nan, np.float32), RATE_HZ, subtype="FLOAT")
    Path("empty.wav").touch()
    Path("words.txt").write_text("to be or not")
    before = sorted(folder.rglob("*"))
    yield folder
    assert sorted(folder.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.bad_input
@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case: str, run: Hear) -> None:
    arguments, words = BAD[case]
    status, out, err = run(*arguments)
    *progress, last = err.splitlines()
    assert (status, out) == (2, "")
    assert last.startswith("heedmap: ")
    assert words in last
    assert all(line.endswith("…") for line in progress)


@pytest.mark.slow
@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(
    ("package", "module"),
    [("webvtt-py", "webvtt"), ("scipy", "scipy.optimize"), ("transformers", "transformers")],
)
def test_what_is_missing_is_said_before_anything_is_heard(
    package: str, module: str, run: Hear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    status, out, err = run("talk.wav", "--words")
    assert (status, out) == (1, "")
    assert err.splitlines()[-1].startswith(f"heedmap: {package} must be installed for this")
    assert "Hearing" not in err


@pytest.mark.slow
def test_a_second_time_needs_force(run: Hear) -> None:
    soundfile.write("talk.wav", np.zeros(800, np.float32), RATE_HZ)
    assert run("talk.wav")[0] == 0
    status, out, err = run("talk.wav")
    assert (status, out) == (2, "")
    assert "which holds speakers.json. Add --force" in err
    assert run("talk.wav", "--force")[0] == 0


@pytest.mark.slow
def test_standard_input_only_when_written(folder: Path, one_voice: Samples) -> None:
    soundfile.write("one.wav", one_voice, RATE_HZ)
    given = Path("one.wav").read_bytes()
    command = [sys.executable, "-m", "heedmap.cli", "hear", "-"]
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"standard input: 0:03.0; 1 speaker, 1 turn\n")
    assert sorted(path.name for path in (folder / "heedmap-out").iterdir()) == ["standard-input"]
    closed = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m heedmap.cli hear - --force <&-"],
        capture_output=True,
        check=False,
    )
    assert (closed.returncode, closed.stdout) == (2, b"")
    told = closed.stderr.decode()
    assert "input must be a file where standard input is closed; got -." in told
    without = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m heedmap.cli hear one.wav >&-"],
        capture_output=True,
        check=False,
    )
    assert without.returncode == 1
    assert b"standard output must be open; got a closed one." in without.stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_nothing(folder: Path, sample: Samples, how: signal.Signals) -> None:
    soundfile.write("long.flac", np.tile(sample, 30), RATE_HZ)
    command = [sys.executable, "-m", "heedmap.cli", "hear", "long.flac", "--save", "map"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        while not running.stderr.readline().startswith(b"Hearing"):
            assert running.poll() is None
        time.sleep(1.0)
        os.kill(running.pid, how)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, b"")
    assert err.decode().splitlines()[-1] == "heedmap: interrupted."
    assert [path.name for path in folder.iterdir()] == ["long.flac"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_readmes_show_what_is_printed(name: str, printed_of_the_sample: list[str]) -> None:
    text = (ROOT / name).read_text("utf-8")
    shown = [line.removesuffix(" …") for line in re.findall(r"^    (\d  0:.*)$", text, re.M)]
    assert len(shown) == 2
    for line in shown:
        assert any(found.startswith(line) for found in printed_of_the_sample), line
