"""Who computes what clients ask for: a few threads, the newest request first.

A request hands in an `Order`: some works, done one after the other. Its results are read in the
event loop. An order that is closed, because its client has got everything or has left, is worked on
no more: what waits is dropped, and what is under way learns of it from its ``stop``.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, TypeVar

from heedmap.explore.stopping import Stopped

T = TypeVar("T")
Work = Callable[[Callable[[], bool]], T]


class Busy(Exception):
    """More waits already than can be done soon."""


class Order(Generic[T]):
    """What one request wants done; a context that is left when nobody wants it any more."""

    def __init__(self, desk: "Desk", works: Sequence[Work[T]], small: bool) -> None:
        """Note down `works`; `Desk.take` is what begins them."""
        self._desk, self.small = desk, small
        self._loop = asyncio.get_running_loop()
        self._results: asyncio.Queue[tuple[int, T | Exception] | None] = asyncio.Queue()
        self._stopped = threading.Event()
        self._read = 0
        # The desk's, and guarded by its lock.
        self.works = deque(enumerate(works))
        self.unread = 0

    def __enter__(self) -> "Order[T]":
        """Return the order itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give up what is left of it."""
        self._desk.put_away(self)

    async def next(self) -> tuple[int, T | Exception]:
        """Return the next result that is there, or the error in its place, and its number.

        Raises:
            Stopped: if the order was stopped.
        """
        if self._read:
            self._desk.results_were_read(self)
        self._read += 1
        result = await self._results.get()
        if result is None or self._stopped.is_set():
            raise Stopped
        return result

    def stop(self) -> None:
        """Give the order up: whoever computes for it or waits for it gets `Stopped`."""
        self._stopped.set()
        self._deliver(None)

    def do(self, number: int, work: Work[T]) -> None:
        """Do one of the works, in the thread that calls, unless the order was given up."""
        if self._stopped.is_set():
            return
        try:
            result = work(self._stopped.is_set)
        # Whatever it is belongs to whoever reads the results; the thread goes on.
        except Exception as error:
            result = error
        self._deliver((number, result))

    def _deliver(self, result: tuple[int, T | Exception] | None) -> None:
        # Of a loop that was closed, nobody reads any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._results.put_nowait, result)


class Desk:
    """Some threads that compute, and the orders that wait for them.

    One thread more is there for small orders alone, so that a number never waits behind pictures.
    """

    def __init__(self, *, workers: int = 2, max_waiting: int = 1024, max_unread: int = 8) -> None:
        """Start the threads.

        Args:
            workers: How many there are for all orders.
            max_waiting: How many works may wait for one.
            max_unread: How many results of an order are made before the first of them is read.
        """
        self._max_waiting, self._max_unread = max_waiting, max_unread
        self._changed = threading.Condition()
        self._orders: list[Order[Any]] = []  # the newest last
        self._closed = False
        self._threads = [
            threading.Thread(
                target=self._work,
                args=(number == workers,),
                name=f"heedmap-desk-{number}",
                daemon=True,
            )
            for number in range(workers + 1)
        ]
        for thread in self._threads:
            thread.start()

    def take(self, works: Sequence[Work[T]], *, small: bool = False) -> Order[T]:
        """Return the order of these works, which is done from now on.

        Args:
            works: What is to be done.
            small: Whether each takes a few milliseconds, as a rule.

        Raises:
            Busy: if too many wait.
            Stopped: if the desk is closed.
        """
        order = Order(self, works, small)
        with self._changed:
            if self._closed:
                raise Stopped
            if self._waiting() + len(works) > self._max_waiting:
                raise Busy
            self._orders.append(order)
            self._changed.notify_all()
        return order

    def put_away(self, order: Order[Any]) -> None:
        """Do nothing more of an order."""
        order.stop()
        with self._changed, suppress(ValueError):
            self._orders.remove(order)

    def results_were_read(self, order: Order[Any]) -> None:
        """Make room for one more result of an order."""
        with self._changed:
            order.unread -= 1
            self._changed.notify_all()

    def close(self, seconds: float = 1.0) -> None:
        """Stop all orders, and wait so long for the threads to notice."""
        with self._changed:
            self._closed = True
            orders, self._orders = self._orders, []
            self._changed.notify_all()
        for order in orders:
            order.stop()
        for thread in self._threads:
            thread.join(seconds / len(self._threads))

    def _waiting(self) -> int:
        return sum(len(order.works) for order in self._orders)

    def _work(self, small_alone: bool) -> None:
        while found := self._next(small_alone):
            order, number, work = found
            order.do(number, work)
            # A result must not be kept by a thread that has nothing to do.
            del found, order, work

    def _next(self, small_alone: bool) -> tuple[Order[Any], int, Work[Any]] | None:
        """Return what to do next, once there is something; None when the desk is closed."""
        with self._changed:
            while not self._closed:
                for order in reversed(self._orders):
                    if small_alone and not order.small:
                        continue
                    if order.works and order.unread < self._max_unread:
                        order.unread += 1
                        return order, *order.works.popleft()
                self._changed.wait()
        return None
