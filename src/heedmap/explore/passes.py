"""The passes over large maps, one at a time, in a thread that gives way to whoever waits."""

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from heedmap.explore import store
from heedmap.explore.heads import Head
from heedmap.explore.pyramid import Pyramid
from heedmap.explore.stopping import Stopped, wanted_until
from heedmap.precision import exactly

MOST_BYTES = 256 << 20
"""How much memory pyramids take in all, unless a single one takes more."""

PATIENCE_SECONDS = 2.0
"""How long a pass gives way at most, so that it ends even if somebody always asks."""


class Filling:
    """The pyramid of a map on its way.

    Attributes:
        head: The map.
        pyramid: As far as it has come.
        error: Why it will come no further.
        asked: When it was asked for last, compared with others.
    """

    def __init__(self, head: Head, pyramid: Pyramid) -> None:
        """Begin with what there is."""
        self.head, self.pyramid, self.asked = head, pyramid, 0
        self.error: Exception | None = None
        self.is_dropped = False

    @property
    def is_waiting(self) -> bool:
        """Whether there is something left to do."""
        return self.error is None and self.pyramid.done < 1


class Passes:
    """The pyramids of large maps: in memory, on disk, or being made; safe for many threads."""

    def __init__(self, folder: Path | None) -> None:
        """Begin nothing; `folder` is where pyramids are kept, None for nowhere."""
        self._folder = folder
        self._fillings: dict[Hashable, Filling] = {}
        self._asked = self._requests = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._reading = threading.Lock()

    def find(self, name: Hashable, head: Head) -> Pyramid | None:
        """Return the pyramid of a map as far as it has come, from disk if it is only there."""
        with self._reading:
            filling = self._fillings.get(name)
            if filling is None:
                found = store.load(self._folder, head)
                if found is None:
                    return None
                filling = Filling(head, found)
                self._add(name, filling)
        self._touch(filling)
        return filling.pyramid

    def progress(self, name: Hashable, head: Head) -> float:
        """Return how far the pass over a map has come, 0 to 1; the first call begins it.

        Raises:
            Exception: that which ended it.
        """
        if self.find(name, head) is None:
            self._add(name, Filling(head, Pyramid(head.queries, head.keys)))
        filling = self._fillings.get(name)
        if filling is None:
            return 0.0
        if filling.error is not None:
            raise filling.error
        return filling.pyramid.done

    @contextmanager
    def precedence(self) -> Iterator[None]:
        """Let no pass go on within the block, because somebody waits for an answer."""
        with self._changed:
            self._requests += 1
        try:
            yield
        finally:
            with self._changed:
                self._requests -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """End the pass that is under way, and the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _add(self, name: Hashable, filling: Filling) -> None:
        with self._changed:
            if self._is_closed or name in self._fillings:
                return
            self._asked += 1
            filling.asked = self._asked
            self._fillings[name] = filling
            self._make_room()
            if filling.is_waiting and self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="heedmap-explore-pass", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def _touch(self, filling: Filling) -> None:
        with self._changed:
            self._asked += 1
            filling.asked = self._asked

    def _make_room(self) -> None:
        by_age = sorted(self._fillings.items(), key=lambda item: -item[1].asked)
        total = 0
        for place, (name, filling) in enumerate(by_age):
            total += filling.pyramid.pixels.nbytes
            if place and total > MOST_BYTES:
                filling.is_dropped = True
                del self._fillings[name]

    def _next(self) -> Filling | None:
        waiting = [filling for filling in self._fillings.values() if filling.is_waiting]
        return max(waiting, key=lambda filling: filling.asked, default=None)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._next() is not None)
                self._changed.wait_for(
                    lambda: self._is_closed or not self._requests, PATIENCE_SECONDS
                )
                filling = self._next()
                if self._is_closed:
                    return
            if filling is not None:
                self._fill_some(filling)

    def _fill_some(self, filling: Filling) -> None:
        head, pyramid = filling.head, filling.pyramid
        try:
            with (
                torch.no_grad(),
                exactly(),
                wanted_until(lambda: self._is_closed or filling.is_dropped),
            ):
                head.require_unchanged()
                pyramid.fill_some(head)
            if pyramid.done == 1:
                store.save(self._folder, head, pyramid)
        except Stopped:
            return
        except Exception as error:
            # Whoever asks next how far it has come is told.
            filling.error = error
