"""A rank that dies or stalls ends the others, with its number, in the time that was said."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from heedmap import parallel
from heedmap.errors import RankError
from heedmap.parallel import faults

from .processes import HOST, ROOT, Ended, Processes

FAULT_SECONDS = 9.0
"""Less than the half minute of the default, and long enough for busy processors."""


@pytest.fixture
def own() -> Iterator[Processes]:
    """Return processes that may be killed."""
    made = Processes()
    yield made
    made.close()


def attend_for_long(folder: Path, fault_seconds: float = FAULT_SECONDS) -> None:
    """Attend again and again, and leave a file each time."""
    mesh = parallel.start(device="cpu", fault_seconds=fault_seconds)
    x = torch.randn(1, 2, 300, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    for number in range(1_000_000):
        _, weights = parallel.attention(x, x, x, mesh=mesh)
        weights.summarize(top=2)
        (folder / f"{dist.get_rank()}-{number}").touch()


def end_early(folder: Path, how: str) -> None:
    mesh = parallel.start(device="cpu", fault_seconds=FAULT_SECONDS)
    x = torch.ones(1, 1, 4, 2)
    parallel.attention(x, x, x, mesh=mesh)
    if dist.get_rank() == 1 and how == "ends":
        parallel.stop()
        os._exit(0)
    if dist.get_rank() == 1 and how == "rests":
        # It comes late, and must not be taken for dead.
        os.kill(os.getpid(), signal.SIGSTOP)
    parallel.attention(x, x, x, mesh=mesh)
    parallel.stop()
    (folder / "done").touch()


def said_by(outcome: Any) -> str:
    return outcome.said if isinstance(outcome, Ended) else str(outcome)


def wait_for_work(folder: Path, ranks: int) -> None:
    until = time.monotonic() + 60
    while not all((folder / f"{rank}-3").exists() for rank in range(ranks)):
        assert time.monotonic() < until, sorted(folder.iterdir())
        time.sleep(0.05)


def test_all_that_must_pass_fits_into_the_time_that_was_said() -> None:
    # Silence, a look at it, the store that is not to be had, and a moment for the block to raise.
    assert faults.SILENT + 1 + 1 + 1 < faults.BEATS


@pytest.mark.slow
def test_a_killed_rank_is_named(own: Processes, tmp_path: Path) -> None:
    own.begin(3, attend_for_long, tmp_path)
    wait_for_work(tmp_path, 3)
    own.signal(1, signal.SIGKILL)
    began = time.monotonic()
    outcomes = own.finish(limit_seconds=FAULT_SECONDS)
    print(f"{time.monotonic() - began:.1f} s: {outcomes[0]}")
    assert outcomes[1] == Ended(-signal.SIGKILL, "")
    for rank in (0, 2):
        # Who waited for the other one of these, and not for the killed one, may have been ended.
        words = "ranks must all go on; got no sign of life of rank 1 of 3"
        assert words in said_by(outcomes[rank])
    assert any(isinstance(outcome, RankError) for outcome in outcomes)


@pytest.mark.slow
def test_a_stopped_rank_is_named(own: Processes, tmp_path: Path) -> None:
    own.begin(3, attend_for_long, tmp_path)
    wait_for_work(tmp_path, 3)
    own.signal(2, signal.SIGSTOP)
    began = time.monotonic()
    outcomes = own.finish(limit_seconds=FAULT_SECONDS, leaving_out=(2,))
    print(f"{time.monotonic() - began:.1f} s: {outcomes[0]}")
    for outcome in outcomes:
        # Who waits for the stopped rank is ended; who waits for one that was ended may raise.
        assert "no sign of life of rank 2 of 3" in said_by(outcome)
    assert any(isinstance(outcome, Ended) and outcome.status == 1 for outcome in outcomes)


@pytest.mark.slow
def test_a_rank_that_ends_before_the_others_is_named(own: Processes, tmp_path: Path) -> None:
    outcomes = own.outcomes(2, end_early, tmp_path, "ends", limit_seconds=FAULT_SECONDS + 30)
    assert isinstance(outcomes[0], RankError), outcomes[0]
    assert "an early end of rank 1 of 2 (process" in str(outcomes[0])


@pytest.mark.slow
def test_a_rank_that_was_stopped_for_a_moment_goes_on(own: Processes, tmp_path: Path) -> None:
    own.begin(2, end_early, tmp_path, "rests")
    status = Path(f"/proc/{own.members[1].process.pid}/stat")
    while status.read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.05)
    time.sleep(1)
    own.signal(1, signal.SIGCONT)
    assert own.finish() == [None, None]
    assert (tmp_path / "done").exists()


def work_alone(folder: Path, everywhere: bool) -> None:
    """Wait for nobody for a while, as between two calls."""
    mesh = parallel.start(device="cpu", fault_seconds=FAULT_SECONDS)
    assert faults._running is not None
    faults._running.everywhere = everywhere
    x = torch.ones(1, 1, 4, 2)
    parallel.attention(x, x, x, mesh=mesh)
    (folder / f"{dist.get_rank()}-3").touch()
    time.sleep(FAULT_SECONDS)
    parallel.attention(x, x, x, mesh=mesh)


@pytest.mark.slow
@pytest.mark.parametrize("everywhere", [False, True])
def test_who_waits_for_nobody(own: Processes, tmp_path: Path, everywhere: bool) -> None:
    """It raises at the next call; with NCCL, where a GPU may wait unseen, it ends."""
    own.begin(2, work_alone, tmp_path, everywhere)
    wait_for_work(tmp_path, 2)
    own.signal(1, signal.SIGKILL)
    outcome = own.finish(limit_seconds=FAULT_SECONDS + 10)[0]
    assert "got no sign of life of rank 1 of 2" in said_by(outcome)
    assert isinstance(outcome, Ended if everywhere else RankError)


PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from tests.parallel.test_faults import attend_for_long
attend_for_long(Path(sys.argv[1]))
"""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Return two programs at work together, started without torchrun."""
    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    port = store.port
    del store
    told = {"WORLD_SIZE": "2", "MASTER_ADDR": HOST, "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, **told, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        wait_for_work(tmp_path, 2)
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_rank_that_holds_the_store_is_named(
    programs: list[subprocess.Popen[str]], how: signal.Signals
) -> None:
    """Without torchrun, rank 0 holds what the others find each other by."""
    programs[0].send_signal(how)
    _, said = programs[1].communicate(timeout=FAULT_SECONDS + 10)
    assert programs[1].returncode == 1
    assert "no answer of rank 0 of 2 (process" in said
    assert "which holds the ranks' store" in said


@pytest.mark.slow
def test_ctrl_c_ends_all(programs: list[subprocess.Popen[str]]) -> None:
    for program in programs:
        program.send_signal(signal.SIGINT)
    said = [program.communicate(timeout=FAULT_SECONDS + 10)[1] for program in programs]
    # Whose neighbour was the faster one has lost its connection.
    assert all(program.returncode for program in programs), said
    assert any("KeyboardInterrupt" in words for words in said), said


def test_the_holder_of_the_store_does_not_miss_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store, said = dist.HashStore(), []  # pyright: ignore[reportPrivateImportUsage]
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    for rank in range(2):
        signs = faults.Signs(store, rank, 2, 0.1)
        signs.who, signs.answered = ["process 1 on one", "process 2 on two"], -60.0
        said.append(signs.missed_store(1.0, -60.0))
    assert said[0] == ""
    assert said[1].startswith("no answer of rank 0 of 2 (process 1 on one), which holds")


def test_without_a_start_nothing_is_watched() -> None:
    with faults.together():
        assert threads() == 0


def threads() -> int:
    return sum(thread.name == "heedmap pulse" for thread in threading.enumerate())


def break_connection() -> Any:
    parallel.start(device="cpu", fault_seconds=3)
    try:
        with faults.together():
            raise RuntimeError("gloo: Connection closed by peer")
    finally:
        parallel.stop()


def test_what_nobody_is_missed_for_is_told_as_it_was(processes: Processes) -> None:
    with pytest.raises(RuntimeError, match="gloo: Connection closed by peer"):
        processes.run(2, break_connection)
