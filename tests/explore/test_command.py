"""``heedmap explore`` and ``heedmap look --html``, as people run them."""

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
import torch
from torch import nn

import heedmap
from heedmap.cli import DONE, WRONG_INPUT, main
from heedmap.explore import showing
from heedmap.explore.explorer import Explorer


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "heedmap.cli", "explore", *arguments, "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_it_runs_until_ctrl_c() -> None:
    with start("to be or not to be", "--model", "none") as running:
        assert running.stdout
        url = running.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        with opener.open(url) as page:
            assert b'id="heedmap"' in page.read()
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=20)
    assert (running.returncode, "Traceback" in told) == (DONE, False)


@pytest.mark.slow
def test_a_busy_port_is_named() -> None:
    with start("to be", "--model", "none") as first:
        assert first.stdout
        port = first.stdout.readline().split(":")[2].split("/")[0]
        with start("to be", "--model", "none", "--port", port) as second:
            printed, told = second.communicate(timeout=60)
        assert (second.returncode, printed) == (WRONG_INPUT, "")
        assert port in told
        first.terminate()
        first.communicate(timeout=20)
    assert first.returncode == DONE


def test_what_a_recording_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with heedmap.watch(model) as seen:
        model(torch.randn(1, 4, 8))
    seen.save(tmp_path / "seen")
    for name, value in (("--model", "none"), ("--channel", "0"), ("--start", "0")):
        assert main(["explore", str(tmp_path / "seen"), name, value]) == WRONG_INPUT
        told = capsys.readouterr().err
        assert told == f"heedmap: {name} must not be given for a recording; leave it out.\n"
    assert main(["explore", str(tmp_path / "seen"), "--layer", "7"]) == WRONG_INPUT
    assert "layer must be from 0 to 0 for the recording seen; got 7." in capsys.readouterr().err
    assert main(["explore", "to be", "--media", "sound.wav"]) == WRONG_INPUT
    assert "--media must be given for a recording" in capsys.readouterr().err
    assert main(["explore", "to be", "--model", "none", "--host", "0.0.0.0"]) == WRONG_INPUT
    assert "--expose allows that" in capsys.readouterr().err


def test_the_first_word_does_not_wait_for_torch() -> None:
    program = "import sys; sys.modules['torch'] = None; from heedmap.cli import main; main({})"
    arguments = ["explore", "to be"]
    done = subprocess.run(
        [sys.executable, "-c", program.format(arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = done.stderr.splitlines()
    assert first == "Loading …"
    assert "torch" in second


def test_what_is_no_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explore", ""]) == WRONG_INPUT
    assert "input must hold words to look at; got nothing" in capsys.readouterr().err
    assert main(["explore", "."]) == WRONG_INPUT
    assert capsys.readouterr().err == (
        "heedmap: input must be words, a file, or the folder of a recording; got the folder ., in "
        "which there is no recording. heedmap look INPUT --save FOLDER makes one.\n"
    )


@pytest.mark.parametrize(
    ("given", "host", "browser"),
    [
        ((), "127.0.0.1", True),
        (("--no-browser",), "127.0.0.1", False),
        (("--expose",), "0.0.0.0", False),
        (("--expose", "--host", "::"), "::", False),
    ],
)
def test_what_is_said_and_where(
    given: tuple[str, ...],
    host: str,
    browser: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    served, opened = [], []

    def serve(explorer: Explorer, *, announce: Callable[[str], None], **how: object) -> None:
        served.append(how)
        announce("http://somewhere")
        explorer.close()

    monkeypatch.setattr(showing, "serve", serve)
    monkeypatch.setattr(showing, "open_in_browser", opened.append)
    assert main(["explore", "to be", "--model", "none", *given]) == DONE
    exposed = "--expose" in given
    assert served == [{"host": host, "port": 0, "allow_other_hosts": exposed}]
    assert opened == ["http://somewhere"] * browser
    told = capsys.readouterr()
    assert told.out == "http://somewhere\n"
    first, *_, last = told.err.splitlines()
    assert (first, last) == ("Loading …", "Ctrl-C ends it.")
    assert ("There is no encryption: whoever listens in can read the page." in told.err) == exposed


def test_a_recording_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with heedmap.watch(model) as seen:
        model(torch.randn(1, 4, 8))
    seen.save(tmp_path / "seen")
    served = []
    monkeypatch.setattr(showing, "serve", lambda explorer, **_: served.append(explorer.scene))
    asked = ["--query", "@2", "--head", "1", "--no-browser"]
    assert main(["explore", str(tmp_path / "seen"), *asked]) == DONE
    assert (served[0].name, served[0].query, served[0].chosen) == ("seen", 2, (0, 1))


def test_a_page_beside_the_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    look = ["look", "to be or not to be", "--model", "none", "--html", "map.html"]
    assert main(look) == DONE
    size = (tmp_path / "map.html").stat().st_size
    assert 10_000 < size < 5_000_000
    # Nothing is computed for a place that is taken.
    capsys.readouterr()
    assert main([*look, "-o", "other"]) != DONE
    assert "the page must not be there yet; got map.html" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_in_python_a_server_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def open_in_browser(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(showing.webbrowser, "open", open_in_browser)
    with heedmap.AttentionMap.from_weights(torch.eye(3)).explore() as running:
        assert opened == [running.url]
    with heedmap.watch(layer := nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()) as seen:
        layer(torch.randn(1, 4, 8))
    seen.explore().close()
    assert len(opened) == 2


def test_without_a_browser_the_address_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(showing.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with heedmap.AttentionMap.from_weights(torch.eye(3)).explore() as running:
        assert capsys.readouterr().out == f"The live map: {running.url}\n"
    # A browser that does not start is none.
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(showing.webbrowser, "open", lambda _: False)
    with heedmap.AttentionMap.from_weights(torch.eye(3)).explore() as running:
        assert running.url in capsys.readouterr().out
