"""The real examples of the lesson: models, sounds and films, looked at when the page asks."""

from __future__ import annotations

import json
import threading
from collections import deque
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

MOST_SENTENCES = 4
"""Of how many sentences the maps are kept open; the oldest is closed for the next."""


class Examples:
    """What the program can look at when the page asks.

    Attributes:
        doing: What is going on, as a line for people; empty if nothing is.
    """

    def __init__(self) -> None:
        """Begin with nothing loaded."""
        self.doing = ""
        self._numbers = 0
        self._scenes: dict[int, tuple[Explorer, App]] = {}
        self._sentences: deque[int] = deque()
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

        def make(tell: Progress) -> dict[str, Any]:
            described, scene = look_at(text, tell)
            number = self._opened(scene, desk)
            self._sentences.append(number)
            if len(self._sentences) > MOST_SENTENCES:
                explorer, _ = self._scenes.pop(self._sentences.popleft())
                explorer.close()
            return described | {"scene": number}

        return self._one_at_a_time(make)

    def timeline(self, name: str, desk: Desk) -> dict[str, Any]:
        """Return a sound or a film with its parts, and the number of its scene."""
        from heedmap.lesson import timelines

        def make(tell: Progress) -> tuple[Timeline, int]:
            # Another request may have made it while this one waited.
            if name not in self._timelines:
                made = getattr(timelines, name)(tell)
                self._timelines[name] = made, self._opened(made.scene, desk)
            return self._timelines[name]

        made, number = self._one_at_a_time(make)
        return made.described() | {"scene": number}

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
        """Open a scene, while nothing else runs, and return its number."""
        explorer = Explorer(scene)
        self._numbers += 1
        self._scenes[self._numbers] = explorer, application(map_routes(explorer, desk))
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
