import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from heedmap.errors import ArgumentError, InputError
from heedmap.speech import examples, training
from heedmap.speech.examples import Example, example_of, joined, make_example, others
from heedmap.speech.linking import TEMPERATURE
from heedmap.speech.projections import Projections
from heedmap.speech.training import Trained, loss_of, split_voices, train_hear
from heedmap.speech.turns import Turn

from .made_talk import made_talk, silent_talk, taking_turns

VOICES = {f"voice {number}": [Path(f"{number}.wav")] for number in range(12)}
STEPS = 41


def made_example(pools: list[dict[str, list[Path]]], seed: str, progress: object = None) -> Example:
    """Return voices of which half of the features are the room's, which says nothing of them."""
    del progress
    generator = torch.Generator().manual_seed(int.from_bytes(seed.encode()[-6:]))
    (voices,) = pools
    names = sorted(voices)[:3] if int(seed[-1]) % 2 else sorted(voices)[-3:]
    whose = torch.arange(24) % 3
    centres = torch.stack(
        [torch.randn(8, generator=torch.Generator().manual_seed(hash_of(name))) for name in names]
    )
    rooms = torch.randn(24, 8, generator=generator) * 1.5
    own = centres[whose] + 0.3 * torch.randn(24, 8, generator=generator)
    return Example(
        normalize(torch.cat([own, rooms], 1), dim=1),
        torch.rand(24, generator=generator) * 3 + 0.1,
        torch.arange(24) * 5 // 3,
        torch.nn.functional.one_hot(whose).float(),
        tuple(names),
    )


def hash_of(name: str) -> int:
    return sum(name.encode())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "make_example", made_example)


def train(folder: Path, **options: object) -> Trained:
    return train_hear(folder, [VOICES], steps=STEPS, conversations=6, **options)


def held(folder: Path) -> tuple[bytes, str]:
    return (folder / "projections.pt").read_bytes(), (folder / "log.jsonl").read_text()


@pytest.mark.usefixtures("made")
def test_what_is_learned_serves_voices_that_were_never_heard(tmp_path: Path) -> None:
    told: list[str] = []
    trained = train_hear(
        tmp_path / "new", [VOICES], steps=110, conversations=6, seed=3, progress=told.append
    )
    assert trained.learned_loss < 0.8 * trained.identity_loss
    assert trained.steps > 0
    assert len(trained.held_out) == 4
    lines = [json.loads(line) for line in (tmp_path / "new/log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(0, 110, 20), 110]
    assert lines[0]["learning_loss"] is None
    assert min(line["held_out_loss"] for line in lines) == trained.learned_loss
    assert any("Step 100: held-out loss" in line for line in told)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "checkpoint.pt",
        "conversations",
        "log.jsonl",
        "projections.pt",
        "recipe.json",
    ]
    made = Projections.load(trained.path)
    assert made.features == 16
    assert float(made.up.abs().max()) > 0


@pytest.mark.usefixtures("made")
def test_the_same_seed_gives_the_same_bytes_and_another_others(tmp_path: Path) -> None:
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        train(tmp_path / name, seed=seed)
    assert held(tmp_path / "first") == held(tmp_path / "again")
    assert held(tmp_path / "first") != held(tmp_path / "other")


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    "moment", ["conversation learning-004", "held-out-001", "Step 0", "Step 40"]
)
def test_interrupted_and_resumed_it_ends_as_it_would_have(tmp_path: Path, moment: str) -> None:
    train(tmp_path / "whole")

    def interrupt(line: str) -> None:
        if moment in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "parts", progress=interrupt)
    assert not (tmp_path / "parts/projections.pt").exists()
    told: list[str] = []
    train(tmp_path / "parts", resume=True, progress=told.append)
    assert held(tmp_path / "whole") == held(tmp_path / "parts")
    assert ("Goes on after step 40 …" in told) == (moment == "Step 40")


@pytest.mark.usefixtures("made")
def test_resumed_twice_and_to_more_steps(tmp_path: Path) -> None:
    train(tmp_path / "whole")
    train(tmp_path / "parts")
    # As a kill leaves it.
    (tmp_path / "parts/projections.pt").unlink()
    (tmp_path / "parts/checkpoint.pt").unlink()
    (tmp_path / "parts/conversations/.heedmap-half").write_text("half")
    for steps in (20, 40, STEPS, STEPS):
        train_hear(tmp_path / "parts", [VOICES], steps=steps, conversations=6, resume=True)
    assert held(tmp_path / "whole") == held(tmp_path / "parts")
    assert not list((tmp_path / "parts/conversations").glob(".*"))


@pytest.mark.usefixtures("made")
def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            train(tmp_path / str(threads))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert held(tmp_path / "1") == held(tmp_path / "2")


