"""Texts that people really have, from their bytes to labels."""

import json
import unicodedata
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from heedmap.errors import InputError
from heedmap.look import look
from heedmap.look.report import report
from heedmap.media import Text, open_media
from heedmap.plot import plot_arcs, plot_heatmap

from .command import Run

MIXED = "你好 🌍 سلام"
WORDS = "他说 hi"
MARKED = {
    "UTF-8": WORDS.encode("utf-8-sig"),
    "UTF-16, little end": b"\xff\xfe" + WORDS.encode("utf-16-le"),
    "UTF-16, big end": b"\xfe\xff" + WORDS.encode("utf-16-be"),
    "none": WORDS.encode(),
}


@pytest.fixture
def byte_model(tmp_path: Path) -> str:
    """Return the folder of a tiny model whose tokens are single bytes, as GPT-2 spells them."""
    folder = tmp_path / "bytes"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0} | {letter: i for i, letter in enumerate(alphabet, start=1)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>").save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(vocabulary), intermediate_size=8, **sizes)
    BertModel(config).save_pretrained(folder)
    return str(folder)


def test_u18_bytes_of_one_character_say_which(byte_model: str, tmp_path: Path) -> None:
    seen = look(MIXED, model=byte_model, query="🌍", output=tmp_path / "out")
    labels = seen.axis.labels
    assert labels[:3] == ("你·1/3", "你·2/3", "你·3/3")
    assert [label for label in labels if "🌍" in label] == [f"🌍·{n}/4" for n in range(1, 5)]
    assert len(labels) == len(MIXED.encode())
    assert not [label for label in labels if any(c in label for c in "ĠÂØä▁")]
    assert len(seen.query) == 4
    assert "你·1/3" in report(look(MIXED, model=byte_model))
    assert (tmp_path / "out" / "arcs.png").stat().st_size > 0


def test_u18_every_script_keeps_its_characters(run: Run) -> None:
    done = run("look", MIXED, "--model", "none", "--query", "س", "--json")
    assert done.status == 0
    assert json.loads(done.out)["query"]["found"] == ["س"]
    seen = look(MIXED, model="none")
    assert seen.axis.labels == tuple(MIXED)
    matrix = seen.layers[0].weights[0]
    drawn = plot_heatmap(matrix, query_axis=seen.axis, key_axis=seen.axis)
    assert "你" in [text.get_text() for text in drawn.get_xticklabels()]
    assert plot_arcs(matrix, axis=seen.axis).texts


ISOLATED = "\u2068{}\u2069"


def test_u18_words_from_right_to_left_do_not_turn_the_line_around(run: Run) -> None:
    """Else a terminal shows what is looked at in front of what looks, and 3% as %3."""
    done = run("look", "سلام", "--model", "none", "--query", "س")
    assert f"({ISOLATED.format('س')}, @0) looks at" in done.out
    assert f"@2     {ISOLATED.format('ا')}" in done.out
    assert "\u2068" not in run("look", "hello 你好", "--model", "none").out
    balanced = [line for line in done.out.splitlines() if "\u2068" in line]
    assert all(line.count("\u2068") == line.count("\u2069") for line in balanced)


@pytest.mark.parametrize("case", MARKED)
def test_m30_marks_of_the_byte_order_are_no_text(case: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(MARKED[case])
    text = open_media(path)
    assert isinstance(text, Text)
    assert text.text == WORDS
    assert text.sequence().axis.locate("说").positions == (1,)
    done = run("look", str(path), "--model", "none", "--query", "@0", "--json")
    assert json.loads(done.out)["query"]["found"] == ["他"]


NO_TEXT = {
    "no UTF-8": (b"caf\xe9 au lait", "byte 3 (0xE9) is not UTF-8"),
    "after a mark": (b"\xef\xbb\xbfab\xff", "byte 5 (0xFF) is not UTF-8"),
    "half a pair": (b"\xed\xa0\x80", "byte 0 (0xED) is not UTF-8"),
    "half a pair in UTF-16": (b"\xff\xfea\0\x00\xd8b\0", "byte 4 (0x00) is not UTF-16-LE"),
    "NUL": ("妈\0".encode(), "byte 3 is NUL"),
    "a character that is cut": (b"cut \xe4\xbb", "byte 4 (0xE4) is not UTF-8"),
}


@pytest.mark.parametrize("case", NO_TEXT)
def test_m31_bytes_that_are_no_text_are_named_by_their_place(
    case: str, tmp_path: Path, run: Run
) -> None:
    content, words = NO_TEXT[case]
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        open_media(path)
    assert words in str(caught.value)
    done = run("look", str(path), "--model", "none")
    assert (done.status, done.out) == (2, "")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_m31_half_a_pair_among_the_arguments(run: Run) -> None:
    done = run("look", "a\udce9b", "--model", "none")
    assert (done.status, done.out) == (2, "")
    assert "U+DCE9 at character 1" in done.err


@pytest.mark.parametrize("text", ["他说他今天不能来", "שלום שלום", "مرحبا", "ไทยไม่มีช่องว่าง"])
def test_m33_scripts_without_blanks_or_from_right_to_left(
    text: str, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text, encoding="utf-8")
    done = run("look", str(path), "--model", "none")
    assert done.status == 0
    assert f"notes.txt: text, {len(text)} tokens" in done.out
    axis = Text.of(text).sequence().axis
    assert "".join(axis.labels) == text
    first = next(c for c in text if unicodedata.category(c) == "Lo")
    assert axis.locate(first).positions[0] == text.index(first)


BLANK = {
    "empty": (b"", "which is empty"),
    "blanks": (b" \r\n\t", "only white space"),
    "wide blanks": ("\u3000\u3000".encode(), "only white space"),
    "a mark alone": (b"\xef\xbb\xbf", "nothing"),
}


@pytest.mark.parametrize("case", BLANK)
def test_m35_no_words_at_all(case: str, tmp_path: Path, run: Run) -> None:
    content, words = BLANK[case]
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    done = run("look", str(path), "--model", "none")
    assert (done.status, done.out) == (2, "")
    assert words in done.err


@pytest.mark.slow
def test_m35_one_endless_line_states_the_limit(byte_model: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "line.txt"
    path.write_text("x" * 1_000_000)
    assert isinstance(open_media(path), Text)
    done = run("look", str(path), "--model", byte_model)
    assert (done.status, done.out) == (2, "")
    assert "at most 512 tokens" in done.err.splitlines()[-1]


def test_m35_line_ends_are_kept_and_offsets_hold(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"one\r\ntwo\r\n")
    text = open_media(path)
    assert isinstance(text, Text)
    assert text.text == "one\r\ntwo\r\n"
    assert text.sequence().axis.locate("two").positions == (5, 6, 7)
    done = run("look", str(path), "--model", "none")
    assert "\r" not in done.out
    assert "↵" in done.out
