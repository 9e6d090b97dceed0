import pytest
import torch

from heedmap.errors import BudgetError, InputError
from heedmap.media import Text


@pytest.mark.parametrize(
    "data",
    [
        "他说 hi".encode(),
        "他说 hi".encode("utf-8-sig"),
        "他说 hi".encode("utf-16"),
        b"\xfe\xff" + "他说 hi".encode("utf-16-be"),
    ],
)
def test_the_byte_order_mark_names_the_encoding_and_is_not_text(data: bytes) -> None:
    assert Text.of_bytes(data).text == "他说 hi"


def test_line_ends_are_kept_so_that_offsets_hold() -> None:
    assert Text.of_bytes(b"a\r\nb\n").text == "a\r\nb\n"


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"caf\xe9 au lait", r"byte 3 \(0xE9\) is not UTF-8"),
        (b"\xef\xbb\xbfab\xff", r"byte 5 \(0xFF\) is not UTF-8"),
        (b"cut \xe4\xbb", r"byte 4 \(0xE4\) is not UTF-8"),
        (b"\xed\xa0\x80", r"byte 0 \(0xED\) is not UTF-8"),
        (b"\xff\xfea\0\x00\xd8b\0", r"byte 4 \(0x00\) is not UTF-16-LE"),
        (b"\xff\xfea\0b", r"byte 4 \(0x62\) is not UTF-16-LE"),
        ("妈\0".encode(), "byte 3 is NUL"),
        ("妈\0".encode("utf-16"), "byte 4 is NUL"),
    ],
)
def test_bytes_that_are_no_text_are_named_by_their_offset(data: bytes, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        Text.of_bytes(data, "notes.txt")


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", b" \r\n\t", "　".encode()])
def test_nothing_to_read_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match=r"input must hold words to look at; got .* in standard"):
        Text.of_bytes(data, "standard input")


@pytest.mark.parametrize(
    ("text", "found"), [("a\ud800b", "U\\+D800 at character 1"), ("a\0", "U\\+0000 at character 1")]
)
def test_words_with_nul_or_lone_surrogates_are_refused(text: str, found: str) -> None:
    with pytest.raises(InputError, match=found):
        Text.of(text)


def test_sequence_is_one_hot_over_characters() -> None:
    sequence = Text.of("妈妈 said 妈🌍").sequence()
    same = sequence.values @ sequence.values.T
    letters = list("妈妈 said 妈🌍")
    assert torch.equal(same, torch.tensor([[float(a == b) for b in letters] for a in letters]))
    assert sequence.axis.labels == tuple(letters)
    assert sequence.axis.locate("妈#3").positions == (8,)


def test_sequence_too_large_for_one_hot_values_is_refused_with_its_size() -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000)))
    with pytest.raises(
        BudgetError,
        match=r"text must fit 1,073,741,824 bytes as one-hot characters; .* 1,600,000,000",
    ):
        Text.of(text).sequence()


def test_a_long_line_is_read_at_once() -> None:
    assert len(Text.of_bytes(b"x" * 1_000_000).text) == 1_000_000
