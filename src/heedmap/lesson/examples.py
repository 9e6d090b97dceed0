"""The real examples of the lesson: models, sounds and films, looked at when the page asks."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from heedmap.explore.app import application, computed, map_routes
from heedmap.explore.asgi import App, Receive, Send
from heedmap.explore.asgi import Scope as AsgiScope
from heedmap.explore.asked import Malformed, number_of
from heedmap.explore.desk import Desk
from heedmap.explore.explorer import Explorer
from heedmap.explore.scene import Scene
from heedmap.look.running import Progress

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from heedmap.lesson.timelines import Timeline

MOST_SCENES = 4
"""How many maps are kept open; the oldest is closed for the next."""


class Examples:
    """What the program can look at when the page asks.

    Attributes:
        doing: What is going on, as a line for people; empty if nothing is.
    """

    def __init__(self) -> None:
        """Begin with nothing loaded."""
        self.doing = ""
        self._numbers = 0
        self._scenes: OrderedDict[int, tuple[Explorer, App]] = OrderedDict()
        self._timelines: dict[str, tuple[Timeline, int]] = {}
        # Models are loaded and run one at a time; a map may be asked for meanwhile.
        self._running = threading.Lock()

    def routes(self, desk: Desk) -> list[BaseRoute]:
        """Return where they are asked for.

        Args:
            desk: Where that is computed.
        """
        from starlette.routing import Mount, Route

        answers = _Answers(self, desk)
        return [
            Route("/doing", answers.doing),
            Route("/sentences", answers.sentence, methods=["POST"]),
            Route("/timelines/{name}", answers.timeline),
            Route("/timelines/{name}/rows/{query}", answers.row),
            Mount("/scenes/{number}", answers.scene),
        ]

    def sentence(self, text: str, desk: Desk) -> dict[str, Any]:
        """Return which words of a sentence look at which, and the number of its scene."""
        from heedmap.lesson.sentences import look_at

        described, scene = self._one_at_a_time(lambda tell: look_at(text, tell))
        return described | {"scene": self._opened(scene, desk)}

    def timeline(self, name: str, desk: Desk) -> dict[str, Any]:
        """Return a sound or a film with its parts, and the number of its scene."""
        from heedmap.lesson import timelines

        def make(tell: Progress) -> Timeline:
            # Another request may have made it while this one waited.
            known = self._timelines.get(name)
            return known[0] if known else getattr(timelines, name)(tell)

        made = self._one_at_a_time(make)
        known = self._timelines.get(name)
        if known is None or known[1] not in self._scenes:
            self._timelines[name] = known = (made, self._opened(made.scene, desk))
        return made.described() | {"scene": known[1]}

    def row(self, name: str, query: int) -> dict[str, Any]:
        """Return what one moment of a sound or film looks at.

        Raises:
            Malformed: for a timeline that was not asked for before, or a moment that it lacks.
        """
        if name not in self._timelines:
            raise Malformed(f"timeline must be opened first; got {name}.")
        made, _ = self._timelines[name]
        size = len(made.scene.axes[0])
        if query >= size:
            raise Malformed(f"query must be at most {size - 1}; got {query}.")
        return made.row(query)

    def app_of(self, number: int) -> App | None:
        """Return what answers for a scene, or None if it was closed."""
        found = self._scenes.get(number)
        return found and found[1]

    def close(self) -> None:
        """Give back what was loaded."""
        while self._scenes:
            _, (explorer, _) = self._scenes.popitem()
            explorer.close()

    def _one_at_a_time(self, work: Callable[[Progress], Any]) -> Any:
        with self._running:
            try:
                return work(self._tell)
            finally:
                self.doing = ""

    def _tell(self, line: str) -> None:
        self.doing = line

    def _opened(self, scene: Scene, desk: Desk) -> int:
        explorer = Explorer(scene)
        with self._running:
            self._numbers += 1
            self._scenes[self._numbers] = explorer, application(map_routes(explorer, desk))
            closed = self._scenes.popitem(last=False) if len(self._scenes) > MOST_SCENES else None
        if closed:
            closed[1][0].close()
        return self._numbers


class _Answers:
    """What the page asks, read strictly."""

    def __init__(self, examples: Examples, desk: Desk) -> None:
        self.examples, self.desk = examples, desk

    async def doing(self, request: Request) -> Response:
        line = self.examples.doing
        return await computed(request, self.desk, lambda _: {"line": line}, small=True)

    async def sentence(self, request: Request) -> Response:
        text = _text_of(await request.body())
        return await computed(request, self.desk, lambda _: self.examples.sentence(text, self.desk))

    async def timeline(self, request: Request) -> Response:
        name = _known(request.path_params["name"])
        return await computed(request, self.desk, lambda _: self.examples.timeline(name, self.desk))

    async def row(self, request: Request) -> Response:
        name = _known(request.path_params["name"])
        query = number_of(request.path_params["query"], "query")
        return await computed(
            request, self.desk, lambda _: self.examples.row(name, query), small=True
        )

    async def scene(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        from starlette.exceptions import HTTPException

        app = self.examples.app_of(number_of(scope["path_params"]["number"], "scene"))
        if app is None:
            raise HTTPException(404)
        await app(scope, receive, send)


def _known(name: str) -> str:
    from starlette.exceptions import HTTPException

    if name not in ("voices", "film"):
        raise HTTPException(404)
    return name


def _text_of(body: bytes) -> str:
    """Return the sentence that a request brings."""
    try:
        text = json.loads(body)["text"]
    except (ValueError, TypeError, KeyError):
        text = None
    if not isinstance(text, str):
        raise Malformed('the body must be JSON with a "text"; it is not.')
    return text
