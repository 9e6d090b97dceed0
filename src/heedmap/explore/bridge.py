"""The live map without a port: requests come and answers go as messages.

A message from the page is ``{"id", "method", "path", "body"}``, or ``{"id", "cancel": true}`` when
it wants the answer no more. Of an answer goes first ``{"id", "status", "type", "retry"}``, then
``{"id", "piece": true}`` with each piece of its body in a buffer, and in the end ``{"id", "end":
true}``.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from heedmap.explore.app import make_app
from heedmap.explore.asgi import App, Message
from heedmap.explore.desk import Desk
from heedmap.explore.explorer import Explorer
from heedmap.explore.limits import Limits

Answer = Callable[[dict[str, Any], list[bytes]], None]


class Bridge:
    """Answers messages by the application that the server has, in a thread of its own."""

    def __init__(self, explorer: Explorer, answer: Answer) -> None:
        """Begin.

        Args:
            explorer: What is asked; it is closed with the bridge.
            answer: Called, from the thread, with each message and its buffers.
        """
        limits = Limits()
        self._explorer, self._answer = explorer, answer
        self._desk = Desk(
            workers=limits.workers, max_waiting=limits.max_waiting, max_unread=limits.max_unread
        )
        self._app = make_app(explorer, self._desk)
        self._left: dict[Any, asyncio.Event] = {}
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="heedmap-bridge", daemon=True)
        self._thread.start()

    def take(self, message: Mapping[str, Any]) -> None:
        """Take a message of the page; what is no message of ours is passed over."""
        if message.get("cancel"):
            self._loop.call_soon_threadsafe(self._leave, message.get("id"))
        elif isinstance(message.get("path"), str):
            asyncio.run_coroutine_threadsafe(self._respond(dict(message)), self._loop)

    def close(self) -> None:
        """End whatever is under way, and the thread."""
        # A loop that has ended has been closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._closing.set)
        self._desk.close(Limits().stop_seconds)
        self._thread.join()
        self._explorer.close()

    def _run(self) -> None:
        # What is still under way at the end is cancelled.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._closing.wait())

    def _leave(self, number: Any) -> None:
        if number in self._left:
            self._left[number].set()

    async def _respond(self, message: dict[str, Any]) -> None:
        number = message["id"]
        left = self._left[number] = asyncio.Event()
        try:
            await call(
                self._app,
                message,
                left,
                lambda told, pieces: self._answer({"id": number, **told}, pieces),
            )
        finally:
            del self._left[number]
        self._answer({"id": number, "end": True}, [])


async def call(app: App, message: Mapping[str, Any], left: asyncio.Event, tell: Answer) -> None:
    """Send a request to an application, and tell its answer.

    Args:
        app: The application.
        message: The request.
        left: Set when nobody waits for the answer any more.
        tell: Called with what there is to tell, and the pieces of the body.
    """
    address = urlsplit(message["path"])
    body = str(message.get("body") or "").encode()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": message.get("method", "GET"),
        "scheme": "http",
        "path": unquote(address.path),
        "raw_path": address.path.encode(),
        "query_string": address.query.encode(),
        "root_path": "",
        "headers": [],
        "client": None,
        "server": None,
    }
    unread = [body]

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(part: Message) -> None:
        if part["type"] == "http.response.start":
            headers = {name.decode().lower(): value.decode() for name, value in part["headers"]}
            told = {"status": part["status"], "type": headers.get("content-type", "")}
            tell(told | {"retry": headers.get("retry-after", "")}, [])
        elif part["type"] == "http.response.body" and part.get("body"):
            tell({"piece": True}, [part["body"]])

    await app(scope, receive, send)
