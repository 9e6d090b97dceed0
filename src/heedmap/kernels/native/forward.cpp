// The output and the log-normaliser.

#include "softmax.hpp"

namespace heedmap {
namespace {

template <int N>
void forward(Rows& rows, Softmax& softmax, float* output, float* normalizer) {
    softmax.begin();
    for (int64_t from = rows.from_key; from < rows.to_key; from += KEYS) {
        const int size = (int)std::min<int64_t>(KEYS, rows.to_key - from);
        Vec* tile = rows.scores(from, size);
        softmax.add<N>(rows, tile, tile, from, size);
    }
    softmax.finish(rows, output, normalizer);
}

}  // namespace
}  // namespace heedmap

using namespace heedmap;

// Writes the output [batch, heads, query, value_width] and the log-normaliser [batch, heads, query],
// -inf for a row that sees nothing. Returns 0, or 1 if there is no memory.
extern "C" int heedmap_forward(const HeedmapProblem* problem, float* output, float* normalizer) {
    const HeedmapProblem& p = *problem;
    const int64_t blocks = (p.queries + ROWS - 1) / ROWS, jobs = p.batch * p.heads * blocks;
    int failed = 0;
#pragma omp parallel num_threads(p.threads) reduction(| : failed)
    try {
        Rows rows(p);
        Softmax softmax(p);
#pragma omp for schedule(dynamic)
        for (int64_t job = 0; job < jobs; ++job) {
            const int64_t matrix = job / blocks, row = job % blocks * ROWS;
            rows.take(matrix / p.heads, matrix % p.heads, row);
            float* o = output + (matrix * p.queries + row) * p.value_width;
            float* l = normalizer + matrix * p.queries + row;
            if (rows.wide == 1) forward<1>(rows, softmax, o, l);
            else if (rows.wide == 2) forward<2>(rows, softmax, o, l);
            else forward<3>(rows, softmax, o, l);
        }
    } catch (const std::bad_alloc&) {
        failed = 1;
    }
    return failed;
}
