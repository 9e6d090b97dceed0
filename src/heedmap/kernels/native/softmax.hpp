// The output and the log-normaliser of a block of rows, tile by tile with a running maximum.

#pragma once

#include "rows.hpp"

namespace heedmap {

class Softmax {
  public:
    explicit Softmax(const HeedmapProblem& problem)
        : p(problem), out_(p.value_width * WIDE) {}

    void begin() {
        for (int64_t j = 0; j < p.value_width * WIDE; ++j) out_.data[j] = Vec{};
        for (int n = 0; n < WIDE; ++n) most_[n] = all(NONE), total_[n] = Vec{};
    }

    // Takes in a tile of scores; `weights` is room for what becomes of them, perhaps the same.
    template <int N>
    void add(const Rows& rows, const Vec* scores, Vec* weights, int64_t from, int size) {
        const int64_t width = p.value_width, stride = p.value_strides[2];
        const Vec unit = all(rows.per_unit * LOG2_E);
        Vec top[N], anchor[N], fade[N], sum[N];
        for (int n = 0; n < N; ++n) top[n] = most_[n];
        for (int c = 0; c < size; ++c)
            for (int n = 0; n < N; ++n) top[n] = larger(scores[c * WIDE + n], top[n]);
        for (int n = 0; n < N; ++n) {
            anchor[n] = top[n] == all(NONE) ? Vec{} : top[n];
            fade[n] = power_of_two((most_[n] - anchor[n]) * unit);
            most_[n] = top[n], sum[n] = Vec{};
        }
        for (int c = 0; c < size; ++c)
            for (int n = 0; n < N; ++n) {
                const Vec w = power_of_two((scores[c * WIDE + n] - anchor[n]) * unit);
                weights[c * WIDE + n] = w, sum[n] += w;
            }
        for (int n = 0; n < N; ++n) total_[n] = total_[n] * fade[n] + sum[n];
        Vec* out = out_.data;
        for (int64_t j = 0; j < width; ++j)
            for (int n = 0; n < N; ++n) out[j * WIDE + n] *= fade[n];
        const float* value = rows.value + from * stride;
        int64_t j = 0;
        for (; j + TALL <= width; j += TALL) gather<N, TALL>(value + j, stride, weights, size, out + j * WIDE);
        for (; j < width; ++j) gather<N, 1>(value + j, stride, weights, size, out + j * WIDE);
    }

    void finish(const Rows& rows, float* output, float* normalizer) {
        const float* flat = (const float*)out_.data;
        const int64_t width = p.value_width;
        const double natural = rows.per_unit;
        for (int r = 0; r < rows.count; ++r) {
            const float sum = ((float*)total_)[r], top = ((float*)most_)[r];
            const bool blind = top == NONE && sum == 0;
            for (int64_t j = 0; j < width; ++j) output[r * width + j] = blind ? 0 : flat[j * ROWS + r] / sum;
            normalizer[r] = blind ? NONE : (float)(top * natural + std::log((double)sum));
        }
    }

  private:
    const HeedmapProblem& p;
    Buffer<Vec> out_;
    Vec most_[WIDE], total_[WIDE];
};

}  // namespace heedmap
