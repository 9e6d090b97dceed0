// The output and the log-normaliser.

#include "blocks.hpp"
#include "softmax.hpp"

namespace heedmap {
namespace {

// A block of rows, and what its softmax has gathered so far.
class RowBlock {
  public:
    explicit RowBlock(const HeedmapProblem& problem) : rows(problem), softmax_(problem) {}

    void take(int64_t matrix, int64_t row) {
        rows.take(matrix / rows.p.heads, matrix % rows.p.heads, row);
        softmax_.begin();
    }

    // Takes in the tile of keys from `from` on; `tile` is room for it.
    void add(int64_t from, Vec* tile) {
        const int size = rows.size_of(from);
        rows.scores(from, size, tile);
        rows.for_width([&](auto n) { softmax_.add<n>(rows, tile, tile, from, size); });
    }

    void finish(float* output, float* normalizer) { softmax_.finish(rows, output, normalizer); }

    Rows rows;

  private:
    Softmax softmax_;
};

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
        std::vector<Held<RowBlock>> taken;
        for (int64_t i = 0; i < high; ++i) taken.push_back(std::make_unique<RowBlock>(p));
#pragma omp for schedule(dynamic)
        for (int64_t job = 0; job < matrices * groups; ++job) {
            const int64_t matrix = job / groups, first = job % groups * high;
            const int64_t count = std::min(high, blocks - first);
            for (int64_t i = 0; i < count; ++i) taken[i]->take(matrix, (first + i) * ROWS);
            through_keys(taken.data(), count, [&](RowBlock& block, int64_t from) {
                block.add(from, taken[0]->rows.tile());
            });
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
