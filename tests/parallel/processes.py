"""Functions that run on several processes at once, which PyTorch's gloo connects.

``Processes`` starts them when they are first needed and keeps them, because importing torch takes
seconds; a run on two uses the first two of four. Each run has a process group of its own, so that
nothing a failed one left behind reaches the next. A run that takes too long fails with the stacks
of all threads of all its processes, and never hangs.

This file is also the program of such a process: ``python -m tests.parallel.processes``.
"""

import faulthandler
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.checked import check_heedmap

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
STARTING_SECONDS = 90
STACKS_SECONDS = 2
AFTERWARDS_SECONDS = 10


@dataclass(frozen=True)
class Ended:
    """A process that ended before it answered: its exit status, and what it wrote to stderr."""

    status: int | None
    said: str


class Processes:
    """As many processes as were ever asked for, each with its rank.

    Args:
        checked: Whether shapes and types are checked in them at run time.
    """

    def __init__(self, *, checked: bool = False) -> None:
        self.checked = checked
        self.members: list[Member] = []
        self.store: Any = None
        self.runs = 0

    def run(
        self,
        size: int,
        function: Callable[..., Any],
        *arguments: Any,
        limit_seconds: float = 60,
    ) -> list[Any]:
        """Return what a function of a module gives on each of `size` ranks.

        Arguments and answers are pickled. What a rank raises is raised here, with a note that has
        its rank and traceback; where several raise, that of the first one, with the notes of all.
        """
        found = self.outcomes(size, function, *arguments, limit_seconds=limit_seconds)
        errors = [outcome for outcome in found if isinstance(outcome, BaseException)]
        for error in errors[1:]:
            for note in getattr(error, "__notes__", ()):
                errors[0].add_note(note)
        if errors:
            raise errors[0]
        gone = {rank: outcome for rank, outcome in enumerate(found) if isinstance(outcome, Ended)}
        assert not gone, f"ranks must answer; these ended: {gone}"
        return found

    def outcomes(
        self,
        size: int,
        function: Callable[..., Any],
        *arguments: Any,
        limit_seconds: float = 60,
    ) -> list[Any]:
        """Return the same, with the error of a rank that raised, and `Ended` of one that ended."""
        self.begin(size, function, *arguments, limit_seconds=limit_seconds)
        return self.finish(limit_seconds=limit_seconds)

    def begin(
        self,
        size: int,
        function: Callable[..., Any],
        *arguments: Any,
        limit_seconds: float = 60,
    ) -> None:
        """Let a function begin to run, to be looked for with `finish`."""
        self._grow(size)
        self.runs += 1
        task = self.runs, size, limit_seconds, function, arguments
        for member in self.members[:size]:
            member.give(pickle.dumps(task))

    def finish(self, *, limit_seconds: float = 60, leaving_out: tuple[int, ...] = ()) -> list[Any]:
        """Return what became of the run on each rank that is not left out.

        Raises:
            AssertionError: with all stacks, if some rank has not answered in time.
        """
        running = [m for m in self.members if m.busy and m.rank not in leaving_out]
        waiting = {member.connection: member for member in running}
        until = time.monotonic() + limit_seconds
        while waiting:
            ready = wait(list(waiting), timeout=max(until - time.monotonic(), 0))
            if not ready:
                self._give_up(running, list(waiting.values()), limit_seconds)
                break
            for connection in ready:
                member = waiting.pop(connection)  # pyright: ignore[reportArgumentType]
                member.take()
                if isinstance(member.outcome, BaseException):
                    # The others may wait for what it will not send any more.
                    until = min(until, time.monotonic() + AFTERWARDS_SECONDS)
        outcomes = [member.outcome for member in running]
        if any(isinstance(outcome, Ended) for outcome in outcomes):
            self.close()
        return outcomes

    def _give_up(self, running: list["Member"], late: list["Member"], limit_seconds: float) -> None:
        """Take those for ended that wait for one that raised; where none did, fail."""
        stacks = {member: member.stacks() for member in late}
        if any(isinstance(member.outcome, BaseException) for member in running):
            for member in late:
                member.outcome = Ended(None, stacks[member])
            return
        ranks = [member.rank for member in late]
        self.close()
        told = "\n".join(stacks.values())
        raise AssertionError(f"ranks {ranks} took more than {limit_seconds} s\n{told}")

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to the process of a rank."""
        self.members[rank].process.send_signal(number)

    def close(self) -> None:
        """End all processes; new ones are started when they are needed."""
        for member in self.members:
            member.close()
        self.members, self.store = [], None

    def _grow(self, size: int) -> None:
        if self.store is None:
            self.store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        new = [
            Member(rank, self.store.port, checked=self.checked)
            for rank in range(len(self.members), size)
        ]
        self.members += new
        for member in new:
            member.require_started()


class Member:
    """One of the processes, seen from here."""

    def __init__(self, rank: int, port: int, *, checked: bool) -> None:
        self.rank, self.busy, self.outcome = rank, True, None
        self.connection, theirs = Pipe()
        self.log = os.memfd_create(f"stderr of rank {rank}")
        program = [sys.executable, "-W", "error", "-m", "tests.parallel.processes"]
        arguments = [str(theirs.fileno()), str(rank), str(port), *["checked"] * checked]
        self.process = subprocess.Popen(
            [*program, *arguments],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def require_started(self) -> None:
        if not self.connection.poll(STARTING_SECONDS):
            told = self.stacks()
            self.close()
            raise AssertionError(f"rank {self.rank} has not started\n{told}")
        self.take()
        assert self.outcome is None, self.outcome

    def give(self, task: bytes) -> None:
        self.busy, self.outcome = True, None
        self.connection.send_bytes(task)

    def take(self) -> None:
        """Take the answer, or that there will be none."""
        self.busy = False
        try:
            self.outcome = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            self.outcome = Ended(self.process.wait(timeout=10), self.said())

    def said(self) -> str:
        size = os.fstat(self.log).st_size
        return os.pread(self.log, size, 0).decode("utf-8", errors="replace")

    def stacks(self) -> str:
        """Return what the process wrote, and where its threads are now."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGUSR1)
            time.sleep(STACKS_SECONDS)
        return f"--- rank {self.rank}, status {self.process.poll()}\n{self.said()}"

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()
        os.close(self.log)


def main() -> None:
    """Be one of the processes: run what comes, answer, until nothing comes any more."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    # In the background of a shell Ctrl-C is ignored, and so it would be here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    connection = Connection(int(sys.argv[1]))
    rank, port = int(sys.argv[2]), int(sys.argv[3])
    if sys.argv[4:] == ["checked"]:
        check_heedmap()
    torch.set_num_threads(1)
    store = dist.TCPStore(HOST, port, is_master=False, wait_for_workers=False)
    connection.send_bytes(pickle.dumps(None))
    while True:
        try:
            task = connection.recv_bytes()
        except EOFError:
            return
        connection.send_bytes(_answer(task, rank, store))


def _answer(task: bytes, rank: int, store: Any) -> bytes:
    try:
        return pickle.dumps(_run(task, rank, store))
    except BaseException as error:
        error.add_note(f"on rank {rank}:\n{traceback.format_exc()}")
        try:
            answer = pickle.dumps(error)
            pickle.loads(answer)
        except Exception:
            return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}\n{error.__notes__}"))
        return answer


def _run(task: bytes, rank: int, store: Any) -> Any:
    number, size, limit_seconds, function, arguments = pickle.loads(task)
    dist.init_process_group(
        "gloo",
        store=dist.PrefixStore(f"run {number}", store),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=limit_seconds),
    )
    try:
        return function(*arguments)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
