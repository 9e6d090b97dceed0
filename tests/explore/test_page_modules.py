"""The page without a server."""

import re

import pytest

from heedmap.explore.page_files import page_files
from heedmap.explore.page_modules import in_order, linked, style


def test_every_module_comes_behind_what_it_imports() -> None:
    sources = {
        name: file.content.decode() for name, file in page_files().items() if name.endswith(".js")
    }
    ordered = in_order(sources, tuple(sources))
    assert sorted(ordered) == sorted(sources)
    for name, source in sources.items():
        for wanted in re.findall(r'\bfrom\s+"\./([\w.]+)"', source):
            assert ordered.index(wanted) < ordered.index(name)


def test_modules_import_in_one_way_only() -> None:
    for name, file in page_files().items():
        if name.endswith(".js"):
            source = re.sub(r"/\*.*?\*/", "", file.content.decode(), flags=re.S)
            imports = re.findall(r"^import\b.*?;$", source, re.M | re.S)
            assert all(re.search(r'\bfrom\s+"\./[\w.]+";$', found) for found in imports), name
            assert not re.search(r"\bimport\s*\(", source), name


def test_circles_are_faults_of_ours() -> None:
    circle = {"a.js": 'import "x" from "./b.js"', "b.js": 'import "x" from "./a.js"'}
    with pytest.raises(AssertionError, match="import one another"):
        in_order(circle, ("a.js",))


def test_nothing_in_the_text_ends_a_script() -> None:
    assert "</script" not in linked("transport_notebook.js")
    assert "</style" not in style()
