"""The attention of other people's models, while they run: `heedmap.watch`.

`watching` is where to begin; `interception` hears of the calls, `doors` says which functions they
go through, and a file for each kind of door reads what a call is made of. `track` makes the steps
of a decoding into one map.
"""

from heedmap.watch.watching import watch

__all__ = ["watch"]
