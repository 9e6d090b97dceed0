"""Small axes that the tests make themselves."""

from collections.abc import Sequence

from heedmap import Axis


def tokens(words: Sequence[str]) -> Axis:
    """Return the axis of words with blanks between them; <…> stands for no character."""
    spans, text = [], ""
    for word in words:
        if word.startswith("<"):
            spans.append((len(text), len(text)))
            continue
        spans.append((len(text), len(text) + len(word)))
        text += word + " "
    return Axis.of_tokens(text, words, spans)