KILLED = """
import os, signal, sys
from pathlib import Path
from heedmap.speech import examples, training
from tests.speech.test_training import made_example, train

def kill(line):
    if "Step 20" in line:
        os.kill(os.getpid(), signal.SIGKILL)

training.make_example = made_example
train(Path(sys.argv[1]), progress=kill)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_killed_and_resumed_it_ends_as_it_would_have(tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "parts")],
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    train(tmp_path / "whole")
    train(tmp_path / "parts", resume=True)
    assert held(tmp_path / "whole") == held(tmp_path / "parts")


@pytest.mark.usefixtures("made")
def test_where_nothing_helps_the_identity_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "LEARNING_RATE", 0.0)
    trained = train(tmp_path / "still")
    assert trained.steps == 0
    assert trained.learned_loss == trained.identity_loss
    assert torch.equal(Projections.load(trained.path)(torch.eye(16)), torch.eye(16))


def test_voices_are_held_out_whole() -> None:
    (learning,), (held_out,) = split_voices([VOICES], seed=5)
    assert len(held_out) == 4
    assert set(learning) | set(held_out) == set(VOICES)
    assert not set(learning) & set(held_out)
    assert split_voices([VOICES], seed=5) == ([learning], [held_out])
    assert split_voices([VOICES], seed=6) != ([learning], [held_out])


def test_truth_is_how_much_of_a_voice_is_whose() -> None:
    talk = made_talk(taking_turns(3, 30.0))
    example = example_of(talk.activity, talk.voices, talk.turns)
    assert example.speakers == ("speaker 1", "speaker 2", "speaker 3")
    assert torch.equal(example.truth.argmax(1), talk.speaker)
    assert float(example.truth.amax(1).min()) > 0.95
    nobody = example_of(talk.activity, talk.voices, [Turn(29.9, 29.95, "a")])
    assert float(nobody.truth.amin()) == 0.0


def test_conversations_are_joined_by_name() -> None:
    first = made_example([VOICES], "a 0")
    second = made_example([VOICES], "a 1")
    both = joined([first, second, first])
    assert both.speakers == tuple(sorted({*first.speakers, *second.speakers}))
    size = len(first.seconds)
    for example, rows in ((first, slice(0, size)), (second, slice(size, 2 * size))):
        names = [both.speakers[column] for column in both.truth[rows].argmax(1)]
        assert names == [example.speakers[column] for column in example.truth.argmax(1)]
    assert bool(others(both)[:size, size:].all())


def test_the_loss_is_that_of_the_formula() -> None:
    example = made_example([VOICES], "a 3")
    units, truth = example.embeddings, example.truth.clone()
    # Of two people: it votes, but is not asked.
    truth[5] = torch.tensor([0.5, 0.5, 0.0])
    far = (example.window[:, None] - example.window).abs() >= 4
    scores = units @ units.T / TEMPERATURE + example.seconds.log()
    votes = scores.masked_fill(~far, -torch.inf).softmax(1) @ truth
    asked = example.seconds > 1
    asked[5] = False
    own = (votes * truth).sum(1)[asked].clamp(min=1e-6)
    found = loss_of(Projections(16), replace(example, truth=truth))
    torch.testing.assert_close(found.total.detach(), -own.log().mean())
    assert found.asked == int(asked.sum())
    right = votes[asked].argmax(1) == truth[asked].argmax(1)
    assert found.right == pytest.approx(float(right.float().mean()))


def test_nobody_to_ask() -> None:
    example = made_example([VOICES], "a 3")
    found = loss_of(Projections(16), replace(example, seconds=example.seconds / 10))
    assert (float(found.total.detach()), found.right, found.asked) == (0.0, 0.0, 0.0)


def test_voices_that_are_not_heard_as_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = silent_talk()
    monkeypatch.setattr(examples, "make_voices", lambda *_, **__: (silent.activity, silent.voices))
    hum = torch.sin(torch.arange(40_000) / 20)
    with pytest.raises(ArgumentError, match="voices must be heard as speech; got none in 5"):
        make_example([{name: [hum] for name in "abcdef"}], "0")


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 0}, "steps must be 1 or more for a training; got 0"),
        ({"conversations": 0}, "conversations must be 1 or more for a training; got 0"),
        (
            {"pools": [VOICES, dict(list(VOICES.items())[:4])]},
            "voices must be five or more, so that some can be held out; got 4",
        ),
    ],
)
def test_what_makes_no_sense(tmp_path: Path, given: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        train_hear(tmp_path, **({"pools": [VOICES]} | given))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("made")
def test_folders_that_hold_something_else(tmp_path: Path) -> None:
    train(tmp_path / "done")
    with pytest.raises(ArgumentError, match="output must be an empty folder for a new training"):
        train(tmp_path / "done")
    with pytest.raises(ArgumentError, match="output must hold a training with the same seed"):
        train(tmp_path / "done", seed=7, resume=True)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="output must be where a training can be kept; got"):
        train(file / "inner")
    (tmp_path / "done/checkpoint.pt").write_text("cut")
    with pytest.raises(InputError, match="must be a file that heedmap train hear wrote, of this"):
        train(tmp_path / "done", resume=True)
    torch.save({"form": "another"}, tmp_path / "done/conversations/learning-000.pt")
    with pytest.raises(InputError, match="Delete it, and what it held is made again"):
        train(tmp_path / "done", resume=True)


def test_voices_of_which_no_conversation_can_be_made() -> None:
    clips = {"a": [torch.zeros(16_000)], "b": [torch.zeros(16_000)]}
    with pytest.raises(ArgumentError, match="voices must have clips of"):
        make_example([clips], "0")
