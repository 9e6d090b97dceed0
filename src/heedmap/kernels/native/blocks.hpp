// Several blocks of rows that go through the keys together.

#pragma once

#include <memory>

#include "rows.hpp"

namespace heedmap {

// Where keys and values are far from the processor, so many blocks of rows take in a tile of them one
// after the other, while it is near.
constexpr int TOGETHER = 4;

template <typename Block>
using Held = std::unique_ptr<Block>;

// Calls `act` with each of `count` blocks and the start of each tile of the keys that it sees: tile by
// tile if all begin with the same key, else block by block. A block's own tiles are the same either
// way and in the same order, and so is its result.
template <typename Block, typename Act>
void through_keys(const Held<Block>* blocks, int64_t count, const Act& act) {
    int64_t end = 0;
    bool alike = true;
    const int64_t start = blocks[0]->rows.from_key;
    for (int64_t i = 0; i < count; ++i) {
        end = std::max(end, blocks[i]->rows.to_key);
        alike = alike && blocks[i]->rows.from_key == start;
    }
    if (alike) {
        for (int64_t from = start; from < end; from += KEYS)
            for (int64_t i = 0; i < count; ++i)
                if (from < blocks[i]->rows.to_key) act(*blocks[i], from);
    } else {
        for (int64_t i = 0; i < count; ++i)
            for (int64_t from = blocks[i]->rows.from_key; from < blocks[i]->rows.to_key; from += KEYS)
                act(*blocks[i], from);
    }
}

}  // namespace heedmap
