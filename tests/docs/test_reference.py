"""The reference has every public name, and commands that pages show are understood."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PUBLIC = ["heedmap", "heedmap.analysis", "heedmap.look", "heedmap.masks", "heedmap.media"]
PUBLIC += ["heedmap.parallel", "heedmap.plot", "heedmap.recording", "heedmap.speech"]
# What others of the package need, or what is documented under another name.
NOT_FOR_USERS = {
    "heedmap.masks": {"Both", "Either", "Extent", "parts_of"},
    "heedmap.recording": {"check_free", "save"},
    "heedmap": {"HeedmapError"},
}


def documented() -> set[str]:
    pages = (DOCS / "reference").glob("*.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return set(re.findall(r"^\.\. auto\w+:: ([\w.]+)(?:\(\))?$", text, re.MULTILINE))


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    module = importlib.import_module(package)
    names = set(module.__all__) - NOT_FOR_USERS.get(package, set())
    known = documented()
    missing = {
        name
        for name in names
        if f"{package}.{name}" not in known and f"heedmap.{name}" not in known
    }
    assert missing == set()


def commands() -> list[str]:
    """Return the commands of heedmap that pages show in blocks."""
    pages = (page for page in DOCS.rglob("*.md") if "_build" not in page.parts)
    texts = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return sorted(set(re.findall(r"^\$ (heedmap .*)$", texts, re.MULTILINE)))


@pytest.mark.parametrize("command", commands())
def test_every_command_is_understood(command: str) -> None:
    parser = importlib.import_module("heedmap.cli.main")._parser()
    assert parser.parse_args(shlex.split(command, comments=True)[1:]).command is not None
