"""``heedmap score``: what it prints where, its status, and one line for each thing gone wrong."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heedmap.cli import main

TRUE = """\
SPEAKER talk 1 0.0 8.0 <NA> <NA> al <NA> <NA>
SPEAKER talk 1 8.0 2.0 <NA> <NA> bo <NA> <NA>
SPEAKER walk 1 1.0 4.0 <NA> <NA> cy <NA> <NA>
"""
FOUND = """\
SPEAKER talk 1 0.0 10.0 <NA> <NA> speaker_1 <NA> <NA>
SPEAKER walk 1 1.0 4.0 <NA> <NA> speaker_1 <NA> <NA>
"""
FILES = {
    "true.rttm": TRUE,
    "found.rttm": FOUND,
    "empty.rttm": "",
    "other.rttm": TRUE.replace("talk", "tâlk").replace("walk", "wälk"),
    "bad.rttm": FOUND.replace("1.0 4.0", "1.0 -4.0"),
    "some.uem": "talk 1 0 10\n",
    "other.uem": "park 1 0 10\n",
    "nothing.uem": "",
    "silence.uem": "walk 1 6 10\n",
}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function from arguments to status, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_text(content, encoding="utf-8")
    Path("junk.rttm").write_bytes(bytes(range(256)) * 100)

    def call(*arguments: str) -> tuple[int, str, str]:
        handler = signal.getsignal(signal.SIGTERM)
        try:
            status = main(["score", *arguments])
        finally:
            signal.signal(signal.SIGTERM, handler)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


def test_the_table(run: Run) -> None:
    status, out, err = run("true.rttm", "found.rttm")
    assert (status, err) == (0, "")
    assert (
        out
        == """\
collar 0 s; overlap is scored
file       found/true  speech s  missed s    %  false alarm s    %  confusion s     %  error %
talk              1/2     10.00      0.00  0.0           0.00  0.0         2.00  20.0     20.0
walk              1/1      4.00      0.00  0.0           0.00  0.0         0.00   0.0      0.0
all files         2/3     14.00      0.00  0.0           0.00  0.0         2.00  14.3     14.3

collar 0.25 s on each side of every start and end of a true turn (pyannote: collar=0.5); \
overlap is scored
file       found/true  speech s  missed s    %  false alarm s    %  confusion s     %  error %
talk              1/2      9.00      0.00  0.0           0.00  0.0         1.50  16.7     16.7
walk              1/1      3.50      0.00  0.0           0.00  0.0         0.00   0.0      0.0
all files         2/3     12.50      0.00  0.0           0.00  0.0         1.50  12.0     12.0

the number of speakers is right in 1 of 2 files

note: without a UEM, a file is scored from the first to the last turn of either
"""
    )


def test_json_with_a_uem_and_one_collar(run: Run) -> None:
    status, out, _ = run(
        "true.rttm", "found.rttm", "--uem", "some.uem", "--collar", "0.1", "--json"
    )
    summary = json.loads(out)
    assert status == 0
    assert summary["schema"] == 1
    assert [file["file"] for file in summary["files"]] == ["talk"]
    assert summary["collar_seconds_on_each_side"] == [0.1]
    assert summary["pooled"]["scores"][0]["confusion_seconds"] == 1.8
    assert summary["notes"] == [
        "not scored, because the reference or the UEM does not name it: “walk”"
    ]


def test_an_empty_hypothesis_has_missed_all(run: Run) -> None:
    status, out, _ = run("true.rttm", "empty.rttm")
    assert status == 0
    assert "misses all, in “talk”, “walk”" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.rttm", "found.rttm"], "got none.rttm (No such file or directory)"),
        (["true.rttm", "."], "got . (Is a directory)"),
        (["empty.rttm", "found.rttm"], "reference must hold turns; got none"),
        (["true.rttm", "other.rttm"], "“tâlk” and “talk” differ in accents, case or ending"),
        (["true.rttm", "bad.rttm"], "line 2 of bad.rttm must have a duration of 0 s or more"),
        (["junk.rttm", "found.rttm"], "line 1 of junk.rttm must be a line of text in UTF-8"),
        (["some.uem", "found.rttm"], "line 1 of some.uem must begin with a type of RTTM"),
        (["true.rttm", "found.rttm", "--uem", "true.rttm"], "must have the 4 fields of UEM"),
        (["true.rttm", "found.rttm", "--uem", "other.uem"], "uem must be about the recordings"),
        (["true.rttm", "found.rttm", "--uem", "nothing.uem"], "uem must name what is scored"),
        (["true.rttm", "found.rttm", "--uem", "silence.uem"], "uem must cover speech"),
        (["true.rttm", "found.rttm", "--collar", "-1"], "collar must be 0 s or more; got -1"),
        (["true.rttm", "found.rttm", "--collar", "nan"], "collar must be 0 s or more; got nan"),
        (["true.rttm", "found.rttm", "--collar", "x"], "invalid float value"),
        (["true.rttm"], "HYPOTHESIS"),
    ],
)
def test_bad_input_is_one_line(run: Run, arguments: list[str], said: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("heedmap: ")
    assert err.count("\n") == 1
    assert said in err


def test_a_closed_output_is_said_at_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stdout", None)
        status, _, err = run("true.rttm", "found.rttm")
    assert (status, err) == (1, "heedmap: standard output must be open; got a closed one.\n")


def test_help_waits_for_nothing() -> None:
    check = (
        "import sys; from heedmap.cli import main; status = main(['score', '--help']); "
        "sys.exit(status or any(name in sys.modules for name in ('torch', 'pyannote', 'scipy')))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, check=False)
    assert done.returncode == 0
    assert b"REFERENCE" in done.stdout
