"""Which pieces make a word, and which of its tokens are spoken."""

import pytest

from heedmap.analysis.spoken import spoken_words

CASES = {
    "blanks part": ([" Oh", ",", " hello", "."], ["Oh,", "hello."]),
    "no blank before the first": (["Oh", ",", " hello"], ["Oh,", "hello"]),
    "pieces of a word": ([" Y", "ank", "ee", "'s"], ["Yankee's"]),
    "a hyphen within": ([" well", "-", "known", " -", " so"], ["well-known -", "so"]),
    "quotes": ([' "', "Hello", '," ', " he", " said", '."'], ['"Hello,"', "he", 'said."']),
    "brackets": ([" yes", " (", "no", ")", "."], ["yes", "(no)."]),
    "an opening mark at the end": ([" yes", ' "'], ['yes "']),
    "signs that are said": ([" 50", "%", " &", " more", " $", "5"], ["50%", "&", "more", "$5"]),
    "a blank of its own": ([" yes", " ", "1"], ["yes", "1"]),
    "characters": (["我们", "走", "，", "快", "！"], ["我们", "走，", "快！"]),
    "a character of three tokens": (["我", "", "", "饕", "。"], ["我", "饕。"]),
    "an unfinished character": (["我", ""], ["我"]),
    "Chinese brackets": (["「", "你", "」", "好"], ["「你」", "好"]),
    "two scripts": (["用", "Py", "thon", "写"], ["用", "Python", "写"]),
    "Korean has blanks": ([" 안녕", "하세요"], ["안녕하세요"]),
    "only music": ([" ♪", " ♪"], []),
    "only punctuation": ([" ...", "."], []),
    "nothing": ([], []),
}


@pytest.mark.parametrize("case", CASES)
def test_words(case: str) -> None:
    pieces, expected = CASES[case]
    assert [word.text for word in spoken_words(pieces)] == expected


def test_punctuation_is_not_spoken() -> None:
    words = spoken_words([' "', "Oh", ",", " well", "-", "known", '"'])
    assert [word.tokens for word in words] == [[1], [3, 5]]


def test_all_tokens_of_a_character_are_spoken() -> None:
    assert [word.tokens for word in spoken_words(["我", "", "", "饕", "。"])] == [[0], [1, 2, 3]]


def test_every_character_stays_and_tokens_rise() -> None:
    for pieces, _ in CASES.values():
        words = spoken_words(pieces)
        tokens = [token for word in words for token in word.tokens]
        assert tokens == sorted(set(tokens))
        kept = "".join(word.text for word in words).replace(" ", "")
        assert not words or kept == "".join(pieces).replace(" ", "")
