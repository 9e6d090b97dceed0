"""Self-attention that you can look into.

The output **and** the exact weights, at the memory of the output alone::

    output, weights = heedmap.attention(query, key, value, mask=Padding(valid) & Causal())
    weights[0, 3, 40_000].topk(5)      # the five most looked at, of a map that is never stored
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedmap.attention import attention
    from heedmap.attention_map import AttentionMap
    from heedmap.axes import Axis, Sequence
    from heedmap.budget import dense_budget
    from heedmap.errors import HeedmapError
    from heedmap.masks import Causal, Documents, Mask, Padding, Visible, Window
    from heedmap.recording import open as open
    from heedmap.seen import Seen
    from heedmap.summary import Summary
    from heedmap.watch import watch

# Not `open`: after ``from heedmap import *`` the built-in one must still be there.
__all__ = [
    "AttentionMap",
    "Axis",
    "Causal",
    "Documents",
    "HeedmapError",
    "Mask",
    "Padding",
    "Seen",
    "Sequence",
    "Summary",
    "Visible",
    "Window",
    "attention",
    "dense_budget",
    "watch",
]

# Loaded when they are first asked for, so that `heedmap --help` need not wait for torch.
_MODULES = {
    "AttentionMap": "attention_map",
    "Axis": "axes",
    "Causal": "masks",
    "Documents": "masks",
    "HeedmapError": "errors",
    "Mask": "masks",
    "Padding": "masks",
    "Seen": "seen",
    "Sequence": "axes",
    "Summary": "summary",
    "Visible": "masks",
    "Window": "masks",
    "attention": "attention",
    "dense_budget": "budget",
    "open": "recording",
    "watch": "watch",
}


class _Package(ModuleType):
    """This package, in which `attention` and `watch` are functions and never their modules.

    Importing a module of a package puts it there under its name.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("attention", "watch") and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


sys.modules[__name__].__class__ = _Package
