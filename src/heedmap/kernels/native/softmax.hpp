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
        for (int n = 0; n < WIDE; ++n) most_[n] = all(NONE), total_[n] = spread_[n] = Vec{};
    }

    // Takes in a tile of scores; `weights` is room for what becomes of them, perhaps the same. With
    // SPREADS the entropy is known in the end.
    template <int N, bool SPREADS = false>
    void add(const Rows& rows, const Vec* scores, Vec* weights, int64_t from, int size) {
        const int64_t width = p.value_width, stride = p.value_strides[2];
        const Vec unit = all(rows.per_unit * LOG2_E);
        Vec top[N], fade[N];
        for (int n = 0; n < N; ++n) top[n] = most_[n];
        for (int c = 0; c < size; ++c)
            for (int n = 0; n < N; ++n) top[n] = larger(scores[c * WIDE + n], top[n]);
        for (int n = 0; n < N; ++n) {
            const Vec anchor = top[n] == all(NONE) ? Vec{} : top[n];
            const Vec change = (most_[n] - anchor) * unit;
            fade[n] = power_of_two(change);
            most_[n] = top[n];
            const Totals sum = weigh(scores + n, anchor, unit, size, weights + n);
            if (SPREADS) {
                const Vec shifted = spread_[n] + total_[n] * larger(all(-127.0f), change);
                spread_[n] = shifted * fade[n] + sum.exponents;
            }
            total_[n] = total_[n] * fade[n] + sum.weights;
        }
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

    // The largest scores so far, which the weights of the last tile are relative to.
    const Vec* most() const { return most_; }

    // Makes of the largest scores that a tile's weights are relative to what these are to be multiplied
    // by in the end; 0 for rows that do not exist or see nothing.
    void share(const Rows& rows, Vec* most) const {
        const Vec unit = all(rows.per_unit * LOG2_E);
        for (int n = 0; n < rows.wide; ++n) {
            Vec whole{};
            for (int lane = 0; lane < LANES && n * LANES + lane < rows.count; ++lane)
                if (total_[n][lane] != 0) whole[lane] = 1 / total_[n][lane];
            const Vec last = most_[n] == all(NONE) ? Vec{} : most_[n];
            most[n] = power_of_two((most[n] - last) * unit) * whole;
        }
    }

    // Writes the entropy of each row: of weights w = 2^x / sum, it is ln sum - ln 2 · mean of x.
    void write_entropy(const Rows& rows, float* entropy) const {
        for (int r = 0; r < rows.count; ++r) {
            const float sum = ((float*)total_)[r], spread = ((float*)spread_)[r];
            entropy[r] = sum == 0 ? 0 : std::log(sum) - spread / sum * LN_2;
        }
    }

  private:
    const HeedmapProblem& p;
    Buffer<Vec> out_;
    Vec most_[WIDE], total_[WIDE], spread_[WIDE];
};

}  // namespace heedmap
