"""The processes of these tests do what the tests take for granted."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from .processes import Ended, Processes


def add(numbers: list[int]) -> tuple[int, float]:
    total = torch.tensor(float(numbers[dist.get_rank()]))
    dist.all_reduce(total)
    return dist.get_world_size(), float(total)


def fail_on(rank: int) -> int:
    if dist.get_rank() == rank:
        raise ValueError("nothing to see here")
    return dist.get_rank()


def receive_from_nobody() -> None:
    if dist.get_rank() == 0:
        dist.recv(torch.zeros(1), src=1)


def sleep_long() -> None:
    time.sleep(600)


def end(rank: int) -> int:
    if dist.get_rank() == rank:
        os.write(2, b"so long")
        os._exit(7)
    return 1


@pytest.mark.parametrize("size", [2, 3, 4])
def test_each_rank_answers(processes: Processes, size: int) -> None:
    assert processes.run(size, add, [1, 2, 4, 8]) == [(size, 2**size - 1)] * size


def test_an_error_tells_its_rank(processes: Processes) -> None:
    with pytest.raises(ValueError, match="nothing to see here") as caught:
        processes.run(2, fail_on, 1)
    assert "on rank 1" in caught.value.__notes__[0]
    outcomes = processes.outcomes(2, fail_on, 1)
    assert outcomes[0] == 0
    assert isinstance(outcomes[1], ValueError)


def test_what_one_run_leaves_behind_does_not_reach_the_next(processes: Processes) -> None:
    with pytest.raises(RuntimeError):
        processes.run(2, receive_from_nobody)
    assert processes.run(2, add, [1, 2]) == [(2, 3.0)] * 2


@pytest.mark.slow
def test_who_takes_too_long_fails_with_stacks() -> None:
    own = Processes()
    with pytest.raises(AssertionError, match=r"ranks \[0\] took more than 1 s") as caught:
        own.run(1, sleep_long, limit_seconds=1)
    assert "in sleep_long" in str(caught.value)
    assert own.outcomes(1, end, 0) == [Ended(7, "so long")]
    own.begin(1, sleep_long)
    own.signal(0, signal.SIGKILL)
    assert own.finish(limit_seconds=10) == [Ended(-9, "")]
    own.close()
