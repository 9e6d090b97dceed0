"""Ranks start together, or are told why they cannot."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from heedmap import parallel
from heedmap.errors import ArgumentError, RankError, UnsupportedError
from heedmap.parallel import starting

from .processes import Processes
from .test_demo import TORCHRUN


def begin() -> tuple[Any, ...]:
    mesh = parallel.start(device="cpu")
    again = parallel.start(device="cpu")
    assert mesh == again
    parallel.stop()
    assert dist.is_initialized(), "the group was there before"
    return mesh.mesh.tolist(), mesh.mesh_dim_names, mesh.device_type


def begin_with_version_of_another() -> None:
    if dist.get_rank() == 2:
        starting._version = lambda: "9.9"
    try:
        parallel.start(device="cpu")
    finally:
        parallel.stop()


def test_the_mesh_has_all_ranks(processes: Processes) -> None:
    assert processes.run(3, begin) == [([0, 1, 2], ("sequence",), "cpu")] * 3


def test_other_versions_are_refused_on_every_rank() -> None:
    own = Processes()
    try:
        outcomes = own.outcomes(3, begin_with_version_of_another)
    finally:
        own.close()
    assert [type(outcome) for outcome in outcomes] == [RankError] * 3
    for outcome in outcomes:
        assert "the version of heedmap" in str(outcome)
        assert "9.9 on rank 2" in str(outcome)


@pytest.fixture
def as_torchrun_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in (told | {"LOCAL_RANK": "1"}).items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("as_torchrun_starts")
def test_half_of_what_torchrun_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(
        ArgumentError, match=r"torchrun must have said all of .* without WORLD_SIZE"
    ):
        parallel.start()


def test_a_process_by_itself_is_the_only_rank() -> None:
    mesh = parallel.start(device="cpu")
    assert (mesh.size(), mesh.get_rank()) == (1, 0)
    parallel.stop()
    parallel.stop()
    assert not dist.is_initialized()


def test_a_map_without_its_processes() -> None:
    parallel.start(device="cpu")
    x = torch.randn(1, 1, 4, 2)
    weights = parallel.attention(x, x, x)[1]
    parallel.stop()
    with pytest.raises(UnsupportedError, match="process group of a map must still be there when"):
        weights.received()
    parallel.start(device="cpu")
    with pytest.raises(UnsupportedError, match="process group of a map must still be there when"):
        weights.received()
    parallel.stop()
    assert "rank 0 of 1" in repr(weights)


AGAIN_AND_AGAIN = """
import os, torch
from heedmap import parallel

for _ in range(4):
    mesh = parallel.start(device="cpu")
    x = torch.ones(1, 1, 4, 2)
    received = parallel.attention(x, x, x, mesh=mesh)[1].received()
    parallel.stop()
# In one piece, which the other's words do not come into.
os.write(1, f"{received.flatten().tolist()}\\n".encode())
"""


@pytest.mark.slow
def test_what_was_stopped_is_started_again(tmp_path: Path) -> None:
    program = tmp_path / "again.py"
    program.write_text(AGAIN_AND_AGAIN)
    done = subprocess.run(
        [*TORCHRUN, str(program)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str([1.0] * 8)] * 2


@pytest.mark.usefixtures("as_torchrun_starts")
def test_a_gpu_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ArgumentError, match=r"device must be one that is there; got 'cuda'\. Use"):
        parallel.start(device="cuda")


@pytest.mark.usefixtures("as_torchrun_starts")
def test_each_rank_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ArgumentError, match="at most as many as its GPUs, 1; got rank 1"):
        parallel.start()


@pytest.mark.bad_input
def test_a_device_that_nobody_has() -> None:
    with pytest.raises(ArgumentError, match="device must be 'cpu', 'cuda' or None; got 'tpu'"):
        parallel.start(device="tpu")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_faults_need_time(seconds: float) -> None:
    with pytest.raises(ArgumentError, match=f"fault_seconds must be above 0, .*; got {seconds}"):
        parallel.start(fault_seconds=seconds)
    assert not dist.is_initialized()


def test_a_gpu_must_be_there_where_a_group_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    parallel.start(device="cpu")
    with pytest.raises(ArgumentError, match="device must be one that is there; got 'cuda'"):
        parallel.start(device="cuda")
    parallel.stop()


def test_a_build_without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_available", lambda: False)
    with pytest.raises(UnsupportedError, match=r"must have torch\.distributed; this build has not"):
        parallel.start()
