"""The threads that compute: the newest request first, within bounds, and no further than wanted."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from heedmap.explore.desk import Busy, Desk
from heedmap.explore.stopping import Stopped

from .serving import PATIENCE_SECONDS


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk(workers=1, max_waiting=6, max_unread=2)
    yield desk
    desk.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("heedmap")]


class Held:
    """A work that keeps its thread until it is let go or stopped."""

    def __init__(self) -> None:
        self.begun, self.let_go, self.stopped = (threading.Event() for _ in range(3))

    def __call__(self, stop: Callable[[], bool]) -> str:
        self.begun.set()
        while not self.let_go.wait(0.002):
            if stop():
                self.stopped.set()
                raise Stopped
        return "held"


def within_time(coroutine: Coroutine[Any, Any, None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await coroutine

    asyncio.run(run())


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE_SECONDS)


def test_results_come_with_their_numbers_and_errors_in_their_place(desk: Desk) -> None:
    def fails(_: Callable[[], bool]) -> str:
        raise ZeroDivisionError("why")

    async def run() -> None:
        with desk.take([lambda _: "a", fails, lambda _: "c"]) as order:
            results = [await order.next() for _ in range(3)]
        assert [number for number, _ in results] == [0, 1, 2]
        assert results[0][1] == "a"
        assert isinstance(results[1][1], ZeroDivisionError)
        assert results[2][1] == "c"

    within_time(run())


def test_the_newest_request_is_worked_on_first_and_each_in_its_order(desk: Desk) -> None:
    done: list[str] = []

    def noting(name: str) -> Callable[[Callable[[], bool]], None]:
        return lambda _: done.append(name)

    async def run() -> None:
        held = Held()
        with (
            desk.take([held]) as first,
            desk.take([noting("old 0"), noting("old 1")]) as old,
            desk.take([noting("new 0"), noting("new 1")]) as new,
        ):
            await until(held.begun)
            held.let_go.set()
            assert await first.next() == (0, "held")
            for order in (new, old):
                assert [(await order.next())[0] for _ in range(2)] == [0, 1]

    within_time(run())
    assert done == ["new 0", "new 1", "old 0", "old 1"]


def test_more_than_may_wait_is_refused_and_less_is_taken_again_later(desk: Desk) -> None:
    async def run() -> None:
        held = Held()
        with desk.take([held]) as first:
            await until(held.begun)
            with desk.take([lambda _: "x"] * 4) as order:
                with pytest.raises(Busy):
                    desk.take([lambda _: "y"] * 3)
                with desk.take([lambda _: "y"] * 2):
                    pass
                held.let_go.set()
                await first.next()
                assert {await order.next() for _ in range(4)} == {(n, "x") for n in range(4)}
        with desk.take([lambda _: "z"] * 6) as order:
            assert len({await order.next() for _ in range(6)}) == 6

    within_time(run())


def test_an_order_that_is_put_away_stops_what_runs_and_drops_what_waits(desk: Desk) -> None:
    begun: list[int] = []

    async def run() -> None:
        held = Held()
        with desk.take([held, lambda _: begun.append(1)]):
            await until(held.begun)
        await until(held.stopped)
        with desk.take([lambda _: "next"]) as order:
            assert await order.next() == (0, "next")

    within_time(run())
    assert begun == []


def test_whoever_waits_for_a_stopped_order_learns_of_it(desk: Desk) -> None:
    async def run() -> None:
        held = Held()
        with desk.take([held]) as order:
            waiting = asyncio.create_task(order.next())
            await until(held.begun)
            order.stop()
            with pytest.raises(Stopped):
                await waiting
            with pytest.raises(Stopped):
                await order.next()

    within_time(run())


def test_no_more_is_computed_than_is_read(desk: Desk) -> None:
    made: list[int] = []

    async def run() -> None:
        with desk.take([lambda _: made.append(1)] * 5) as order:
            # The thread would do them all meanwhile, were it not for the bound.
            with desk.take([lambda _: None]) as other:
                await other.next()
            await asyncio.sleep(0.05)
            assert len(made) == 2
            for _ in range(5):
                await order.next()
            assert len(made) == 5

    within_time(run())


def test_a_small_order_does_not_wait_behind_others(desk: Desk) -> None:
    async def run() -> None:
        picture, other = Held(), Held()
        with desk.take([picture]) as first:
            await until(picture.begun)
            with desk.take([other]) as second:
                with desk.take([lambda _: "at once"], small=True) as order:
                    assert await order.next() == (0, "at once")
                # The thread that did it is none for pictures.
                assert not other.begun.is_set()
                for held, waiting in ((picture, first), (other, second)):
                    held.let_go.set()
                    assert await waiting.next() == (0, "held")

    within_time(run())


def test_closing_stops_everything_at_once() -> None:
    desk = Desk(workers=2)

    async def run() -> None:
        held = [Held() for _ in range(5)]
        with desk.take(held) as order:
            await until(held[0].begun)
            await asyncio.to_thread(desk.close)
            with pytest.raises(Stopped):
                await order.next()
            with pytest.raises(Stopped):
                desk.take([lambda _: None])
            assert not held[4].begun.is_set()

    within_time(run())
    assert not [t for t in threading.enumerate() if t.name.startswith("heedmap-desk")]


def test_a_result_for_a_loop_that_is_gone_harms_nobody(desk: Desk) -> None:
    held = Held()

    async def leave() -> None:
        desk.take([held])
        await until(held.begun)

    asyncio.run(leave())
    held.let_go.set()

    async def run() -> None:
        with desk.take([lambda _: "next"]) as order:
            assert await order.next() == (0, "next")

    within_time(run())
