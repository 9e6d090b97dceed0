// The output and the log-normaliser, tile by tile with a running maximum.

#include "rows.hpp"

namespace heedmap {
namespace {

template <int N>
void forward(Rows& rows, Vec* out, float* output, float* normalizer) {
    const int64_t width = rows.p.value_width, stride = rows.p.value_strides[2];
    const Vec unit = all(rows.per_unit * LOG2_E);
    for (int64_t j = 0; j < width * WIDE; ++j) out[j] = Vec{};
    Vec most[N], total[N];
    for (int n = 0; n < N; ++n) most[n] = all(NONE), total[n] = Vec{};
    for (int64_t from = rows.from_key; from < rows.to_key; from += KEYS) {
        const int size = (int)std::min<int64_t>(KEYS, rows.to_key - from);
        Vec* tile = rows.scores(from, size);
        Vec top[N], anchor[N], fade[N], sum[N];
        for (int n = 0; n < N; ++n) top[n] = most[n];
        for (int c = 0; c < size; ++c)
            for (int n = 0; n < N; ++n) top[n] = larger(tile[c * WIDE + n], top[n]);
        for (int n = 0; n < N; ++n) {
            anchor[n] = top[n] == all(NONE) ? Vec{} : top[n];
            fade[n] = power_of_two((most[n] - anchor[n]) * unit);
            most[n] = top[n], sum[n] = Vec{};
        }
        for (int c = 0; c < size; ++c)
            for (int n = 0; n < N; ++n) {
                const Vec w = power_of_two((tile[c * WIDE + n] - anchor[n]) * unit);
                tile[c * WIDE + n] = w, sum[n] += w;
            }
        for (int n = 0; n < N; ++n) total[n] = total[n] * fade[n] + sum[n];
        for (int64_t j = 0; j < width; ++j)
            for (int n = 0; n < N; ++n) out[j * WIDE + n] *= fade[n];
        const float* value = rows.value + from * stride;
        int64_t j = 0;
        for (; j + TALL <= width; j += TALL) gather<N, TALL>(value + j, stride, tile, size, out + j * WIDE);
        for (; j < width; ++j) gather<N, 1>(value + j, stride, tile, size, out + j * WIDE);
    }
    const float* flat = (const float*)out;
    const double natural = rows.per_unit;
    for (int r = 0; r < rows.count; ++r) {
        const float sum = total[r / LANES][r % LANES], top = most[r / LANES][r % LANES];
        const bool blind = top == NONE && sum == 0;
        for (int64_t j = 0; j < width; ++j) output[r * width + j] = blind ? 0 : flat[j * ROWS + r] / sum;
        normalizer[r] = blind ? NONE : (float)(top * natural + std::log((double)sum));
    }
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
        Buffer<Vec> out(p.value_width * WIDE);
#pragma omp for schedule(dynamic)
        for (int64_t job = 0; job < jobs; ++job) {
            const int64_t matrix = job / blocks, row = job % blocks * ROWS;
            rows.take(matrix / p.heads, matrix % p.heads, row);
            float* o = output + (matrix * p.queries + row) * p.value_width;
            float* l = normalizer + matrix * p.queries + row;
            if (rows.wide == 1) forward<1>(rows, out.data, o, l);
            else if (rows.wide == 2) forward<2>(rows, out.data, o, l);
            else forward<3>(rows, out.data, o, l);
        }
    } catch (const std::bad_alloc&) {
        failed = 1;
    }
    return failed;
}
