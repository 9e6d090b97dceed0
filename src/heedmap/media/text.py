"""Text: from bytes to characters, and from characters to a `Sequence` that needs no model."""

import codecs
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from heedmap.axes import Axis, Sequence
from heedmap.errors import BudgetError, InputError
from heedmap.media.files import read_all

_MAX_SEQUENCE_BYTES = 2**30

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class Text:
    """A text and what it is called.

    Attributes:
        text: The characters, without a byte order mark. Line ends are kept as they were, CRLF
            included, so that offsets into `text` are those of the file's own characters.
        name: What messages and pictures call it.
        temperature: What to divide the scores of `sequence` by: an equal character then weighs as
            much as e^10 others.
    """

    text: str
    name: str
    temperature: ClassVar[float] = 0.1

    def __post_init__(self) -> None:
        """Refuse what cannot be looked at: nothing, NUL, and halves of surrogate pairs."""
        if not self.text.strip():
            found = "only white space" if self.text else "nothing"
            raise InputError(f"input must hold words to look at; got {found} in {self.name}.")
        if match := re.search("[\0\ud800-\udfff]", self.text):
            raise InputError(
                f"input must be text without NUL or lone surrogates; got U+{ord(match[0]):04X} "
                f"at character {match.start()} of {self.name}. Remove it."
            )

    @classmethod
    def of(cls, text: str) -> "Text":
        """Return these words themselves as a text, even where they look like the name of a file.

        Raises:
            InputError: if there is nothing but white space, or a NUL or lone surrogate in them.

        Example:
            >>> Text.of("notes.txt").text
            'notes.txt'
        """
        return cls(text, "the text")

    @classmethod
    def of_bytes(cls, data: bytes, name: str = "the text") -> "Text":
        """Return the text that `data` encodes: UTF-8, or UTF-16 where it begins with its mark.

        Args:
            data: The bytes of a file or of standard input, whole.
            name: What messages and pictures shall call it.

        Raises:
            InputError: if a byte has no place in the encoding (with its offset in `data`), for a
                NUL, and if there is nothing but white space.

        Example:
            >>> Text.of_bytes(b"\\xff\\xfeh\\0i\\0").text
            'hi'
        """
        if fault := find_fault(data):
            raise InputError(
                f"input must be text in UTF-8, or in UTF-16 with a byte order mark; got {name}, "
                f"where {fault}. Save it as UTF-8."
            )
        mark, encoding = _encoding_of(data)
        return cls(data[len(mark) :].decode(encoding), name)

    @classmethod
    def of_file(cls, path: str | Path) -> "Text":
        """Return the text that a file holds, read as `of_bytes` reads it.

        Raises:
            InputError: if the file is missing, empty, not to be read, or no text.
        """
        return cls.of_bytes(read_all(Path(path)), Path(path).name)

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing: a text that could be read has no faults to tell of."""
        return ()

    def sequence(self) -> Sequence:
        """Return one position for each character (Unicode code point), in one-hot values.

        Recipe: the distinct characters are numbered in the order in which they first appear, and
        the value of a character is 1 in the column of its number and 0 elsewhere. So the inner
        product of two positions is 1 where the characters are the same and 0 where they are not,
        and attention over it, at `temperature`, shows the repeats.

        Raises:
            BudgetError: if the values would take more than 1 GiB.

        Cost: 4 × characters × distinct characters bytes.

        Example:
            >>> Text.of("abca").sequence().values[0].tolist()
            [1.0, 0.0, 0.0]
        """
        numbers: dict[str, int] = {}
        columns = [numbers.setdefault(character, len(numbers)) for character in self.text]
        size = 4 * len(columns) * len(numbers)
        if size > _MAX_SEQUENCE_BYTES:
            raise BudgetError(
                f"text must fit {_MAX_SEQUENCE_BYTES:,} bytes as one-hot characters; got "
                f"{len(columns):,} characters, {len(numbers):,} of them distinct, which take "
                f"{size:,}. Take a part of the text, or a model's tokens."
            )
        values = torch.zeros(len(columns), len(numbers))
        values[torch.arange(len(columns)), torch.tensor(columns)] = 1.0
        offsets = ((i, i + 1) for i in range(len(columns)))
        return Sequence(values, Axis.of_tokens(self.text, self.text, offsets))


def find_fault(data: bytes, *, whole: bool = True) -> str | None:
    """Return what keeps `data` from being text, with its byte offset, or None if it is text.

    Args:
        data: The bytes, from the first one on.
        whole: Whether these are all bytes; if not, the last character may be cut.
    """
    mark, encoding = _encoding_of(data)
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        text = decoder.decode(data[len(mark) :], final=whole)
    except UnicodeDecodeError as error:
        offset = len(mark) + error.start
        return f"byte {offset} (0x{data[offset]:02X}) is not {encoding.upper()}"
    if (index := text.find("\0")) >= 0:
        return f"byte {len(mark) + len(text[:index].encode(encoding))} is NUL"
    return None


def _encoding_of(data: bytes) -> tuple[bytes, str]:
    """Return the byte order mark that `data` begins with, and the encoding it stands for."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return mark, encoding
    return b"", "utf-8"
