"""The live map as a server: listening, in a thread of its own, until somebody ends it."""

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from heedmap.explore.app import make_app
from heedmap.explore.asgi import App, require
from heedmap.explore.connections import bounded_connections
from heedmap.explore.desk import Desk
from heedmap.explore.guard import Guard
from heedmap.explore.limits import Limits
from heedmap.explore.listening import is_everywhere, listen, own_address, own_names


@runtime_checkable
class Closable(Protocol):
    """What is shown, and has an end."""

    def close(self) -> None:
        """Give back what it holds."""
        ...


def serve(
    explorer: Closable,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    allow_other_hosts: bool = False,
    announce: Callable[[str], None],
    make: Callable[[Any, Desk], App] | None = None,
) -> None:
    """Serve the live map, or what `make` makes, until somebody presses Ctrl-C.

    Args:
        explorer: What is shown; it is closed at the end.
        host: The address to listen at.
        port: The port to listen on; any free one for 0.
        allow_other_hosts: Whether the address may be one that other machines reach.
        announce: Called with the address to open, once the server listens.
        make: As for `Running`.

    Raises:
        ArgumentError: for a host or a port that cannot be had.
        MissingExtraError: if Starlette, uvicorn or httptools is not installed.
    """
    with (
        Running(
            explorer, host=host, port=port, allow_other_hosts=allow_other_hosts, make=make
        ) as running,
        suppress(KeyboardInterrupt),
    ):
        announce(running.url)
        running.wait()


class Running:
    """A live map that is being served, from a thread of its own, until it is closed.

    Attributes:
        url: The address to open, good for one browser; where others in the network may reach it,
            the one that they use.
    """

    def __init__(
        self,
        explorer: Closable,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        allow_other_hosts: bool = False,
        limits: Limits | None = None,
        make: Callable[[Any, Desk], App] | None = None,
    ) -> None:
        """Begin to serve; the arguments are those of `serve`.

        Args:
            explorer: What is shown; it is closed with this server.
            host: The address to listen at.
            port: The port to listen on; any free one for 0.
            allow_other_hosts: Whether the address may be one that other machines reach.
            limits: How much is taken on.
            make: What makes the application that answers, of `explorer` and of where it
                computes; without it, that of the live map.

        Raises:
            ArgumentError: for a host or a port that cannot be had.
            MissingExtraError: if Starlette, uvicorn or httptools is not installed.
        """
        require("starlette", "uvicorn", "httptools")
        self._limits = limits = limits or Limits()
        self._explorer = explorer
        self._make: Callable[[Any, Desk], App] = make_app if make is None else make
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._ended = threading.Event()
        with ExitStack() as undone:
            undone.callback(self._loop.close)
            listening = undone.enter_context(
                listen(host, port, allow_other_hosts=allow_other_hosts)
            )
            self._desk = Desk(
                workers=limits.workers, max_waiting=limits.max_waiting, max_unread=limits.max_unread
            )
            undone.callback(self._desk.close)
            names = own_names() if allow_other_hosts else set[str]()
            guard = self._guard(host, names, *listening.getsockname()[:2])
            self._server = _server(guard, limits)
            self._thread = threading.Thread(
                target=self._run, args=(listening,), name="heedmap-server", daemon=True
            )
            self._thread.start()
            undone.pop_all()

    def __enter__(self) -> "Running":
        """Return the server itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the server."""
        self.close()

    def __repr__(self) -> str:
        """Return the address, or that there is none any more."""
        return f"Running({self.url!r})" if not self._ended.is_set() else "Running(closed)"

    def wait(self) -> None:
        """Return when the server has been closed."""
        # Windows tells of Ctrl-C only between waits.
        while not self._ended.wait(1.0):
            pass

    def close(self) -> None:
        """End the server, with whatever it is doing, and close the explorer."""
        # A loop that has ended has been closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._closing.set)
        self._desk.close(self._limits.stop_seconds)
        self._ended.wait()
        self._thread.join()
        self._explorer.close()

    def _guard(self, host: str, names: set[str], address: str, port: int) -> Guard:
        """Return the guarded application, and note down its address."""
        everywhere = is_everywhere(address)
        name = own_address(address) if everywhere else host
        name = f"[{name}]" if ":" in name else name
        guard = Guard(
            self._make(self._explorer, self._desk),
            hosts={"127.0.0.1", "localhost", "[::1]", name, *names},
            port=port,
            any_address=everywhere,
            limits=self._limits,
        )
        self.url = f"http://{name}:{port}/open?token={guard.token}"
        return guard

    def _run(self, listening: socket.socket) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve(listening))
        finally:
            listening.close()
            self._ended.set()

    async def _serve(self, listening: socket.socket) -> None:
        serving = asyncio.create_task(self._server.serve(sockets=[listening]))
        closing = asyncio.create_task(self._closing.wait())
        await asyncio.wait([serving, closing], return_when=asyncio.FIRST_COMPLETED)
        self._server.should_exit = True
        # Whoever still reads has been left by the computations, too.
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        closing.cancel()
        await serving


def _server(guard: Guard, limits: Limits) -> Any:
    """Return uvicorn's server, which says nothing and asks nothing of its surroundings."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            guard,
            http=bounded_connections(limits),
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            workers=1,
            timeout_keep_alive=limits.idle_seconds,
            timeout_graceful_shutdown=1,
        )
    )
