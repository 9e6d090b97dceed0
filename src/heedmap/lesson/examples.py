"""The real examples of the lesson."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedmap.explore.desk import Desk

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


class Examples:
    """What the program can look at when the page asks."""

    def routes(self, desk: Desk) -> list[BaseRoute]:
        """Return where they are asked for."""
        return []

    def close(self) -> None:
        """Give back what was loaded."""
