"""Ranks that are gone are named.

PyTorch tells a rank that a connection broke, or after half an hour that nothing came, and not whose
fault it was. So each rank gives signs of life through the store that connects them all, and looks
for those of the others. Who waits for others does so in a `together` block. There, a broken
connection becomes a `RankError` with the number of the rank that is gone; and where nothing breaks,
because the other was stopped and not killed, the process is ended with the same message, as
nothing else ends a wait for what does not come.
"""

import atexit
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from torch.distributed.distributed_c10d import PrefixStore, Store

from heedmap.errors import HeedmapError, RankError

BEATS = 15
"""How many signs of life a rank gives within the time in which a fault must have been told."""

SILENT = 8
"""After how many that did not come a rank is gone."""

SURE = 3
"""After how many if a connection was found to be broken."""

PATIENCE = 2
"""For how many beats the store is waited for."""

LETTING_GO_SECONDS = 0.1
ENDED = "ended"
BROKEN = re.compile("gloo|nccl|connection|socket|timed out|peer", re.IGNORECASE)
"""What PyTorch says when it could not reach another rank."""


class Signs:
    """The signs of life of this rank, and those of the others as they were last seen."""

    def __init__(self, store: Store, rank: int, size: int, beat_seconds: float) -> None:
        """Give the first one; the others are read once `meet` is called."""
        self.rank, self.size, self.beat_seconds = rank, size, beat_seconds
        self.count = 0
        self.store = PrefixStore("heedmap", store)
        self.store.set_timeout(timedelta(seconds=PATIENCE * beat_seconds))
        self.store.set(f"who {rank}", f"process {os.getpid()} on {socket.gethostname()}")
        self.store.set(f"beat {rank}", "0")
        if not rank:
            self.store.set("fault", "")

    def meet(self) -> None:
        """Learn who the others are, each of which has given its first sign by now."""
        names = self.store.multi_get([f"who {rank}" for rank in range(self.size)])
        self.who = [name.decode() for name in names]
        now = time.monotonic()
        self.last = {rank: ("", now) for rank in range(self.size) if rank != self.rank}
        self.answered = now

    def exchange(self) -> str:
        """Give a sign and read those of the others; return the fault that one has found, or ''.

        It may hang: a store that was stopped with its process is waited for.
        """
        self.count += 1
        names = ["fault", *(f"beat {rank}" for rank in self.last)]
        try:
            self.store.set(f"beat {self.rank}", str(self.count))
            fault, *beats = (said.decode() for said in self.store.multi_get(names))
        except RuntimeError:
            # That the store does not answer is a fault once it has gone on for long.
            return ""
        self.answered = now = time.monotonic()
        for rank, beat in zip(tuple(self.last), beats, strict=True):
            if self.last[rank][0] != beat:
                self.last[rank] = beat, now
        return fault

    def forgive(self) -> None:
        """Forget how long nothing came: it is this process that did not listen."""
        self.answered = now = time.monotonic()
        self.last = {rank: (beat, now) for rank, (beat, _) in self.last.items()}

    def missed_store(self, silent_seconds: float, since: float = 0.0) -> str:
        """Return that the store is gone, or ''; who holds it misses it never. See `missed_rank`."""
        now = time.monotonic()
        if not self.rank and not _is_held_by_torchrun():
            # It answers late where the machine has much to do, and is no fault of this rank.
            return ""
        if now - max(self.answered, since) <= silent_seconds:
            return ""
        return f"no answer of {self._holder()} for {now - self.answered:.0f} s"

    def missed_rank(self, silent_seconds: float, since: float = 0.0) -> str:
        """Return which rank is gone, or ''.

        Args:
            silent_seconds: For how long nothing may come of it.
            since: From when on its silence counts.
        """
        now = time.monotonic()
        for rank, (beat, at) in self.last.items():
            # While the store does not answer, nobody is to blame but its holder.
            if beat != ENDED and self.answered - max(at, since) > silent_seconds:
                return f"no sign of life of {self._called(rank)} for {now - at:.0f} s"
        return ""

    def ended_rank(self) -> str:
        """Return which rank has ended in order, or ''."""
        ended = (rank for rank, (beat, _) in self.last.items() if beat == ENDED)
        return next((f"an early end of {self._called(rank)}" for rank in ended), "")

    def tell(self, fault: str) -> str:
        """Let the others know of a fault; return the one that was told first."""
        try:
            return self.store.compare_set("fault", "", fault).decode()
        except RuntimeError:
            return fault

    def close(self) -> None:
        """Give the last sign."""
        try:
            self.store.set(f"beat {self.rank}", ENDED)
        except RuntimeError:
            # Who holds the store has ended before.
            return

    def _called(self, rank: int) -> str:
        return f"rank {rank} of {self.size} ({self.who[rank]})"

    def _holder(self) -> str:
        if _is_held_by_torchrun():
            return "torchrun, which holds the ranks' store"
        return f"{self._called(0)}, which holds the ranks' store"


