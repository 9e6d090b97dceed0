"""What the parts of the server say to one another (ASGI), and how a request is refused."""

import importlib
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from heedmap.errors import MissingExtraError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

RETRY: Header = (b"retry-after", b"1")


def require(*packages: str) -> None:
    """Refuse to go on without packages that the extra ``explore`` brings.

    Raises:
        MissingExtraError: for the first of them that is not installed.
    """
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise MissingExtraError(package, "explore") from error


def json_bytes(answer: Any) -> bytes:
    """Return an answer as JSON.

    >>> json_bytes({"error": "a é"}).decode()
    '{"error":"a é"}'
    """
    text = json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # File names and broken texts may hold what is no character.
    return text.encode("utf-8", "replace")


def error_bytes(words: str) -> bytes:
    """Return what a refusal says, in one line."""
    return json_bytes({"error": " ".join(words.split())})


async def send_whole(send: Send, status: int, headers: Iterable[Header], body: bytes) -> None:
    """Send an answer at once."""
    length = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [*headers, length]},
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_error(send: Send, status: int, words: str, headers: Iterable[Header] = ()) -> None:
    """Send a refusal."""
    kind = (b"content-type", b"application/json")
    await send_whole(send, status, [kind, *headers], error_bytes(words))
