"""A film whose shots return, and what its frames look at."""

from pathlib import Path

import pytest
import torch

from heedmap.errors import FetchError
from heedmap.lesson import cut_film
from heedmap.lesson.cut_film import PIECES, returning_film, write_film
from heedmap.lesson.timelines import cut_timeline, film
from heedmap.media import Film
from tests.lesson.small_film import ORDER, small_film


def test_a_shot_that_returns_is_looked_at(tmp_path: Path) -> None:
    made = cut_timeline(small_film(tmp_path / "shots.mp4"), ORDER)
    assert [part.name for part in made.parts] == list("ABACBA")
    assert [part.start_seconds for part in made.parts] == [0.0, 0.4, 0.8, 1.2, 1.6, 2.0]
    assert made.first == 55
    shares = made.row(made.first)["far"]
    (weight, time), (other, _) = shares["A"], shares["B"]
    assert weight > 0.95 > 0.7 > time
    assert weight > 20 * other


def test_the_film_is_cut_once_and_holds_the_frames_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole.mp4"
    write_film(whole, [torch.full((32, 32, 3), 3 * number).byte() for number in range(60)])
    monkeypatch.setenv("HEEDMAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cut_film, "fetch_file", lambda *_: whole)
    monkeypatch.setattr(
        cut_film, "PIECES", (("A", range(2, 5)), ("B", range(50, 52)), ("A", range(5, 8)))
    )
    told: list[str] = []
    path = returning_film(told.append)
    assert told == ["Cutting whole.mp4 …"]
    greys = [float(frame.picture.float().mean()) / 3 for frame in Film.of_file(path).frames()]
    assert greys == pytest.approx([2, 3, 4, 50, 51, 5, 6, 7], abs=0.7)
    assert returning_film(told.append) == path
    assert len(told) == 1
    assert list(path.parent.iterdir()) == [path]


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = small_film(tmp_path / "whole.mp4")
    monkeypatch.setattr(cut_film, "fetch_file", lambda *_: whole)
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("HEEDMAP_CACHE", str(tmp_path / "taken"))
    with pytest.raises(FetchError, match=r"the cut film must be kept in .*lesson; got “Not a"):
        returning_film()


@pytest.mark.slow
def test_shots_of_the_packaged_film_look_at_themselves_again() -> None:
    made = film()
    assert [part.name for part in made.parts] == [name for name, _ in PIECES]
    assert len(made.scene.axes[0]) == sum(len(frames) for _, frames in PIECES)
    shares = made.row(made.first)["far"]
    assert shares["A"][0] > 0.5
    # The last shot was never there before: it looks at what merely looks alike.
    last = made.row(len(made.scene.axes[0]) - 3)["far"]
    assert max(last, key=lambda name: last[name][0]) == "A"
