"""One connection: how long it may take, how much it may send, and how it is refused.

What is refused here is refused before anything of ours has seen a request: heads that are too long
or never end, requests on top of others, addresses that are not paths.
"""

from __future__ import annotations

import asyncio
from typing import Any

from heedmap.explore.asgi import error_bytes, require
from heedmap.explore.limits import Limits


class _Refused(Exception):
    """A request that no application sees."""


def bounded_connections(limits: Limits) -> type[asyncio.Protocol]:
    """Return the class of connections within these limits, for uvicorn.

    Uvicorn waits for a request as long as it takes, keeps whatever a head brings, and takes on
    requests before the answer to the last one is out.

    Raises:
        MissingExtraError: if uvicorn or httptools is not installed.
    """
    require("uvicorn", "httptools")
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Connection(HttpToolsProtocol):
        """A connection that is hung up on when it takes too long or too much."""

        def connection_made(self, transport: Any) -> None:
            self.reading = ""  # "head", "body", or nothing
            self.head_bytes = self.request_bytes = 0
            self.refusal = 400, "the request must be HTTP/1.1 with a path; it is not."
            self.deadline: asyncio.TimerHandle | None = None
            self.unread: asyncio.TimerHandle | None = None
            super().connection_made(transport)
            # Whatever was not taken by the client counts as unread, however little it is.
            transport.set_write_buffer_limits(high=0)
            if len(self.connections) > limits.max_connections:
                transport.abort()
            self.expect_within(limits.head_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            self.expect_nothing()
            self.resume_writing()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if not self.reading and not self.deadline and not self.answering:
                self.expect_within(limits.head_seconds)
            super().data_received(data)
            if self.reading:
                self.request_bytes += len(data)
            if self.reading == "head" and self.request_bytes > limits.max_head_bytes:
                self.refuse_head()
                self.send_400_response("")
            # Chunks of a byte each come with five bytes around them.
            elif self.request_bytes > limits.max_head_bytes + 8 * limits.max_body_bytes:
                self.transport.abort()

        def on_message_begin(self) -> None:
            # The client was told of nothing yet that it could have asked this for.
            if self.answering:
                self.transport.abort()
                raise _Refused
            super().on_message_begin()
            self.reading, self.head_bytes, self.request_bytes = "head", 0, 0

        def on_header(self, name: bytes, value: bytes) -> None:
            # Nobody needs what stands behind a body, and it must not pass for a checked header.
            if self.reading == "head":
                self.head_bytes += len(name) + len(value) + 4
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            if self.head_bytes + len(self.url) > limits.max_head_bytes:
                self.refuse_head()
                raise _Refused
            # An address with a host would say what the Host header says, differently perhaps.
            assert self.parser is not None
            known = self.parser.get_http_version() in ("1.0", "1.1")
            if not (known and self.url.startswith(b"/")):
                raise _Refused
            self.reading = "body"
            self.expect_within(limits.body_seconds)
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self.reading = ""
            self.request_bytes = 0
            self.expect_nothing()
            super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            """Refuse the request, whatever uvicorn would say of it in `msg`."""
            if self.answering and self.cycle.response_started:
                self.transport.abort()
                return
            status, words = self.refusal
            body = error_bytes(words)
            head = (
                f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self.transport.close()

        def refuse_head(self) -> None:
            most = limits.max_head_bytes
            self.refusal = 431, f"address and headers must be at most {most} bytes; got more."

        @property
        def answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def expect_within(self, seconds: float) -> None:
            self.expect_nothing()
            self.deadline = self.loop.call_later(seconds, self.transport.abort)

        def expect_nothing(self) -> None:
            if self.deadline:
                self.deadline.cancel()
                self.deadline = None

        def pause_writing(self) -> None:
            super().pause_writing()
            self.unread = self.loop.call_later(limits.unread_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self.unread:
                self.unread.cancel()
                self.unread = None

    return Connection
