"""The example of frame labels: it runs, learns and draws."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "frame_labels.py"


@pytest.mark.slow
def test_attention_learns_labels_that_a_frame_alone_does_not_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    scores = main(tmp_path / "heads.png", minutes=9, steps=200)
    assert scores["self-attention"]["right"] > scores["each frame alone"]["right"] + 0.05
    assert scores["self-attention"]["music"] > scores["each frame alone"]["music"] + 0.05
    assert (tmp_path / "heads.png").stat().st_size > 10_000
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == f"what the heads look at: {tmp_path / 'heads.png'}"
    assert "█" * 40 in told.err


@pytest.mark.bad_input
def test_arguments_are_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["frame_labels.py", "--steps", "200"])
    with pytest.raises(SystemExit, match=r"python examples/frame_labels\.py\n"):
        runpy.run_path(str(EXAMPLE), run_name="__main__")
