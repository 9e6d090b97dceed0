"""What heedmap can raise, read out of its sources.

Run it to make the page anew: ``python -m tests.errors_catalogue > docs/errors.md``.

A message is a string, or an f-string, that is given to one of the classes of `heedmap.errors`. What
is filled in when it is raised stands as a name in angle brackets where the name says something, and
as three dots where it does not.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heedmap import errors

SOURCES = Path(errors.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
CLASSES = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.HeedmapError)
}

WHERE = {
    "inputs": "Calling `attention` or `AttentionMap.from_factors`",
    "problem": "Calling `attention` or `AttentionMap.from_factors`",
    "attention": "Calling `attention` or `AttentionMap.from_factors`",
    "scoring": "Calling `attention` or `AttentionMap.from_factors`",
    "kernels": "Calling `attention` or `AttentionMap.from_factors`",
    "tensors": "Calling `attention` or `AttentionMap.from_factors`",
    "precision": "Calling `attention` or `AttentionMap.from_factors`",
    "compiled": "Calling `attention` or `AttentionMap.from_factors`",
    "masks": "Making a mask, or giving it to a problem of other sizes",
    "attention_map": "Asking a map",
    "map_face": "Asking a map",
    "map_functions": "Asking a map",
    "map_views": "Asking a map",
    "lazy_weights": "Asking a map",
    "reductions": "Asking a map",
    "summary": "Asking a map",
    "budget": "Asking a map",
    "nn": "Making or calling `SelfAttention`",
    "parallel": "Sharing a sequence: what is in `heedmap.parallel`",
    "axes": "Naming positions: `Axis`, and what is written behind `--query`",
    "analysis": "Calling what is in `heedmap.analysis`",
    "watch": "Watching a model",
    "seen": "Looking into what was watched",
    "layers": "Looking into what was watched",
    "checking": "Looking into what was watched",
    "recording": "Saving and opening recordings",
    "plot": "Drawing",
    "media": "Opening texts, sounds and films",
    "models": "Loading models, and giving them inputs",
    "look": "`heedmap look`",
    "speech": "`heedmap hear`, and what is in `heedmap.speech`",
    "explore": "The live map: `heedmap explore`, `weights.explore()`, `look --html`",
    "lesson": "The lesson: `heedmap lesson`",
    "cli": "The command line",
    "errors": "Anywhere",
}
"""By the first name of a module: when its errors are met. The order is that of the page."""


@dataclass(frozen=True)
class Message:
    """What is raised somewhere, and what tells it from other messages."""

    kind: str
    parts: tuple[str, ...]
    """What is said, in turn with what is filled in: the first and the last are said."""
    module: str

    @property
    def text(self) -> str:
        return "".join(
            part if place % 2 == 0 else f"‹{part}›" if part.isidentifier() else "…"
            for place, part in enumerate(self.parts)
        )

    @property
    def said(self) -> list[list[str]]:
        """The words that are always the same, in stretches without a gap."""
        stretches = [words_of(part) for part in self.parts[::2]]
        return [words for words in stretches if words]


def words_of(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:[_'’][^\W_]+)*", text.lower())


def messages() -> list[Message]:
    """Return every message once, in the order of the page."""
    found: dict[tuple[str, str], Message] = {}
    order = list(WHERE)
    for path in sorted(SOURCES.rglob("*.py"), key=lambda p: (order.index(area(p)), p)):
        for message in _in_module(path):
            found.setdefault((message.kind, message.text), message)
    return list(found.values())


def area(path: Path) -> str:
    """Return the first name of a module; those that raise nothing belong to the last."""
    name = path.relative_to(SOURCES).with_suffix("").parts[0]
    raises = any(re.search(rf"\b{kind}\(", path.read_text("utf-8")) for kind in CLASSES)
    assert name in WHERE or not raises, f"say in WHERE when the errors of {name} are met"
    return name if name in WHERE else "errors"


def _in_module(path: Path) -> Iterator[Message]:
    tree = ast.parse(path.read_text("utf-8"))
    module = ".".join(path.relative_to(SOURCES.parent).with_suffix("").parts)
    sentences = {
        node.name: [part.value for part in ast.walk(node) if isinstance(part, ast.Return)]
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
    if module == "heedmap.errors":
        # The one class that makes its message itself.
        missing = next(n for n in ast.walk(tree) if isinstance(n, ast.JoinedStr))
        yield Message("MissingExtraError", _parts_of(missing), module)
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        for kind in _kinds_of(node.func):
            if kind == "MissingExtraError":
                continue
            given = node.args[0]
            if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute):
                # "…".rstrip() and the like.
                given = given.func.value
            if isinstance(given, ast.Call) and isinstance(given.func, ast.Name):
                [given] = [part for part in sentences[given.func.id] if part is not None]
            branches = [given.body, given.orelse] if isinstance(given, ast.IfExp) else [given]
            for branch in branches:
                yield Message(kind, _parts_of(branch), module)


def _kinds_of(called: ast.expr) -> list[str]:
    """Return which classes of errors a call makes one of, if any."""
    if isinstance(called, ast.IfExp):
        return _kinds_of(called.body) + _kinds_of(called.orelse)
    return [called.id] if isinstance(called, ast.Name) and called.id in CLASSES else []


def _parts_of(text: ast.expr) -> tuple[str, ...]:
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        return (text.value,)
    assert isinstance(text, ast.JoinedStr), f"not a message that can be read: {ast.unparse(text)}"
    parts = [""]
    for piece in text.values:
        if isinstance(piece, ast.Constant):
            parts[-1] += str(piece.value)
        elif isinstance(piece, ast.FormattedValue):
            parts += [ast.unparse(piece.value), ""]
    return tuple(parts)


def page() -> str:
    """Return the catalogue as a page of Markdown."""
    lines = [
        "# What heedmap raises",
        "",
        "Made from the sources: `python -m tests.errors_catalogue > docs/errors.md`.",
        "",
        "Each line is one message. It is raised, before anything is computed or written, when what",
        "it says “must” be so is not; then comes what was found instead, and behind the full stop",
        "what to do, where the rule alone does not tell. In place of … and of what is in ‹ › the",
        "message has the names, sizes or values of the case. The classes stand at the end.",
        "Besides, an index, a dimension or a shape that torch would refuse of a tensor is refused",
        "of a map with torch's own class of error: `IndexError`, `RuntimeError` or `ValueError`.",
    ]
    title = ""
    for message in messages():
        wanted = WHERE[message.module.split(".")[1]]
        if wanted != title:
            title = wanted
            lines += ["", f"## {title}", ""]
        lines.append(f"- **{message.kind}** {message.text}")
    lines += ["", "## The classes", ""]
    for name in sorted(CLASSES):
        kind = getattr(errors, name)
        bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
        lines.append(f"- **{name}** ({bases}): {(kind.__doc__ or '').splitlines()[0]}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
