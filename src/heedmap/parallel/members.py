"""The processes that share a sequence, and what they tell and send each other.

All that goes from process to process goes through `Members`, on `torch.distributed`: gloo, nccl, or
whatever else the process group was made with.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from heedmap.errors import ArgumentError, HeedmapError, RankError, UnsupportedError
from heedmap.parallel.faults import together

Mesh = DeviceMesh | dist.ProcessGroup
"""What says which processes share a sequence."""


class Transfer:
    """Tensors on their way; the work at hand goes on meanwhile."""

    def __init__(self, works: list[Any], kept: list[Tensor]) -> None:
        """Hold what is under way, and the memory it is sent from."""
        self.works, self.kept = works, kept

    def wait(self) -> None:
        """Return when all has been sent and has come."""
        with together():
            for work in self.works:
                work.wait()
        self.works, self.kept = [], []


@dataclass(frozen=True, eq=False)
class Members:
    """The processes of a group, each with its rank in it.

    Attributes:
        group: The process group.
        rank: The number of this process in it.
        size: How many there are.
    """

    group: dist.ProcessGroup
    rank: int
    size: int

    @classmethod
    def of(cls, mesh: Mesh | None) -> "Members":
        """Return the processes of a mesh of one dimension, of a group, or all there are.

        Raises:
            UnsupportedError: if no process group has been started, or this process is not in it.
            ArgumentError: for a mesh of more dimensions, or what is neither mesh nor group.
        """
        if not dist.is_available() or not dist.is_initialized():
            raise UnsupportedError(
                "the process group must be there before a sequence is shared; none was started. "
                "Call heedmap.parallel.start() first, in a program started with torchrun."
            )
        if isinstance(mesh, DeviceMesh):
            if mesh.ndim != 1:
                raise ArgumentError(
                    f"mesh must have one dimension, that of the sequence; got {mesh.ndim}. Give "
                    "that one alone, as in mesh['sequence']."
                )
            mesh = mesh.get_group()
        group = dist.group.WORLD if mesh is None else mesh
        outside = group is dist.GroupMember.NON_GROUP_MEMBER
        if not outside and not isinstance(group, dist.ProcessGroup):
            raise ArgumentError(
                f"mesh must be a DeviceMesh or a ProcessGroup; got {type(mesh).__name__}."
            )
        rank = -1 if outside else dist.get_rank(group)
        if rank < 0 or not isinstance(group, dist.ProcessGroup):
            raise UnsupportedError(
                "this process must be one of the mesh; it is not. Call only where it is."
            )
        return cls(group, rank, dist.get_world_size(group))

    def require_device(self, device: torch.device) -> None:
        """Refuse tensors of a device between which the group sends nothing.

        Raises:
            UnsupportedError: for such a device.
        """
        backend = self._backends.get(device.type)
        # gloo adds up what is on a GPU, but does not send it from one rank to another.
        if backend is None or (backend == "gloo" and device.type != "cpu"):
            raise UnsupportedError(
                f"mesh must have a backend that sends tensors of {device.type}; got "
                f"{dist.get_backend_config(self.group)}. "
                "Start it with nccl for CUDA, gloo for the CPU."
            )

    def gather(self, told: Any) -> list[Any]:
        """Return what every rank tells, in the order of ranks; anything that can be pickled."""
        found: list[Any] = [None] * self.size
        with together():
            dist.all_gather_object(found, told, group=self.group)
        return found

    def agree(self, wish: str, told: Any = None, error: HeedmapError | None = None) -> list[Any]:
        """Return what every rank tells, once it is known that all of them wish the same.

        Every rank calls it before it sends or waits for anything else, so that none waits for ever
        for one that does something else.

        Args:
            wish: What is to be done, in words that are the same on all ranks.
            told: What the others are to know.
            error: What keeps this rank from it.

        Raises:
            HeedmapError: the error given, on the rank that gave it.
            RankError: on the others, and on all if their wishes differ.
        """
        self._require_group()
        if self._all_say(None if error is not None else wish):
            return [None] * self.size if told is None else self.gather(told)
        found = self.gather((wish, None if error is None else str(error)))
        if error is not None:
            raise error
        first = found[0][0]
        for rank, (_, failed) in enumerate(found):
            if failed is not None:
                raise RankError(f"rank {rank} must be able to take part; it got: {failed}")
        for rank, (other, _) in enumerate(found):
            if other != first:
                raise RankError(
                    f"all ranks must ask the same, in the same order; rank 0 asked for {first}, "
                    f"rank {rank} for {other}."
                )
        raise AssertionError("ranks that say the same must agree")

    def _require_group(self) -> None:
        """Refuse to go on where the processes are connected no more.

        Raises:
            UnsupportedError: if the group was ended since.
        """
        try:
            dist.get_process_group_ranks(self.group)
        except KeyError:
            raise UnsupportedError(
                "the process group of a map must still be there when it is asked; it was ended "
                "since, as heedmap.parallel.stop() does. Ask before, or save the map."
            ) from None

    def _all_say(self, wish: str | None) -> bool:
        """Return whether all ranks say the same, and something."""
        said = hash_of(wish)
        heard = torch.tensor([said, -said], device=self._device)
        if self.size > 1:
            with together():
                dist.all_reduce(heard, dist.ReduceOp.MAX, group=self.group)
        highest, lowest = heard.tolist()
        return highest == -lowest and wish is not None

    def any(self, is_so: bool) -> bool:
        """Return whether something is so on any rank."""
        heard = torch.tensor([int(is_so)], device=self._device)
        self.add_up(heard)
        return bool(heard.item())

    @cached_property
    def _device(self) -> torch.device:
        """Where small tensors lie that all ranks compare."""
        return torch.device("cpu" if "cpu" in self._backends else "cuda")

    @property
    def _backends(self) -> dict[str, str]:
        """What sends tensors of each device."""
        config = dist.get_backend_config(self.group)
        return dict(pair.split(":", 1) for pair in config.split(","))

    def add_up(self, tensor: Tensor) -> None:
        """Add up a tensor over all ranks, in its place."""
        if tensor.numel() and self.size > 1:
            with together():
                dist.all_reduce(tensor, group=self.group)

    def exchange(
        self,
        sent: Sequence[tuple[int, Tensor]] = (),
        received: Sequence[tuple[int, Tensor]] = (),
    ) -> Transfer:
        """Begin to send tensors to other ranks, and to receive into those given, and return.

        Tensors without numbers are not sent. Between two ranks they come in the order given.
        """
        going = [(rank, tensor.detach().contiguous()) for rank, tensor in sent if tensor.numel()]
        coming = [(rank, tensor) for rank, tensor in received if tensor.numel()]
        operations = [
            dist.P2POp(dist.isend, tensor, group=self.group, group_peer=rank)
            for rank, tensor in going
        ] + [
            dist.P2POp(dist.irecv, tensor, group=self.group, group_peer=rank)
            for rank, tensor in coming
        ]
        with together():
            works = dist.batch_isend_irecv(operations) if operations else []
        return Transfer(works, [tensor for _, tensor in going])


def hash_of(wish: str | None) -> int:
    """Return a number that is the same for the same words in every process; 0 for none."""
    if wish is None:
        return 0
    return int.from_bytes(hashlib.sha256(wish.encode()).digest()[:7]) + 1


def require_alike(told: Sequence[dict[str, Any]]) -> None:
    """Refuse what differs between ranks.

    Args:
        told: For each rank, what must be the same everywhere, by name.

    Raises:
        RankError: saying what differs, and where.
    """
    for name, expected in told[0].items():
        for rank, other in enumerate(told):
            if other[name] != expected:
                raise RankError(
                    f"{name} must be the same on all ranks; got {expected} on rank 0 and "
                    f"{other[name]} on rank {rank}."
                )
