"""The lesson as one file."""

import re
from pathlib import Path

import pytest

from heedmap.errors import InputError
from heedmap.lesson.offline import lesson_page, write_lesson
from heedmap.lesson.page_files import DATA, page_files


def test_the_file_holds_all_that_it_needs(tmp_path: Path) -> None:
    write_lesson(tmp_path / "lesson.html")
    text = (tmp_path / "lesson.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["'](https?:)?/""", text)
    assert "@import" not in text
    # One script with data, one with modules, and nothing in them that would end them before.
    assert text.count("<script") == text.count("</script") == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "lesson.html"]


@pytest.mark.bad_input
def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "lesson.html"
    file.write_text("mine")
    with pytest.raises(InputError, match=r"the page must not be there yet; got .*--force"):
        write_lesson(file)
    assert file.read_text() == "mine"
    write_lesson(file, force=True)
    assert file.read_text() != "mine"


def test_the_language_to_begin_with() -> None:
    assert "data-language" not in lesson_page().split("<script")[0]
    assert '<main id="heedmap" data-language="en">' in lesson_page("en")
    told = page_files("zh")["index.html"].content.decode()
    assert '<main id="heedmap" data-language="zh">' in told
    assert page_files("zh")["index.html"].etag != page_files()["index.html"].etag


def test_numbers_of_every_page_are_there() -> None:
    assert {f"{name}.json" for name in DATA} <= page_files().keys()


def test_modules_import_in_one_way_only() -> None:
    for name, file in page_files().items():
        if name.endswith(".js"):
            source = re.sub(r"/\*.*?\*/", "", file.content.decode(), flags=re.S)
            imports = re.findall(r"^import\b.*?;$", source, re.M | re.S)
            assert all(re.search(r'\bfrom\s+"\./[\w.]+";$', found) for found in imports), name
            assert not re.search(r"\bimport\s*\(", source), name
