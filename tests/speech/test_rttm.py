import os
from pathlib import Path
from unicodedata import normalize

import pytest

from heedmap.errors import ArgumentError, InputError
from heedmap.speech import files
from heedmap.speech.rttm import as_rttm, read_rttm, read_uem, write_rttm
from heedmap.speech.turns import Turn

LINE = "SPEAKER talk 1 1.0 2.0 <NA> <NA> al <NA> <NA>\n"


def written(folder: Path, content: str | bytes, name: str = "talk.rttm") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    turns = {
        "b": [Turn(0.123, 4.567, "x"), Turn(3.0, 3.001, "y")],
        "trñ00": [Turn(1.0, 2.0, "MÉO069")],
    }
    path = write_rttm(tmp_path / "out.rttm", turns)
    assert read_rttm(path) == turns
    assert os.listdir(tmp_path) == ["out.rttm"]


def test_turns_are_written_in_order_with_ten_fields() -> None:
    text = as_rttm({"my talk": [Turn(2.0, 3.25, "speaker 2"), Turn(0.0, 1.0, "speaker 1")]})
    assert text.splitlines() == [
        "SPEAKER my_talk 1 0.000 1.000 <NA> <NA> speaker_1 <NA> <NA>",
        "SPEAKER my_talk 1 2.000 1.250 <NA> <NA> speaker_2 <NA> <NA>",
    ]


def test_rounding_to_milliseconds_keeps_ends_and_leaves_no_turn_empty() -> None:
    text = as_rttm({"t": [Turn(0.0006, 1.0006, "a"), Turn(2.0001, 2.0004, "a")]})
    assert [line.split()[3:5] for line in text.splitlines()] == [
        ["0.001", "1.000"],
        ["2.000", "0.001"],
    ]


def test_a_name_that_is_empty_or_no_utf_8_can_be_written(tmp_path: Path) -> None:
    path = write_rttm(tmp_path / "x.rttm", {"\udcff": [Turn(0.0, 1.0, "")]})
    assert path.read_text().split()[1:8:6] == ["\\udcff", "<NA>"]


def test_names_that_would_become_one_are_refused() -> None:
    with pytest.raises(ArgumentError, match="names must differ when _ stands for their blanks"):
        as_rttm({"t": [Turn(0.0, 1.0, "a b"), Turn(1.0, 2.0, "a_b")]})


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="path must be a place where a file can be written"):
        write_rttm(tmp_path / "folder", {"t": [Turn(0.0, 1.0, "a")]})
    with pytest.raises(InputError, match="No such file"):
        write_rttm(tmp_path / "none" / "x.rttm", {})
    assert os.listdir(tmp_path) == ["folder"]


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="no pipe and no device"):
        write_rttm(tmp_path / "pipe", {})
    assert (tmp_path / "pipe").is_fifo()


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, LINE)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_rttm(path, {"t": [Turn(0.0, 1.0, "a")]})
    assert os.listdir(tmp_path) == ["talk.rttm"]
    assert path.read_text() == LINE


@pytest.mark.parametrize(
    "content",
    [
        LINE,
        "\ufeff" + LINE,
        LINE.replace("\n", "\r\n"),
        LINE.replace("\n", "\r"),
        LINE.replace(" ", "\t"),
        "  " + LINE.replace(" ", "   "),
        LINE.rstrip("\n"),
        ";; a comment\n\n" + LINE,
        LINE.replace(" <NA> <NA>\n", " <NA>\n"),
        LINE.replace(" <NA> <NA>\n", "\n"),
        LINE.lower().replace("<na>", "-"),
        LINE + LINE.replace("2.0", "0.000"),
        "SPKR-INFO talk 1 <NA> <NA> <NA> unknown al <NA>\n" + LINE,
        LINE.replace("1.0 2.0", "1 2"),
        LINE.replace("1.0 2.0", "+1.e0 .2E1"),
    ],
)
def test_what_the_format_allows_is_read(tmp_path: Path, content: str) -> None:
    assert read_rttm(written(tmp_path, content)) == {"talk": [Turn(1.0, 3.0, "al")]}


def test_turns_come_in_order_by_recording(tmp_path: Path) -> None:
    lines = LINE.replace("talk", "other") + LINE.replace("1.0", "5.5") + LINE
    assert read_rttm(written(tmp_path, lines)) == {
        "other": [Turn(1.0, 3.0, "al")],
        "talk": [Turn(1.0, 3.0, "al"), Turn(5.5, 7.5, "al")],
    }


def test_channels_are_not_told_apart(tmp_path: Path) -> None:
    lines = LINE + LINE.replace("talk 1 1.0", "talk 2 4.0")
    assert len(read_rttm(written(tmp_path, lines))["talk"]) == 2


def test_names_that_look_alike_are_one(tmp_path: Path) -> None:
    composed, apart = normalize("NFC", "trñ00"), normalize("NFD", "trñ00")
    assert composed != apart
    path = written(tmp_path, LINE.replace("talk", composed) + LINE.replace("talk", apart))
    assert list(read_rttm(path)) == [composed]
    assert list(read_uem(written(tmp_path, f"{apart} 1 0 30\n"))) == [composed]


