"""The routes of the live map, as `docs/explore.md` has them.

Nothing here says who may ask: in a network, that is for `heedmap.explore.guard`; a notebook asks
within its own process.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from heedmap.errors import ArgumentError, HeedmapError, InputError, UnsupportedError
from heedmap.explore import asked
from heedmap.explore.asgi import RETRY, App, Receive, Scope, Send, error_bytes, json_bytes, require
from heedmap.explore.desk import Busy, Desk, Order, Work
from heedmap.explore.explorer import Explorer
from heedmap.explore.media_files import Unavailable, served
from heedmap.explore.page_files import PAGE, PageFile, font_files, is_known, page_files
from heedmap.explore.stopping import Stopped

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Route

T = TypeVar("T")
Side = Literal["rows", "columns"]

logger = logging.getLogger(__name__)


def make_app(explorer: Explorer, desk: Desk, *, page: Path = PAGE) -> App:
    """Return an ASGI application that answers for one scene, to whoever asks.

    Args:
        explorer: What it asks.
        desk: Where that is computed; whoever made it closes it.
        page: The folder with the files of the page.

    Raises:
        MissingExtraError: if Starlette is not installed.
    """
    require("starlette")
    files = page_files(page) | font_files()
    return application([*PageRoutes(files).routes(), *map_routes(explorer, desk)])


def map_routes(explorer: Explorer, desk: Desk) -> list[Route]:
    """Return the routes of one scene: all but the page itself.

    Args:
        explorer: What they ask.
        desk: Where that is computed.
    """
    return [*_Media(explorer).routes(), *_Answers(explorer, desk).routes()]


def application(routes: Sequence[BaseRoute]) -> App:
    """Return an ASGI application of some routes, whose errors are told as those of the map are.

    Whether it is there is told at ``/health``, too.

    Raises:
        MissingExtraError: if Starlette is not installed.
    """
    require("starlette")
    from starlette.applications import Starlette
    from starlette.routing import Route

    inner = Starlette(
        routes=[Route("/health", _health), *routes], exception_handlers=_error_handlers()
    )
    # It would send whoever writes one slash too many to an address made of the Host header.
    inner.router.redirect_slashes = False

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await inner(scope, receive, send)
        # Starlette has answered with 500, or the answer had begun and ends here: the server closes
        # the connection, so that the client does not take it for whole.
        except Exception:
            logger.debug("%s failed", scope.get("path"), exc_info=True)

    return app


class PageRoutes:
    """The page itself."""

    def __init__(self, files: Mapping[str, PageFile]) -> None:
        """Serve these files, each by its path below ``/page/``; ``index.html`` at ``/``, too."""
        self.files = files

    def routes(self) -> list[Route]:
        """Return the routes that lead to them."""
        from starlette.routing import Route

        return [Route("/", self.file), Route("/page/{name:path}", self.file)]

    async def file(self, request: Request) -> Response:
        """Answer with one of them."""
        from starlette.exceptions import HTTPException
        from starlette.responses import Response

        found = self.files.get(request.path_params.get("name", "index.html"))
        if found is None:
            raise HTTPException(404)
        headers = {"etag": found.etag, "cache-control": "no-cache"}
        if is_known(found.etag, request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.content_type, headers=headers)


class _Media:
    """The sounds, films and texts, by the names that the description gives them."""

    def __init__(self, explorer: Explorer) -> None:
        self.media = {str(name): served(media) for name, media in enumerate(explorer.scene.media)}

    def routes(self) -> list[Route]:
        from starlette.routing import Route

        return [Route("/media/{name}", self.one)]

    async def one(self, request: Request) -> Any:
        from starlette.exceptions import HTTPException

        media = self.media.get(request.path_params["name"])
        if media is None:
            raise HTTPException(404)
        return media.response()


class _Answers:
    """What is computed, or at least looked up, when it is asked for."""

    def __init__(self, explorer: Explorer, desk: Desk) -> None:
        self.explorer, self.desk = explorer, desk

    def routes(self) -> list[Route]:
        from starlette.routing import Route

        one_map = "{layer}/{head}"
        return [
            Route("/description", self.description),
            Route("/axes/{number}", self.axis),
            Route(f"/tiles/{one_map}/{{statistic}}/{{zoom}}/{{x}}/{{y}}", self.tile),
            Route("/tiles", self.tiles, methods=["POST"]),
            Route(f"/thumbnails/{one_map}", self.thumbnail),
            Route(f"/progress/{one_map}", self.progress),
            Route(f"/cells/{one_map}/{{query}}/{{key}}", self.cell),
            Route(f"/rows/{one_map}/{{number}}", self.row),
            Route(f"/columns/{one_map}/{{number}}", self.column),
            Route(f"/rows/{one_map}/{{number}}/top", self.top_of_row),
            Route(f"/columns/{one_map}/{{number}}/top", self.top_of_column),
            Route(f"/blocks/{one_map}", self.block),
        ]

    async def description(self, request: Request) -> Response:
        return await self._computed(request, lambda _: self.explorer.description())

    async def axis(self, request: Request) -> Response:
        [number] = asked.numbers_of(request.path_params, "number")
        return await self._computed(request, lambda _: dict(self.explorer.axis(number)))

    async def tile(self, request: Request) -> Response:
        numbers = asked.numbers_of(request.path_params, "layer", "head", "zoom", "x", "y")
        layer, head, *place = numbers
        return await self._binary(
            request, self._tile(layer, head, request.path_params["statistic"], *place)
        )

    async def tiles(self, request: Request) -> Any:
        places = asked.tiles_of(await request.body())
        return _TileStream(self.desk, [self._tile(*place) for place in places])

    def _tile(
        self, layer: int, head: int, statistic: str, zoom: int, x: int, y: int
    ) -> Work[bytes]:
        return lambda stop: self.explorer.tile(layer, head, statistic, zoom, x, y, stop)

    async def thumbnail(self, request: Request) -> Response:
        layer, head = asked.numbers_of(request.path_params, "layer", "head")
        return await self._binary(request, lambda stop: self.explorer.thumbnail(layer, head, stop))

    async def progress(self, request: Request) -> Response:
        layer, head = asked.numbers_of(request.path_params, "layer", "head")
        return await self._computed(request, lambda _: self.explorer.progress(layer, head))

    async def cell(self, request: Request) -> Response:
        numbers = asked.numbers_of(request.path_params, "layer", "head", "query", "key")
        layer, head, query, key = numbers
        return await self._computed(request, lambda _: self.explorer.cell(layer, head, query, key))

    async def row(self, request: Request) -> Response:
        return await self._line("rows", request)

    async def column(self, request: Request) -> Response:
        return await self._line("columns", request)

    async def _line(self, side: Side, request: Request) -> Response:
        layer, head, number = asked.numbers_of(request.path_params, "layer", "head", "number")
        first = asked.number_of(_behind(request, "first"), "first")
        stop_at = asked.number_of(_behind(request, "stop"), "stop")
        bins = asked.number_of(_behind(request, "bins"), "bins", asked.MAX_BINS)
        return await self._computed(
            request,
            lambda stop: self.explorer.line(side, layer, head, number, first, stop_at, bins, stop),
        )

    async def top_of_row(self, request: Request) -> Response:
        return await self._top("rows", request)

    async def top_of_column(self, request: Request) -> Response:
        return await self._top("columns", request)

    async def _top(self, side: Side, request: Request) -> Response:
        layer, head, number = asked.numbers_of(request.path_params, "layer", "head", "number")
        count = asked.number_of(_behind(request, "count"), "count", asked.MAX_STRONGEST)
        return await self._computed(
            request, lambda stop: self.explorer.top(side, layer, head, number, count, stop)
        )

    async def block(self, request: Request) -> Response:
        layer, head = asked.numbers_of(request.path_params, "layer", "head")
        rows = asked.stretch_of(_behind(request, "rows"), "rows")
        columns = asked.stretch_of(_behind(request, "columns"), "columns")
        return await self._computed(
            request, lambda stop: self.explorer.block(layer, head, rows, columns, stop), small=False
        )

    async def _computed(
        self, request: Request, work: Work[dict[str, Any]], *, small: bool = True
    ) -> Response:
        """Return what a work gives, as JSON, which is made where it is computed."""
        return await computed(request, self.desk, work, small=small)

    async def _binary(self, request: Request, work: Work[bytes]) -> Response:
        from starlette.responses import Response

        tile = await _done(request, self.desk, work)
        return Response(tile, media_type="application/octet-stream")


class _TileStream:
    """Sends tiles as they are done, each behind its number and its length."""

    def __init__(self, desk: Desk, works: Sequence[Work[bytes]]) -> None:
        self.desk, self.works = desk, works

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.desk.take(self.works) as order:
            kind = (b"content-type", b"application/octet-stream")
            await send({"type": "http.response.start", "status": 200, "headers": [kind]})
            async with _stopped_when_left(receive, order):
                for _ in self.works:
                    number, tile = await order.next()
                    if isinstance(tile, Exception):
                        logger.debug("tile %d failed", number, exc_info=tile)
                        tile = b""
                    piece = struct.pack("<II", number, len(tile)) + tile
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _health(_: Request) -> Response:
    return _json(json_bytes({"status": "ok"}))


async def computed(
    request: Request, desk: Desk, work: Work[dict[str, Any]], *, small: bool = False
) -> Response:
    """Return what a work gives, as JSON, which is made where it is computed.

    Args:
        request: Who asks; whoever leaves stops the work.
        desk: Where it is computed.
        work: What gives the answer.
        small: Whether it takes no longer than a number does.
    """
    return _json(await _done(request, desk, lambda stop: json_bytes(work(stop)), small=small))


async def _done(request: Request, desk: Desk, work: Work[T], *, small: bool = False) -> T:
    """Return what a work gives, unless its client leaves before that."""
    with desk.take([work], small=small) as order:
        async with _stopped_when_left(request.receive, order):
            _, result = await order.next()
    if isinstance(result, Exception):
        raise result
    return result


@asynccontextmanager
async def _stopped_when_left(receive: Receive, order: Order[Any]) -> AsyncIterator[None]:
    """Stop an order as soon as its client closes the connection."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        order.stop()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching])


