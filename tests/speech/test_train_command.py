import json
from pathlib import Path

import pytest

from heedmap.cli import main
from heedmap.speech import examples, training
from heedmap.speech.material import TELEPHONE_VOICES, packaged_voices
from heedmap.speech.projections import Projections
from heedmap.speech.training import train_hear

from .test_training import VOICES, made_example


@pytest.fixture
def folder_of_voices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(training, "make_example", made_example)
    for name in VOICES:
        (tmp_path / "voices" / name).mkdir(parents=True)
        (tmp_path / "voices" / name / "clip.wav").write_bytes(b"")
    return tmp_path / "voices"


def test_train_hear(
    folder_of_voices: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "trained"
    arguments = ["train", "hear", "-o", str(output), "--voices", str(folder_of_voices)]
    assert main([*arguments, "--steps", "20", "--seed", "3"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[0].startswith("voices held out: voice ")
    assert f"{output / 'projections.pt'} holds what was best" in told.out
    assert "Step 20: held-out loss" in told.err
    assert json.loads((output / "recipe.json").read_text())["seed"] == 3
    assert main([*arguments, "--steps", "20", "--seed", "3"]) == 2
    assert "Go on with what it holds by resume" in capsys.readouterr().err
    assert main([*arguments, "--steps", "40", "--seed", "3", "--resume"]) == 0
    assert "Goes on after step 20" in capsys.readouterr().err


def test_where_nothing_was_learned_it_says_so(
    folder_of_voices: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "LEARNING_RATE", 0.0)
    arguments = ["train", "hear", "-o", str(tmp_path / "t"), "--voices", str(folder_of_voices)]
    assert main([*arguments, "--steps", "1"]) == 0
    assert "nothing that was learned was better: these projections" in capsys.readouterr().out


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "hear"]) == 2
    assert "--output" in capsys.readouterr().err
    assert main(["train"]) == 2
    assert "WHAT" in capsys.readouterr().err


@pytest.mark.slow
def test_from_packaged_voices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "CONVERSATION_SECONDS", 25.0)
    pools = [packaged_voices(TELEPHONE_VOICES)]
    trained = train_hear(tmp_path / "trained", pools, steps=2, conversations=2)
    assert set(trained.held_out) < set(TELEPHONE_VOICES)
    assert trained.identity_loss > 0
    assert Projections.load(trained.path).features == 192
    kept = sorted(path.name for path in (tmp_path / "trained/conversations").iterdir())
    assert kept == ["held-out-000.pt", "learning-000.pt", "learning-001.pt"]
