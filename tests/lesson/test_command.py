"""``heedmap lesson`` on the command line."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from heedmap.cli import main


def test_the_lesson_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lesson.html"
    assert main(["lesson", "--html", str(file), "--language", "en"]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert 'data-language="en"' in file.read_text(encoding="utf-8")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--force"], "--force must be given with --html; got it alone. Leave it out."),
        (
            ["--html", "x.html", "--port", "1"],
            "--port must not be given with --html; leave it out.",
        ),
        (
            ["--html", "x.html", "--no-browser"],
            "--no-browser must not be given with --html; leave it out.",
        ),
        (["--html", "."], "the page must be a file in a folder that exists; got ."),
        (["--port", "70000"], "port must be a whole number from 0 to 65535; got 70000."),
        (["--language", "de"], "invalid choice: 'de'"),
        (["measure"], "the following arguments are required: -o/--output"),
        (["measure", "-o", "/dev/null"], "output must be a folder; got /dev/null"),
        (["study"], "invalid choice: 'study'"),
    ],
)
def test_wrong_arguments_are_told_in_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lesson", *arguments]) == 2
    told = capsys.readouterr().err.removeprefix("Loading …\n")
    assert words in told
    assert told.count("\n") == 1


@pytest.mark.bad_input
def test_what_is_no_file_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "lesson.html"
    os.mkfifo(pipe)
    assert main(["lesson", "--html", str(pipe), "--force"]) == 2
    assert f"a file in a folder that exists; got {pipe}." in capsys.readouterr().err
    assert pipe.is_fifo()


@pytest.mark.slow
def test_it_is_served_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "heedmap.cli", "lesson", "--no-browser", "--language", "zh"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        try:
            url = running.stdout.readline().strip()
            # Whoever is told of Ctrl-C can press it; before, there may be nothing to end.
            told = running.stderr.readline() + running.stderr.readline()
            with urlopen(url.split("/open")[0] + "/health", timeout=10) as answer:
                assert answer.status == 200
        finally:
            running.send_signal(signal.SIGINT)
        assert running.wait(timeout=30) == 0
        assert told + running.stderr.read() == "Loading …\nCtrl-C ends it.\n"