def test_only_blanks_and_tabs_part_fields(tmp_path: Path) -> None:
    name = "a\u00a0b\u2028c"
    assert list(read_rttm(written(tmp_path, LINE.replace("talk", name)))) == [name]


def test_start_and_duration_give_the_same_end_everywhere(tmp_path: Path) -> None:
    turns = read_rttm(written(tmp_path, LINE.replace("1.0 2.0", "0.1 0.2")))
    assert turns["talk"][0].end_seconds == 0.3


def test_nothing_is_in_an_empty_file(tmp_path: Path) -> None:
    assert read_rttm(written(tmp_path, "")) == {}
    assert read_rttm(written(tmp_path, "\n;; nothing\n")) == {}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("talk NA 0.000 30.000", "must begin with a type of RTTM, such as SPEAKER; got “talk NA 0"),
        ("nonsense", "must begin with a type of RTTM, such as SPEAKER; got “nonsense”"),
        ("SPEAKER talk 1 1.0", "must have the 10 fields of RTTM; got 4"),
        (LINE.replace("al ", "al smith jones "), "must have the 10 fields of RTTM; got 12"),
        (LINE.replace("2.0", "-2.0"), "must have a duration of 0 s or more; got -2.0"),
        (LINE.replace("1.0", "-1.0"), "must begin at 0 s or later; got -1.0"),
        (LINE.replace("1.0", "<NA>"), "must give times in seconds, such as 12.34; got “<NA>”"),
        (LINE.replace("1.0", "nan"), "must give times in seconds, such as 12.34; got “nan”"),
        (LINE.replace("2.0", "inf"), "must give times in seconds, such as 12.34; got “inf”"),
        (LINE.replace("2.0", "1e300"), "must give times in seconds, such as 12.34; got “1e300”"),
        (LINE.replace("2.0", "1,5"), "must give times in seconds, such as 12.34; got “1,5”"),
        (LINE.replace("2.0", "1_0"), "must give times in seconds, such as 12.34; got “1_0”"),
        (LINE.replace("2.0", "２"), "must give times in seconds, such as 12.34; got “２”"),
        ("SPEAKER \x1b[31m", "must have the 10 fields of RTTM; got 2: “SPEAKER U\\+001B"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, what: str) -> None:
    path = written(tmp_path, LINE + "\n" + line)
    with pytest.raises(InputError, match=rf"line 3 of .*talk\.rttm {what}"):
        read_rttm(path)


@pytest.mark.parametrize(
    "junk",
    [b"\xff\xfe", b"\0", LINE.encode("utf-16"), "MÉO".encode("latin-1"), b"x" * 100_000],
    ids=["bytes", "null", "utf-16", "latin-1", "long"],
)
def test_what_is_no_text_is_named_with_its_line(tmp_path: Path, junk: bytes) -> None:
    path = written(tmp_path, LINE.encode() + junk)
    with pytest.raises(InputError, match=r"line 2 of .* must be a line of text in UTF-8; got some"):
        read_rttm(path)


def test_a_device_without_end_is_given_up_at_once() -> None:
    with pytest.raises(InputError, match="line 1 of /dev/zero must be a line of text"):
        read_rttm("/dev/zero")


def test_too_large_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_CHARACTERS", 100)
    with pytest.raises(InputError, match=r"path must be a file of at most .* MiB"):
        read_rttm(written(tmp_path, LINE * 3))


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.rttm", tmp_path):
        with pytest.raises(InputError, match="path must be a text file that can be read"):
            read_rttm(path)


def test_stretches_of_a_recording_are_joined(tmp_path: Path) -> None:
    path = written(tmp_path, ";; what is scored\nb NA 5 6\na 1 3 4.5\na 1 0 2\na 1 2 3\n")
    assert read_uem(path) == {"b": [(5.0, 6.0)], "a": [(0.0, 4.5)]}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (LINE, "must have the 4 fields of UEM: file, channel, start and end; got 10"),
        ("talk 1 2.0 2.0", "must end after it begins; got 2.0 to 2.0"),
        ("talk 1 2.0 1.0", "must end after it begins; got 2.0 to 1.0"),
        ("talk 1 -1 1.0", "must begin at 0 s or later; got -1"),
        ("talk 1 0 x", "must give times in seconds, such as 12.34; got “x”"),
    ],
)
def test_a_bad_line_of_a_uem_is_named(tmp_path: Path, line: str, what: str) -> None:
    path = written(tmp_path, "talk 1 0 1\n" + line, "talk.uem")
    with pytest.raises(InputError, match=rf"line 2 of .*talk\.uem {what}"):
        read_uem(path)


def test_a_uem_that_covers_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"uem must name what is scored; got .*, in which there is"
    ):
        read_uem(written(tmp_path, ";; nothing\n"))
