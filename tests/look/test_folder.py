"""The output folder: everything or nothing."""

from pathlib import Path

import pytest

from heedmap.errors import InputError
from heedmap.look.folder import check_free, filled_at_once, folder_name


def fill(folder: Path, *names: str) -> None:
    with filled_at_once(folder, force=True) as temporary:
        for name in names:
            (temporary / name).write_text("new")


def test_a_new_folder_appears_with_its_parents(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    fill(folder, "atlas.png", "summary.json")
    assert sorted(path.name for path in folder.iterdir()) == ["atlas.png", "summary.json"]
    assert [path.name for path in folder.parent.iterdir()] == ["b"]
    assert folder.stat().st_mode & 0o700 == 0o700


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_look_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def interrupted() -> None:
        with filled_at_once(tmp_path / "a" / "b", force=True) as temporary:
            (temporary / "atlas.png").write_text("half")
            raise error

    with pytest.raises(error):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_look_keeps_the_earlier_one(tmp_path: Path) -> None:
    fill(tmp_path / "out", "atlas.png")

    def interrupted() -> None:
        with filled_at_once(tmp_path / "out", force=True) as temporary:
            (temporary / "atlas.png").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "out" / "atlas.png").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_replacing_touches_our_files_only(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("notes.txt", "summary.json", "layer3-head1.png", "arcs.png", "layer.png"):
        (folder / name).write_text("old")
    fill(folder, "summary.json", "layer0-head0.png")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "notes.txt": "old",
        "layer.png": "old",
        "summary.json": "new",
        "layer0-head0.png": "new",
    }


def test_earlier_results_are_kept_unless_forced(tmp_path: Path) -> None:
    fill(tmp_path / "out", "atlas.png", "summary.json")
    with pytest.raises(InputError, match=r"which holds atlas\.png\. Add --force"):
        check_free(tmp_path / "out", force=False)
    check_free(tmp_path / "out", force=True)


def test_a_folder_with_other_files_is_free(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    check_free(tmp_path, force=False)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("file", r"output must be a folder; got .*, a file"),
        ("file/below", r"output must be a folder that can be written; got .* is a file\)"),
    ],
)
def test_no_folder_can_be_there(tmp_path: Path, place: str, words: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=words):
        check_free(tmp_path / place, force=False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("他说他今天不能来", "他说他今天不能来"),
        ("../../etc/passwd", "etc-passwd"),
        ("...", "text"),
        ("a" * 300, "a" * 40),
        ("a\nb\tc/d", "a-b-c-d"),
    ],
)
def test_folder_names_are_safe(words: str, expected: str) -> None:
    assert folder_name(words) == expected


def test_two_looks_at_once_do_not_mix(tmp_path: Path) -> None:
    def second() -> None:
        with filled_at_once(tmp_path / "out", force=False) as temporary:
            (temporary / "arcs.png").write_text("late")
            fill(tmp_path / "out", "atlas.png", "summary.json")

    with pytest.raises(InputError, match=r"which holds atlas\.png"):
        second()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "atlas.png",
        "summary.json",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with filled_at_once(tmp_path / "out", force=False):
            raise OSError(28, "No space left on device")

    with pytest.raises(
        InputError,
        match=r"a folder that can be written; got .*out \(No space left on device\)\. .* make room",
    ):
        write()
    assert list(tmp_path.iterdir()) == []
