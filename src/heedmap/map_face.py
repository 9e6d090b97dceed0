"""What a map does as a tensor where torch does not ask it through its functions.

Iterating, leaving for NumPy, copying: what is called by its own name and never passes
`__torch_function__`.
"""

import copy
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

from heedmap.errors import FrozenError, UnsupportedError
from heedmap.lazy import LazyMatrix
from heedmap.map_cells import densify

Face = TypeVar("Face", bound="TensorFace")


class TensorFace(Tensor):
    """A tensor without storage, whose cells a rule makes; `AttentionMap` is the only kind."""

    _rule: LazyMatrix
    _lead: tuple[int, ...]
    _kept: tuple[bool, bool]

    def __iter__(self) -> Iterator[Any]:
        """Yield the views along the first dimension."""
        if not self.ndim:
            raise TypeError("iteration over a 0-d tensor")
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the map as a NumPy array of its own, under the budget."""
        del copy
        made = self.numpy()
        return made if dtype is None else made.astype(dtype, copy=False)

    def numpy(self, *, force: bool = False) -> Any:
        """Return the map as a NumPy array of its own, under the budget."""
        if self.requires_grad and not force:
            raise RuntimeError(
                "numpy() must not be called on a map that requires grad. Use detach().numpy()."
            )
        return densify(self._detached(), "numpy()").numpy(force=force)

    def tolist(self) -> Any:
        """Return the map as nested lists, under the budget."""
        return densify(self._detached(), "tolist()").tolist()

    @property
    def requires_grad(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether anything that the map is made of requires a gradient."""
        return self._rule.requires_grad()

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        raise FrozenError(
            f"requires_grad must not be set on a map; got {value}. Set it on query and key."
        )

    def __copy__(self: Face) -> Face:
        """Return another face of the same rule."""
        return self._on(self._rule)

    def __deepcopy__(self: Face, memo: dict[int, Any]) -> Face:
        """Return a map on copies of everything that it stands on."""
        made = self._on(copy.deepcopy(self._detached()._rule, memo))
        memo[id(self)] = made
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Refuse what reached for cells that do not exist."""
        raise UnsupportedError(
            f"{func} must not reach a map below torch's functions; it did. Use to_dense() first."
        )

    def _detached(self: Face) -> Face:
        return self._on(self._rule.map_tensors(lambda tensor: tensor.detach()))

    def _on(self: Face, rule: LazyMatrix, dtype: torch.dtype | None = None) -> Face:
        return type(self)(rule, self._lead, self._kept, dtype or self.dtype)
