// The output and the log-normaliser.

#include "softmax.hpp"

#include <memory>

namespace heedmap {
namespace {

// Where keys and values are far from the processor, so many blocks of rows take in a tile of them one
// after the other, while it is near.
constexpr int TOGETHER = 4;

// A block of rows, and what its softmax has gathered so far.
class RowBlock {
  public:
    explicit RowBlock(const HeedmapProblem& problem) : rows(problem), softmax_(problem) {}

    void take(int64_t matrix, int64_t row) {
        rows.take(matrix / rows.p.heads, matrix % rows.p.heads, row);
        softmax_.begin();
    }

    // Takes in the tile of keys from `from` on, if these rows see so far; `tile` is room for it.
    void add(int64_t from, Vec* tile) {
        if (from >= rows.to_key) return;
        if (rows.wide == 1) add_wide<1>(from, tile);
        else if (rows.wide == 2) add_wide<2>(from, tile);
        else add_wide<3>(from, tile);
    }

    void finish(float* output, float* normalizer) { softmax_.finish(rows, output, normalizer); }

    Rows rows;

  private:
    template <int N>
    void add_wide(int64_t from, Vec* tile) {
        const int size = (int)std::min<int64_t>(KEYS, rows.to_key - from);
        rows.scores(from, size, tile);
        softmax_.add<N>(rows, tile, tile, from, size);
    }

    Softmax softmax_;
};

using Held = std::unique_ptr<RowBlock>;

// Goes through the keys of `count` blocks: tile by tile if all begin with the same key, else block by
// block. A block's own tiles are the same either way, and so is its result.
void gather_all(const Held* blocks, int64_t count) {
    int64_t end = 0;
    bool alike = true;
    Vec* tile = blocks[0]->rows.tile();
    const int64_t start = blocks[0]->rows.from_key;
    for (int64_t i = 0; i < count; ++i) {
        end = std::max(end, blocks[i]->rows.to_key);
        alike = alike && blocks[i]->rows.from_key == start;
    }
    if (alike) {
        for (int64_t from = start; from < end; from += KEYS)
            for (int64_t i = 0; i < count; ++i) blocks[i]->add(from, tile);
    } else {
        for (int64_t i = 0; i < count; ++i)
            for (int64_t from = blocks[i]->rows.from_key; from < blocks[i]->rows.to_key; from += KEYS)
                blocks[i]->add(from, tile);
    }
}

}  // namespace
}  // namespace heedmap

using namespace heedmap;

// Writes the output [batch, heads, query, value_width] and the log-normaliser [batch, heads, query],
// -inf for a row that sees nothing. Returns 0, or 1 if there is no memory.
extern "C" int heedmap_forward(const HeedmapProblem* problem, float* output, float* normalizer) {
    const HeedmapProblem& p = *problem;
    const int64_t matrices = p.batch * p.heads, blocks = (p.queries + ROWS - 1) / ROWS;
    // Each thread must have some groups of blocks to choose from.
    const bool together = is_far(p) && matrices * blocks >= (int64_t)8 * TOGETHER * p.threads;
    const int64_t high = together ? TOGETHER : 1, groups = (blocks + high - 1) / high;
    int failed = 0;
#pragma omp parallel num_threads(p.threads) reduction(| : failed)
    try {
        std::vector<Held> taken;
        for (int64_t i = 0; i < high; ++i) taken.push_back(std::make_unique<RowBlock>(p));
#pragma omp for schedule(dynamic)
        for (int64_t job = 0; job < matrices * groups; ++job) {
            const int64_t matrix = job / groups, first = job % groups * high;
            const int64_t count = std::min(high, blocks - first);
            for (int64_t i = 0; i < count; ++i) taken[i]->take(matrix, (first + i) * ROWS);
            gather_all(taken.data(), count);
            for (int64_t i = 0; i < count; ++i) {
                const int64_t row = matrix * p.queries + (first + i) * ROWS;
                taken[i]->finish(output + row * p.value_width, normalizer + row);
            }
        }
    } catch (const std::bad_alloc&) {
        failed = 1;
    }
    return failed;
}
