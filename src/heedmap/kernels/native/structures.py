"""What our kernel is given, field by field as in its source."""

import ctypes
import struct

PROBLEM = struct.Struct("@8P 3q3q3q 2qq4q4q 7q fi")
"""What a kernel computes; see ``rows.hpp``, which has the same fields.

Packed at once, which takes a fifth of the time that a field after the other does.
"""


class Statistics(ctypes.Structure):
    """Where statistics go; see ``gathered.hpp``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("log_normalizer", "received", "entropy", "pooled")),
        *((name, ctypes.c_void_p) for name in ("largest", "row_bins", "column_bins")),
        *((name, ctypes.c_void_p) for name in ("top_weights", "top_keys")),
        *((name, ctypes.c_int64) for name in ("pooled_rows", "pooled_columns", "top")),
        *((name, ctypes.c_int64) for name in ("first_matrix", "matrices")),
    )


class Gradients(ctypes.Structure):
    """What a backward pass is given, and where its results go; see ``backward.cpp``."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("log_normalizer", "upward", "slope", "query", "key", "value")
    )
