"""The kernel itself, in Triton's language: statistics of weights, in one pass over them.

Triton is imported, and gets to see these functions, when `make` is called. Until then they are
plain functions, and `tl`, which is Triton's language, is nothing.

A program goes through some rows of one matrix, block by block, and through the keys that these may
see. What several programs add up, each adds up in memory of its own, so that it is added in the
same order, and comes out with the same bits, every time.
"""

# Annotations are read by Triton alone, as text.
from __future__ import annotations

import functools
from typing import Any, no_type_check

tl: Any = None

TOGETHER = ("cut_out", "log_weights", "take_strongest", "draw")
"""What `gather` calls."""

SIZES = (
    *("first_matrix", "heads", "shared", "rows", "keys"),
    *("window", "pooled_rows", "pooled_columns"),
)
"""What does not decide how addresses are aligned, and is not worth compiling anew for."""


@functools.cache
def make() -> Any:
    """Return `gather` as a kernel, `tl` and `TOGETHER` being made what it needs."""
    import triton
    import triton.language

    globals()["tl"] = triton.language
    for part in TOGETHER:
        globals()[part] = triton.jit(globals()[part])
    return triton.jit(do_not_specialize=SIZES)(gather)


@no_type_check
def cut_out(
    numbers,
    places,
    there,
    row_stride,
    part_stride,
    start,
    WIDTH: tl.constexpr,
    PART: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Return some of the numbers of some vectors, 0 where there are none."""
    parts = start + tl.arange(0, PART)
    inside = there[:, None] & (parts < WIDTH)[None, :]
    where = places.to(tl.int64)[:, None] * row_stride + parts.to(tl.int64)[None, :] * part_stride
    found = tl.load(numbers + where, mask=inside, other=0.0)
    if WIDEN:
        found = found.to(tl.float32)
    return found


@no_type_check
def log_weights(
    query,
    query_row,
    query_part,
    key,
    key_row,
    key_part,
    lines,
    is_line,
    columns,
    is_column,
    first_part,
    start,
    scale,
    WIDTH: tl.constexpr,
    PART: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Return the logarithms of a tile of weights, without bias and mask."""
    seen = cut_out(key, columns, is_column, key_row, key_part, 0, WIDTH, PART, WIDEN)
    product = tl.dot(first_part, tl.trans(seen), input_precision="ieee")
    for part in range(PART, WIDTH, PART):
        asks = cut_out(query, lines, is_line, query_row, query_part, part, WIDTH, PART, WIDEN)
        seen = cut_out(key, columns, is_column, key_row, key_part, part, WIDTH, PART, WIDEN)
        product = tl.dot(asks, tl.trans(seen), product, input_precision="ieee")
    return product * scale + start[:, None]


@no_type_check
def take_strongest(held, bits, columns):
    """Return the strongest keys of each row, `held`, with those of one more tile among them.

    A key that is held is one number: the bits of its weight, which order weights as whole numbers,
    and below them its own, counted from the end, so that of equal weights the first is greatest. A
    row first holds its first keys with a weight of 0. Keys come in their order.
    """
    least = tl.min(held, 1)
    best = tl.max(bits, 1)
    while tl.max((best.to(tl.int64) > (least >> 32)).to(tl.int32), 0) > 0:
        enters = best.to(tl.int64) > (least >> 32)
        column = tl.min(tl.where(bits == best[:, None], columns[None, :], 2147483647), 1)
        unseen = 4294967295 - column.to(tl.int64)
        is_held = tl.max((held == unseen[:, None]).to(tl.int32), 1) > 0
        leaves = tl.where(is_held, unseen, least)
        comes = (best.to(tl.int64) << 32) | unseen
        held = tl.where(enters[:, None] & (held == leaves[:, None]), comes[:, None], held)
        bits = tl.where(columns[None, :] == column[:, None], 0, bits)
        least = tl.min(held, 1)
        best = tl.max(bits, 1)
    return held


@no_type_check
def draw(
    weights,
    bits,
    row_bin,
    first_row_bin,
    last_row_bin,
    column_bin,
    first_column_bin,
    last_column_bin,
    sums,
    maxima,
    pooled_columns,
):
    """Add a tile to a picture of sums and to one of the largest weights."""
    for across in range(first_column_bin, last_column_bin + 1):
        chosen = (column_bin == across)[None, :]
        line = tl.sum(tl.where(chosen, weights, 0.0), 1)
        peak = tl.max(tl.where(chosen, bits, 0), 1)
        for down in range(first_row_bin, last_row_bin + 1):
            here = row_bin == down
            cell = tl.cast(down, tl.int64) * pooled_columns + across
            if sums is not None:
                tl.atomic_add(sums + cell, tl.sum(tl.where(here, line, 0.0), 0), sem="relaxed")
            if maxima is not None:
                tl.atomic_max(maxima + cell, tl.max(tl.where(here, peak, 0), 0), sem="relaxed")


@no_type_check
def gather(
    query,
    query_sample,
    query_head,
    query_row,
    query_part,
    key,
    key_sample,
    key_head,
    key_row,
    key_part,
    bias,
    bias_sample,
    bias_head,
    bias_row,
    bias_key,
    first,
    last,
    spans_sample,
    spans_head,
    valid,
    valid_sample,
    visible,
    visible_sample,
    visible_head,
    visible_row,
    visible_key,
    starts,
    cuts,
    row_bins,
    column_bins,
    received,
    entropy,
    strongest,
    sums,
    maxima,
    first_matrix,
    heads,
    shared,
    rows,
    keys,
    scale,
    window,
    pooled_rows,
    pooled_columns,
    WIDTH: tl.constexpr,
    TOP: tl.constexpr,
    HELD: tl.constexpr,
    WIDEN: tl.constexpr,
    LINES: tl.constexpr,
    COLUMNS: tl.constexpr,
    PART: tl.constexpr,
):
    """Gather the statistics of one group of rows of one matrix; what is None is not gathered.

    `starts` are the negative log-normalisers. Entropies come out negative.
    """
    place = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    own = place * tl.num_programs(1) + group
    sample = (first_matrix + place) // heads
    head = (first_matrix + place) % heads
    query += sample * query_sample + head * query_head
    key += sample * key_sample + head // shared * key_head
    if bias is not None:
        bias += sample * bias_sample + head * bias_head
    if first is not None:
        first += sample * spans_sample + head * spans_head
        last += sample * spans_sample + head * spans_head
    if valid is not None:
        valid += sample * valid_sample
    if visible is not None:
        visible += sample * visible_sample + head * visible_head
    if received is not None:
        received += own * keys
    begin = tl.load(cuts + group)
    end = tl.load(cuts + group + 1)
    if row_bins is not None:
        if sums is not None:
            above = tl.load(row_bins + tl.minimum(begin, rows - 1))
            sums += (own * window - above) * pooled_columns
        if maxima is not None:
            maxima += place * pooled_rows * pooled_columns
    for line in range(begin, end, LINES):
        lines = line + tl.arange(0, LINES)
        is_line = lines < end
        start = tl.load(starts + place * rows + lines, mask=is_line, other=0.0)
        first_part = cut_out(query, lines, is_line, query_row, query_part, 0, WIDTH, PART, WIDEN)
        left = 0
        right = keys
        if first is not None:
            first_key = tl.load(first + lines, mask=is_line, other=0)
            last_key = tl.load(last + lines, mask=is_line, other=-1)
            sees = first_key <= last_key
            left = tl.min(tl.where(sees, first_key, keys), 0) // COLUMNS * COLUMNS
            right = tl.max(tl.where(sees, last_key, -1), 0) + 1
        if row_bins is not None:
            row_bin = tl.load(row_bins + lines, mask=is_line, other=-1)
            first_row_bin = tl.load(row_bins + line)
            last_row_bin = tl.load(row_bins + tl.minimum(line + LINES, end) - 1)
        told = tl.zeros([LINES], tl.float32)
        if TOP > 0:
            slots = tl.arange(0, HELD)
            unseen = tl.where(slots < TOP, 4294967295 - slots.to(tl.int64), 9223372036854775807)
            held = unseen[None, :] + tl.zeros([LINES, HELD], tl.int64)
        for column in range(left, right, COLUMNS):
            columns = column + tl.arange(0, COLUMNS)
            is_column = columns < keys
            shown = is_line[:, None] & is_column[None, :]
            logarithms = log_weights(
                query,
                query_row,
                query_part,
                key,
                key_row,
                key_part,
                lines,
                is_line,
                columns,
                is_column,
                first_part,
                start,
                scale,
                WIDTH,
                PART,
                WIDEN,
            )
            if bias is not None:
                where = lines.to(tl.int64)[:, None] * bias_row
                where += columns.to(tl.int64)[None, :] * bias_key
                added = tl.load(bias + where, mask=shown, other=0.0)
                logarithms += added.to(tl.float32)
            if first is not None:
                shown &= columns[None, :] >= first_key[:, None]
                shown &= columns[None, :] <= last_key[:, None]
            if valid is not None:
                shown &= (tl.load(valid + columns, mask=is_column, other=0) != 0)[None, :]
            if visible is not None:
                where = lines.to(tl.int64)[:, None] * visible_row
                where += columns.to(tl.int64)[None, :] * visible_key
                shown &= tl.load(visible + where, mask=shown, other=0) != 0
            weights = tl.where(shown, tl.exp(logarithms), 0.0)
            # What is not a number is the largest, whatever its sign.
            bits = weights.to(tl.int32, bitcast=True) & 2147483647
            if entropy is not None:
                told += tl.sum(tl.where(weights == 0, 0.0, weights * logarithms), 1)
            if received is not None:
                tl.atomic_add(received + columns, tl.sum(weights, 0), mask=is_column, sem="relaxed")
            if row_bins is not None:
                draw(
                    weights,
                    bits,
                    row_bin,
                    first_row_bin,
                    last_row_bin,
                    tl.load(column_bins + columns, mask=is_column, other=-1),
                    tl.load(column_bins + column),
                    tl.load(column_bins + tl.minimum(column + COLUMNS, keys) - 1),
                    sums,
                    maxima,
                    pooled_columns,
                )
            if TOP > 0:
                held = take_strongest(held, bits, columns)
        if entropy is not None:
            tl.store(entropy + place * rows + lines, told, mask=is_line)
        if TOP > 0:
            where = (place * rows + lines)[:, None] * TOP + slots[None, :]
            tl.store(strongest + where, held, mask=is_line[:, None] & (slots < TOP)[None, :])
