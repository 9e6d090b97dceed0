"""Sounds, films and texts, served in ranges, as they were when the map was opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from heedmap.explore.asgi import Message, Receive, Scope, Send
from heedmap.explore.scene import Media

if TYPE_CHECKING:
    from starlette.responses import Response


class Unavailable(Exception):
    """A file that is no longer what it was.

    Attributes:
        status: 410 if it is gone, 409 if another one is in its place.
    """

    def __init__(self, status: int, words: str) -> None:
        """Say so in `words`."""
        super().__init__(words)
        self.status = status


def content_type_of(media: Media) -> str:
    """Return the type to serve media as, which is never one that a browser would run.

    >>> content_type_of(Media("text", "text/html", "a.html"))
    'text/plain; charset=utf-8'
    >>> content_type_of(Media("audio", "image/svg+xml", "a.wav"))
    'application/octet-stream'
    """
    if media.kind == "text":
        return "text/plain; charset=utf-8"
    fits = media.content_type.startswith(f"{media.kind}/")
    return media.content_type if fits else "application/octet-stream"


def served(media: Media) -> MediaFile | Words:
    """Return what answers requests for media."""
    if media.path is None:
        return Words(media.words, content_type_of(media))
    return MediaFile(media.path, media.title, content_type_of(media))


class Words:
    """Answers with a text that has no file."""

    def __init__(self, words: str, content_type: str) -> None:
        """Answer with `words`."""
        self.content = words.encode("utf-8", "replace")
        self.content_type = content_type

    def response(self) -> Response:
        """Return the answer to one request."""
        from starlette.responses import Response

        return Response(self.content, media_type=self.content_type)


class MediaFile:
    """Answers with a file, or a part of it, for as long as nobody touches it."""

    def __init__(self, path: Path, title: str, content_type: str) -> None:
        """Remember what the file at `path` is now."""
        # A later change of the working directory must not lead elsewhere.
        self.path = path.absolute()
        self.title = title
        self.content_type = content_type
        try:
            self.found: os.stat_result | None = self.path.stat()
        except OSError:
            self.found = None

    def check(self) -> os.stat_result:
        """Return what is known of the file.

        Raises:
            Unavailable: if it is not there, or is not the one that was there at first.
        """
        try:
            now = self.path.stat()
        except OSError:
            now = None
        if now is None or self.found is None:
            raise Unavailable(410, f"{self.title} is no longer there. Put it back and start anew.")
        if _marks(now) != _marks(self.found):
            raise Unavailable(
                409, f"{self.title} has changed since the map was opened. Start anew."
            )
        return self.found

    def response(self) -> _FileAnswer:
        """Return the answer to one request."""
        return _FileAnswer(self)


class _FileAnswer:
    """Sends a file; breaks off, rather than going on with another, when it changes midway."""

    def __init__(self, file: MediaFile) -> None:
        self.file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.exceptions import HTTPException
        from starlette.responses import FileResponse

        start: Message | None = None

        async def send_checked(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                if message["status"] >= 400:
                    raise HTTPException(
                        message["status"],
                        "Range must name bytes that the file has; it does not.",
                        {k.decode(): v.decode() for k, v in message["headers"] if b"range" in k},
                    )
                # Until there is something to send, the answer can still become an error.
                start = message
                return
            # What was read before this moment is the file's as it was at first.
            self.file.check()
            if start is not None:
                await send(start)
                start = None
            await send(message)

        await FileResponse(
            self.file.path,
            stat_result=self.file.check(),
            media_type=self.file.content_type,
        )(scope, receive, send_checked)


def _marks(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