def _behind(request: Request, name: str) -> str:
    """Return the one value of a name behind the question mark."""
    return asked.only(request.query_params.getlist(name), name)


def _json(content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import Response

    return Response(content, status, headers, media_type="application/json")


def _error_handlers() -> dict[Any, Any]:
    """Return what is answered to each kind of error."""
    from starlette.exceptions import HTTPException

    retry = {name.decode(): value.decode() for name, value in [RETRY]}

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        words = "this address does not exist." if error.status_code == 404 else error.detail
        return _json(error_bytes(words), error.status_code, dict(error.headers or {}))

    async def malformed(_: Request, error: Exception) -> Response:
        return _json(error_bytes(str(error)), 400)

    async def missing(_: Request, error: Exception) -> Response:
        return _json(error_bytes(str(error)), 404)

    async def changed(_: Request, error: Exception) -> Response:
        return _json(error_bytes(str(error)), 409)

    async def unavailable(_: Request, error: Exception) -> Response:
        assert isinstance(error, Unavailable)
        return _json(error_bytes(str(error)), error.status)

    async def busy(_: Request, __: Exception) -> Response:
        return _json(error_bytes("too much is asked for at once; ask again."), 503, retry)

    async def stopped(_: Request, __: Exception) -> Response:
        return _json(error_bytes("the computation was stopped."), 503, retry)

    async def unexpected(_: Request, error: Exception) -> Response:
        # Our own errors are sentences for people; of others the name says more than the words.
        ours = isinstance(error, HeedmapError)
        return _json(error_bytes(str(error) if ours else f"{type(error).__name__}: {error}"), 500)

    return {
        HTTPException: refused,
        asked.Malformed: malformed,
        ArgumentError: missing,
        # What is shown is no longer what was opened: a file, or a tensor that was written into.
        InputError: changed,
        UnsupportedError: changed,
        Unavailable: unavailable,
        Busy: busy,
        Stopped: stopped,
        Exception: unexpected,
    }
