"""Settings of the documentation site: .venv/bin/python -m sphinx -n -W docs docs/_build/html"""

import logging
import re
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

from jaxtyping import AbstractArray
from sphinx.application import Sphinx

from heedmap import errors
from heedmap.lesson.offline import write_lesson

project = "heedmap"
author = "the authors of heedmap"
release = metadata.version("heedmap")
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_autodoc_typehints",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
# The function in this file cannot be kept for the next build, which then begins anew.
suppress_warnings = ["config.cache"]

html_theme = "furo"
html_title = "heedmap"
html_static_path = ["_static", "../src/heedmap/fonts"]
html_css_files = ["fonts.css", "site.css"]
html_copy_source = False
html_show_copyright = False
# Readers copy what they can run: no prompts, no answers.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

myst_heading_anchors = 3

napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Cost", "Exactness", "Source"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autoclass_content = "class"
always_use_bars_union = True
# `x` in a docstring is code; names of heedmap become links, see below.
default_role = "code"

nitpick_ignore_regex = [
    # The site is built without a network, so the pages of other projects are not known to it.
    (
        r"py:.*",
        r"(torch|numpy|matplotlib|collections|pathlib|contextlib|abc|typing|os|pyannote|Ellipsis)\b.*",
    ),
    # Named in docstrings for those who read the sources; not public.
    (
        r"py:.*",
        r"heedmap\.(summary\.Answers|analysis\.spoken|speech\.summary|look\.choosing\.choose)",
    ),
]
# An extension shows what every logger has to say, and fontTools tells of each table of a font.
logging.getLogger("fontTools").setLevel(logging.WARNING)
# Of a version of the extension that is older than this Sphinx; nothing that we could mend.
warnings.filterwarnings("ignore", module="sphinx_autodoc_typehints")


CHINESE = "\u2018-\u201d\u3000-\u303f\u4e00-\u9fff\uff00-\uffef"
HIDDEN_COLON = "\ue000"


def typehints_formatter(annotation: Any, _: Any) -> str | None:
    """Return how an array type is written, or None for other types, which are links."""
    if isinstance(annotation, type) and issubclass(annotation, AbstractArray):
        array = annotation.array_type.__name__
        return f'``{annotation.dtype.__name__}[{array}, "{annotation.dim_str}"]``'
    return None


def hide_colons(app: Sphinx, what: str, *rest: Any) -> None:
    """Hide colons in sentences that napoleon would take for the end of a type."""
    del app
    lines: list[str] = rest[-1]
    for number, line in enumerate(lines):
        is_sentence = number == 0 and what == "property"
        if is_sentence or (number and lines[number - 1].strip() == "Returns:"):
            lines[number] = re.sub("(?<!:):(?!:)", HIDDEN_COLON, line)


def mend(app: Sphinx, what: str, *rest: Any) -> None:
    """Show colons again, and make links of errors and of names of heedmap in single backticks."""
    del app, what
    lines: list[str] = rest[-1]
    for number, line in enumerate(lines):
        linked = re.sub(r"(?<![:`])`(heedmap\.[\w.]+)`(?!`)", r":py:obj:`~\1`", line)
        linked = re.sub(r"^:raises (\w+Error):", _raised, linked)
        lines[number] = linked.replace(HIDDEN_COLON, ":")
        if linked.startswith(":rtype:") and number and lines[number - 1].startswith(".. rubric"):
            lines[number - 1 : number + 1] = [linked, "", lines[number - 1]]


def _raised(found: re.Match[str]) -> str:
    name = found[1]
    return f":raises {f'~heedmap.errors.{name}' if hasattr(errors, name) else name}:"


def link_names(app: Sphinx, page: str, source: list[str]) -> None:
    """Make links of public names in backticks: pages then read well without Sphinx, too."""
    del page
    pages = (Path(app.srcdir) / "reference").glob("*.md")
    texts = [path.read_text(encoding="utf-8") for path in pages]
    known = set(re.findall(r"^\.\. auto(?!module)\w+:: ([\w.]+)", "\n".join(texts), re.MULTILINE))

    def linked(code: re.Match[str]) -> str:
        name = code[1]
        return f"{{py:obj}}`{name}`" if {name, name.rpartition(".")[0]} & known else code[0]

    parts = re.split(r"(^```.*?^```)", source[0], flags=re.DOTALL | re.MULTILINE)
    parts[::2] = [re.sub(r"(?<![`}])`(heedmap[\w.]+)`(?!`)", linked, part) for part in parts[::2]]
    source[0] = "".join(parts)


def join_chinese_lines(app: Sphinx, page: str, source: list[str]) -> None:
    """Join lines of Chinese, between which browsers would put a blank."""
    del app, page
    joined = re.sub(f"(?<=[{CHINESE}])\n *(?=[{CHINESE}])", "", source[0])
    joined = re.sub("(?<=[，。；：、（])\n *(?=[A-Za-z0-9`])", "", joined)
    source[0] = re.sub("(?<=[A-Za-z0-9`])\n *(?=[，。；：、（）])", "", joined)


def name_language(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
    """Tell browsers which pages are Chinese: fonts and screen readers go by it."""
    del app, template
    if page.startswith("zh/"):
        context["language"] = "zh-CN"


def write_the_lesson(app: Sphinx, error: Exception | None) -> None:
    """Put the lesson into the site, as the one file that it can be."""
    if error is None and app.builder.format == "html":
        write_lesson(Path(app.outdir) / "the-lesson.html", force=True)


def setup(app: Sphinx) -> None:
    """Hang in what docstrings need, before and after napoleon reads them, and what pages need."""
    app.connect("autodoc-process-docstring", hide_colons, priority=400)
    app.connect("autodoc-process-docstring", mend, priority=600)
    app.connect("source-read", link_names)
    app.connect("source-read", join_chinese_lines)
    app.connect("html-page-context", name_language)
    app.connect("build-finished", write_the_lesson)
