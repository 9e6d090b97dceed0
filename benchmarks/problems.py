"""What is computed: attention of so many positions, and what is hidden of it."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

LENGTHS = (128, 512, 2048, 8192, 32768)
HEADS = (1, 8)
WIDTHS = (64, 128)
MOST_SECONDS = 8.0
"""How long a call of the fused kernel may take, at 100 GFLOP/s, for a problem to be tried."""


@dataclass(frozen=True)
class Problem:
    """Self-attention of one sample in float32.

    Attributes:
        positions: Queries, and as many keys.
        heads: Heads of the query.
        width: Of a head, and of its values.
        hidden: What a query may not look at: nothing, what comes after it, or the last quarter of
            the keys, which is padding.
        kv_heads: Heads of key and value.
    """

    positions: int
    heads: int
    width: int
    hidden: Literal["nothing", "future", "padding"] = "nothing"
    kv_heads: int = 0

    @property
    def groups(self) -> int:
        """How many heads of the query share a head of the key."""
        return self.heads // (self.kv_heads or self.heads)

    @property
    def operations(self) -> int:
        """Multiplications and additions of the two products, of all pairs."""
        return 4 * self.heads * self.positions**2 * self.width

    def as_plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def all_problems() -> list[Problem]:
    """Return what the tables are about, the short ones first."""
    plain = [
        Problem(positions, heads, width)
        for width in WIDTHS
        for heads in HEADS
        for positions in LENGTHS
    ]
    masked = [
        Problem(4096, 8, 64, "future"),
        Problem(4096, 8, 64, "padding"),
        Problem(4096, 8, 64, kv_heads=2),
    ]
    return [p for p in plain if p.operations < MOST_SECONDS * 1e11] + masked