class Pulse:
    """Two threads, and the blocks in which this rank waits for others.

    One thread exchanges signs of life, and may hang in it; the other one judges by what has come.

    Args:
        signs: The signs; all ranks have given their first.
        everywhere: Whether a rank that is gone ends the process outside of such blocks, too.
    """

    def __init__(self, signs: Signs, *, everywhere: bool) -> None:
        """Begin."""
        signs.meet()
        self.signs, self.everywhere = signs, everywhere
        self.fault = ""
        self._blocks = 0
        self._over = threading.Event()
        self._store, self._counting = threading.Lock(), threading.Lock()
        atexit.register(self.end)
        self._threads = [
            threading.Thread(target=work, name="heedmap pulse", daemon=True)
            for work in (self._exchange, self._judge)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Tell the others that this rank takes no more part, and stop."""
        atexit.unregister(self.end)
        self._over.set()
        if self._takes_store():
            self.signs.close()
            self._store.release()
        for thread in self._threads:
            thread.join(timeout=self.signs.beat_seconds)
        # A thread of gloo lets go of the last tensors a moment after it has said that they are
        # there. Where Python has ended by then, so does the process, with an error.
        time.sleep(LETTING_GO_SECONDS)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Return a block in which this rank waits for others; see `together`."""
        if self.fault:
            raise RankError(_message(self.fault))
        with self._counting:
            self._blocks += 1
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, HeedmapError) or not BROKEN.search(str(error)):
                raise
            self._find_who_broke(time.monotonic())
            if not self.fault:
                raise
            raise RankError(_message(self.fault)) from error
        finally:
            with self._counting:
                self._blocks -= 1

    def _find_who_broke(self, since: float) -> None:
        """Look for who is gone, now that a connection is; first among those that fell silent."""
        signs, beat_seconds = self.signs, self.signs.beat_seconds
        sure = SURE * beat_seconds
        while not self.fault and time.monotonic() - since < SILENT * beat_seconds:
            missed = signs.missed_rank(sure, since) or signs.missed_store(sure, since)
            if not missed and time.monotonic() - since > sure + PATIENCE * beat_seconds:
                missed = signs.ended_rank()
            self._tell(missed)
            time.sleep(beat_seconds / 4)

    def _exchange(self) -> None:
        while not self._over.wait(self.signs.beat_seconds):
            with self._store:
                # Behind the last sign there must come none.
                fault = "" if self._over.is_set() else self.signs.exchange()
            self.fault = self.fault or fault

    def _judge(self) -> None:
        beat_seconds = self.signs.beat_seconds
        last = time.monotonic()
        while not self._over.wait(beat_seconds):
            before, last = last, time.monotonic()
            if last - before > SURE * beat_seconds:
                # All of this process was stopped.
                self.signs.forgive()
            missed = self.signs.missed_rank(SILENT * beat_seconds)
            if self._blocks:
                # Whoever waits for nobody may outlive the store at the end of a program.
                missed = missed or self.signs.missed_store(SILENT * beat_seconds)
            self._tell(missed)
            if self.fault and (self._blocks or self.everywhere):
                # Where a connection broke, too, the block is about to raise.
                time.sleep(beat_seconds)
                if self._blocks or self.everywhere:
                    print(f"heedmap: {_message(self.fault)}", file=sys.stderr, flush=True)
                    os._exit(1)

    def _tell(self, fault: str) -> None:
        """Note a fault, and let the others know, unless one of them has found another before."""
        if not fault or self.fault:
            return
        # While the store is waited for there is nobody to be told.
        if self._takes_store():
            fault = self.signs.tell(fault)
            self._store.release()
        self.fault = fault

    def _takes_store(self) -> bool:
        return self._store.acquire(timeout=self.signs.beat_seconds)


def _is_held_by_torchrun() -> bool:
    """Return whether the ranks' store is torchrun's; else it is that of rank 0."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _message(fault: str) -> str:
    return f"ranks must all go on; got {fault}. What it wrote last may tell why."


_running: Pulse | None = None


def begin(store: Store, rank: int, size: int, fault_seconds: float) -> Signs:
    """Return the signs of this rank of a new pulse, in place of an earlier one."""
    end()
    # A store of its own, because another thread may wait in the group's for long.
    return Signs(store.clone(), rank, size, fault_seconds / BEATS)  # pyright: ignore


def go_on(signs: Signs, *, everywhere: bool) -> None:
    """Let the pulse of these signs run, now that all ranks have given their first."""
    global _running
    _running = Pulse(signs, everywhere=everywhere)


def end() -> None:
    """End the pulse, if there is one."""
    global _running
    if _running is not None:
        _running.end()
        _running = None


@contextmanager
def together() -> Iterator[None]:
    """Return a block in which this rank waits for others, of which one that is gone is named.

    Every collective of this package stands in one. It costs nothing; without `start` it does
    nothing, and what breaks is told in PyTorch's words.

    Raises:
        RankError: with the number of a rank that is gone.
    """
    if _running is None:
        yield
        return
    with _running.waiting():
        yield
