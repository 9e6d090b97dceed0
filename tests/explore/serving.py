"""A live map to be served in tests, and clients that write what no browser would."""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from heedmap import AttentionMap
from heedmap.axes import Axis
from heedmap.explore.asgi import App, Message
from heedmap.explore.explorer import Explorer
from heedmap.explore.limits import Limits
from heedmap.explore.running import Running
from heedmap.explore.scene import Media, Scene, SceneLayer
from heedmap.explore.stopping import Stopped

PATIENCE_SECONDS = 10.0
"""How long a test waits for what must come, before it fails."""

SHORT = Limits(head_seconds=0.3, body_seconds=0.3, unread_seconds=0.3, max_connections=80)
SOUND = bytes(range(256)) * 40_000
"""10 MB: more than lies in the buffers of a connection."""


def small_scene(media: tuple[Media, ...] = ()) -> Scene:
    x = torch.randn(2, 300, 4, generator=torch.Generator().manual_seed(0))
    weights = AttentionMap.from_factors(x, x)
    layer = SceneLayer("map", "self", weights, 0, 0, ("0", "1"), ("", ""))
    return Scene("a map", (layer,), (Axis.of_positions(300),), media=media)


class GatedExplorer(Explorer):
    """Computes tiles only while its gate is open, and notes down what it is asked."""

    def __init__(self, *, media: tuple[Media, ...] = (), tile_bytes: int = 0) -> None:
        super().__init__(small_scene(media))
        self.gate = threading.Event()
        self.begun, self.stopped, self.closed = (threading.Event() for _ in range(3))
        self.asked: list[tuple[Any, ...]] = []
        self.tile_bytes = tile_bytes

    def tile(
        self,
        layer: int,
        head: int,
        statistic: str,
        zoom: int,
        x: int,
        y: int,
        stop: Callable[[], bool] = lambda: False,
    ) -> bytes:
        self.asked.append((layer, head, statistic, zoom, x, y))
        self.begun.set()
        while not self.gate.wait(0.002):
            if stop():
                self.stopped.set()
                raise Stopped
        if self.tile_bytes:
            return bytes(self.tile_bytes)
        return super().tile(layer, head, statistic, zoom, x, y, stop)

    def close(self) -> None:
        super().close()
        self.closed.set()


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes
    header_names: tuple[str, ...] = ()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert self.headers["content-type"] == "application/json"
        assert list(self.json) == ["error"]
        assert "\n" not in self.json["error"]
        return self.json["error"]

    @property
    def tiles(self) -> dict[int, bytes]:
        """The tiles that `POST /tiles` gave, by their place in the list."""
        found, at = {}, 0
        while at < len(self.body):
            place, size = struct.unpack_from("<II", self.body, at)
            found[place] = self.body[at + 8 : at + 8 + size]
            at += 8 + size
        assert at == len(self.body)
        return found


class Client:
    """Somebody at the other end of a socket, with the cookie where it is not told otherwise."""

    def __init__(self, running: Running) -> None:
        self.port = int(running.url.split(":")[2].split("/")[0])
        self.host = f"127.0.0.1:{self.port}"
        self.origin = f"http://{self.host}"
        self.token = running.url.partition("token=")[2]
        self.cookie = ""

    def open(self) -> "Client":
        """Exchange the token for the cookie."""
        answer = self.raw(f"GET /open?token={self.token} HTTP/1.1\r\nHost: {self.host}\r\n\r\n")
        assert answer is not None
        assert answer.status == 303, answer
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS)

    def head(self, target: str, method: str = "GET", *lines: str) -> str:
        """Return a head without its last empty line, as the page would write it."""
        parts = [f"{method} {target} HTTP/1.1", f"Host: {self.host}", f"Cookie: {self.cookie}"]
        return "".join(f"{line}\r\n" for line in [*parts, *lines])

    def raw(self, text: str | bytes) -> Answer | None:
        """Send these bytes and return the answer; None where there is none."""
        with self.connect() as connection:
            try:
                connection.sendall(text if isinstance(text, bytes) else text.encode("latin-1"))
                return read_answer(connection, head=text[:4] in ("HEAD", b"HEAD"))
            except ConnectionError:
                return None

    def get(self, target: str, *lines: str, method: str = "GET") -> Answer:
        answer = self.raw(self.head(target, method, *lines) + "\r\n")
        assert answer is not None
        return answer

    def posting(self, body: bytes, *lines: str, target: str = "/tiles") -> bytes:
        lines = (f"Origin: {self.origin}", f"Content-Length: {len(body)}", *lines)
        return (self.head(target, "POST", *lines) + "\r\n").encode() + body

    def post(self, body: bytes) -> Answer:
        answer = self.raw(self.posting(body))
        assert answer is not None
        return answer

    def is_healthy(self) -> bool:
        answer = self.raw(f"GET /health HTTP/1.1\r\nHost: {self.host}\r\n\r\n")
        return answer is not None and answer.status == 200 and answer.json == {"status": "ok"}


def read_answer(connection: socket.socket, *, head: bool = False) -> Answer | None:
    """Return the next answer of a connection, whole; None if it was closed before."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    lines, _, rest_of_it = data.partition(b"\r\n\r\n")
    body = bytearray(rest_of_it)
    first, *rest = lines.decode("latin-1").split("\r\n")
    pairs = [line.lower().partition(":")[::2] for line in rest]
    values = [line.partition(":")[2].strip() for line in rest]
    headers = {name: value for (name, _), value in zip(pairs, values, strict=True)}
    status = int(first.split()[1])
    chunked = headers.get("transfer-encoding") == "chunked"
    length = 0 if head or status == 304 else int(headers.get("content-length", -1))
    while not (body.endswith(b"0\r\n\r\n") if chunked else 0 <= length <= len(body)):
        piece = connection.recv(65536)
        if not piece:
            assert not chunked, "the answer broke off"
            assert length < 0, "the answer broke off"
            break
        body += piece
    names = tuple(name for name, _ in pairs)
    return Answer(status, headers, _unchunked(bytes(body)) if chunked else bytes(body), names)


def _unchunked(body: bytes) -> bytes:
    pieces, at = [], 0
    while at < len(body):
        end = body.index(b"\r\n", at)
        first, at = end + 2, end + 4 + int(body[at:end], 16)
        pieces.append(body[first : at - 2])
    return b"".join(pieces)


def ask(
    app: App, target: str, *, method: str = "GET", body: bytes = b"", headers: Sequence[Any] = ()
) -> Answer:
    """Return what an application answers within this process, to a client that stays."""
    return asyncio.run(_ask(app, target, method, body, headers))


async def _ask(
    app: App, target: str, method: str, body: bytes, headers: Sequence[tuple[bytes, bytes]]
) -> Answer:
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": list(headers),
    }
    asked: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if not asked:
            await asyncio.Event().wait()
        return asked.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await app(scope, receive, send)
    start, *pieces = sent
    given = {name.decode(): value.decode() for name, value in start["headers"]}
    whole = b"".join(piece.get("body", b"") for piece in pieces)
    return Answer(start["status"], given, whole, tuple(given))
