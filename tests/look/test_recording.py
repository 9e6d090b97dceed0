"""``heedmap look --save``: what the pictures were drawn from, to be opened again."""

from pathlib import Path

import pytest
import torch

import heedmap
from heedmap import Axis
from heedmap.cli import main
from heedmap.errors import ArgumentError, InputError
from heedmap.look import look
from heedmap.media import Sound


def test_all_layers_and_the_axis(tiny_bert: str, output: Path, tmp_path: Path) -> None:
    words = "to be or not to be"
    seen = look(words, model=tiny_bert, output=output, save=tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert opened.names == [layer.name for layer in seen.layers]
    assert opened.axis == seen.axis
    for mine, layer in zip(opened, seen.layers, strict=True):
        assert torch.equal(mine[0].to_dense(), layer.weights.to_dense())
    assert opened.check().ok
    assert seen.recording == tmp_path / "seen"
    assert "summary.json" in seen.files


def test_without_a_model(tmp_path: Path) -> None:
    waves = torch.linspace(0, 4000, 16_000).sin()
    look(Sound(waves, 16_000, "tone"), model="none", save=tmp_path / "seen")
    opened = heedmap.open(tmp_path / "seen")
    assert opened.model == "none"
    assert isinstance(opened.axis, Axis)
    assert opened.axis.kind == "audio"
    assert opened[0].shape == (1, 1, len(opened.axis), len(opened.axis))


def test_saved_within_the_output(tmp_path: Path, output: Path) -> None:
    look("to be", model="none", output=output, save=output / "seen")
    assert heedmap.open(output / "seen").axis is not None
    look("to be or", model="none", output=output, save=output / "seen", force=True)
    assert len(heedmap.open(output / "seen").axis or ()) == 8
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.bad_input
def test_what_is_there_already_is_refused_before_anything_is_done(
    output: Path, tmp_path: Path
) -> None:
    told: list[str] = []
    (tmp_path / "seen").mkdir()
    with pytest.raises(InputError, match="must not exist yet"):
        look("to be", model="none", output=output, save=tmp_path / "seen", progress=told.append)
    with pytest.raises(ArgumentError, match="save must be another folder than output"):
        look("to be", model="none", output=output, save=output, progress=told.append)
    assert told == []
    assert not output.exists()


@pytest.mark.bad_input
def test_what_cannot_be_saved_leaves_nothing(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("heedmap.recording.files.write_tensors", stop)
    with pytest.raises(InputError, match="No space left on device"):
        look("to be", model="none", output=output, save=tmp_path / "seen")
    assert list(tmp_path.iterdir()) == []


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["look", "to be", "--model", "none", "--save", "seen"]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.out.endswith("heedmap.open opens the recording in seen\n")
    assert "Saving …" in printed.err.splitlines()
    assert heedmap.open("seen").names == ["plain features"]
    assert main([*arguments, "-o", "other"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("heedmap: folder must not exist yet; got seen.")
    assert "--force" in last
    assert main([*arguments, "--force"]) == 0


@pytest.mark.bad_input
def test_not_with_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", "to be", "--words", "--save", str(tmp_path / "seen")]) == 2
    assert "--save must not be given with --words" in capsys.readouterr().err
