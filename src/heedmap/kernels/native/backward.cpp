// The gradients of query, key and value: each tile of weights is made again.

#include "rows.hpp"

// What a backward pass is given, and where its results go; all without gaps.
struct HeedmapGradients {
    const float* log_normalizer;  // [batch, heads, query]
    const float* upward;          // of the output, [batch, heads, query, value_width]
    const float* slope;           // what to take from upward · value, [batch, heads, query]
    float* query;                 // [batch, heads, query, width]
    float* key;                   // [batch, kv_heads, key, width]
    float* value;                 // [batch, kv_heads, key, value_width]
};

namespace heedmap {
namespace {

// Adds to M lines of W vectors what rows with these weights have in theirs.
template <int M, int W>
inline void spread(const float* weight, const float* lines, int64_t stride, int rows, float* out) {
    sum_products<M, W>(weight, 1, ROWS, lines, stride, rows,
                       [=](int m, int w, Vec sum) { *(Vec*)(out + m * stride + w * LANES) += sum; });
}

template <int M>
inline void spread_all(const float* weight, const float* lines, int64_t width, int rows, float* out) {
    int64_t at = 0;
    for (; at + 4 * LANES <= width; at += 4 * LANES) spread<M, 4>(weight, lines + at, width, rows, out + at);
    for (; at < width; at += LANES) spread<M, 1>(weight, lines + at, width, rows, out + at);
}

// The gradients of a block of rows, added to those of the keys and values that they see.
class Backward {
  public:
    Backward(const HeedmapProblem& problem, const HeedmapGradients& wanted)
        : p(problem), g(wanted), width_(padded(p.width)), value_width_(padded(p.value_width)),
          upward_(p.value_width * ROWS), upward_lines_(value_width_ * ROWS),
          query_lines_(width_ * ROWS), d_scores_(KEYS * WIDE), d_query_(p.width * WIDE) {}

    template <int N>
    void run(Rows& rows, float* d_key, float* d_value) {
        take(rows);
        const Vec unit = all(rows.per_unit * LOG2_E);
        const int64_t stride = p.value_strides[2];
        for (int64_t i = 0; i < p.width * WIDE; ++i) d_query_.data[i] = Vec{};
        for (int64_t from = rows.from_key; from < rows.to_key; from += KEYS) {
            const int size = (int)std::min<int64_t>(KEYS, rows.to_key - from);
            Vec* tile = rows.scores(from, size);
            const float* value = rows.value + from * stride;
            int c = 0;
            for (; c + TALL <= size; c += TALL)
                score<N, TALL>(value + c * stride, stride, upward_.data, p.value_width, d_scores_.data + c * WIDE);
            for (; c < size; ++c)
                score<N, 1>(value + c * stride, stride, upward_.data, p.value_width, d_scores_.data + c * WIDE);
            for (int n = 0; n < N; ++n) {
                weigh(tile + n, anchor_[n], unit, size, tile + n);
                for (c = 0; c < size; ++c) {
                    Vec& rise = d_scores_.data[c * WIDE + n];
                    rise = tile[c * WIDE + n] * (rise - slope_[n]);
                }
            }
            const float* key = rows.key + from * p.key_strides[2];
            int64_t i = 0;
            for (; i + TALL <= p.width; i += TALL)
                gather<N, TALL>(key + i, p.key_strides[2], d_scores_.data, size, d_query_.data + i * WIDE);
            for (; i < p.width; ++i)
                gather<N, 1>(key + i, p.key_strides[2], d_scores_.data, size, d_query_.data + i * WIDE);
            constexpr int TOGETHER = TALL * 3 / 4;
            const float *weight = (float*)tile, *slope = (float*)d_scores_.data;
            float *to_key = d_key + from * width_, *to_value = d_value + from * value_width_;
            for (c = 0; c + TOGETHER <= size; c += TOGETHER) {
                spread_all<TOGETHER>(weight + c * ROWS, upward_lines_.data, value_width_, rows.count, to_value + c * value_width_);
                spread_all<TOGETHER>(slope + c * ROWS, query_lines_.data, width_, rows.count, to_key + c * width_);
            }
            for (; c < size; ++c) {
                spread_all<1>(weight + c * ROWS, upward_lines_.data, value_width_, rows.count, to_value + c * value_width_);
                spread_all<1>(slope + c * ROWS, query_lines_.data, width_, rows.count, to_key + c * width_);
            }
        }
        const float* flat = (const float*)d_query_.data;
        float* out = g.query + (rows.b * p.heads + rows.h) * p.queries * p.width + rows.start * p.width;
        for (int r = 0; r < rows.count; ++r)
            for (int64_t i = 0; i < p.width; ++i) out[r * p.width + i] = flat[i * ROWS + r] * p.scale;
    }

    void run(Rows& rows, float* d_key, float* d_value) {
        if (rows.wide == 1) run<1>(rows, d_key, d_value);
        else if (rows.wide == 2) run<2>(rows, d_key, d_value);
        else run<3>(rows, d_key, d_value);
    }

  private:
    void take(const Rows& rows) {
        const int64_t line = (rows.b * p.heads + rows.h) * p.queries + rows.start;
        const float* q = p.query + rows.b * p.query_strides[0] + rows.h * p.query_strides[1];
        std::memset(upward_.data, 0, sizeof(float) * p.value_width * ROWS);
        std::memset(upward_lines_.data, 0, sizeof(float) * value_width_ * ROWS);
        std::memset(query_lines_.data, 0, sizeof(float) * width_ * ROWS);
        for (int r = 0; r < ROWS; ++r) {
            const bool real = r < rows.count;
            const float known = real ? g.log_normalizer[line + r] : NONE;
            ((float*)anchor_)[r] = known == NONE ? -NONE : known / rows.per_unit;
            ((float*)slope_)[r] = real ? g.slope[line + r] : 0;
            if (!real) continue;
            const float* up = g.upward + (line + r) * p.value_width;
            for (int64_t j = 0; j < p.value_width; ++j) {
                upward_.data[j * ROWS + r] = up[j];
                upward_lines_.data[r * value_width_ + j] = up[j];
            }
            std::copy_n(q + (rows.start + r) * p.query_strides[2], p.width, query_lines_.data + r * width_);
        }
    }

    const HeedmapProblem& p;
    const HeedmapGradients& g;
    const int64_t width_, value_width_;
    Buffer<float> upward_, upward_lines_, query_lines_;
    Buffer<Vec> d_scores_, d_query_;
    Vec anchor_[WIDE], slope_[WIDE];
};

// Gradients of the keys and values of one key head, in lines of whole vectors.
struct Gathering {
    Buffer<float> key, value;
    explicit Gathering(const HeedmapProblem& p)
        : key(p.keys * padded(p.width)), value(p.keys * padded(p.value_width)) {}

    void clear(const HeedmapProblem& p) {
        std::fill_n(key.data, p.keys * padded(p.width), 0.0f);
        std::fill_n(value.data, p.keys * padded(p.value_width), 0.0f);
    }
};

// Writes the sum of what some threads gathered.
void write(const HeedmapProblem& p, const HeedmapGradients& g, int64_t matrix, Gathering* const* parts, int count) {
    const int64_t wide = padded(p.width), value_wide = padded(p.value_width);
    for (int64_t c = 0; c < p.keys; ++c) {
        float* d_key = g.key + (matrix * p.keys + c) * p.width;
        float* d_value = g.value + (matrix * p.keys + c) * p.value_width;
        for (int64_t i = 0; i < p.width; ++i) {
            float sum = 0;
            for (int part = 0; part < count; ++part) sum += parts[part]->key.data[c * wide + i];
            d_key[i] = sum * p.scale;
        }
        for (int64_t j = 0; j < p.value_width; ++j) {
            float sum = 0;
            for (int part = 0; part < count; ++part) sum += parts[part]->value.data[c * value_wide + j];
            d_value[j] = sum;
        }
    }
}

}  // namespace
}  // namespace heedmap

using namespace heedmap;

// Writes the gradients of query, key and value. A thread takes a whole key head where there are
// enough of them; else all threads share the rows of one, each with sums of its own.
extern "C" int heedmap_backward(const HeedmapProblem* problem, const HeedmapGradients* gradients) {
    const HeedmapProblem& p = *problem;
    const int64_t matrices = p.batch * p.kv_heads, group = p.heads / p.kv_heads;
    const int64_t blocks = (p.queries + ROWS - 1) / ROWS;
    const int sharing = matrices >= p.threads ? 1 : p.threads;
    int failed = 0;
    try {
        std::vector<Gathering*> all_parts(p.threads, nullptr);
#pragma omp parallel num_threads(p.threads) reduction(| : failed)
        {
#pragma omp for schedule(static, 1)
            for (int share = 0; share < p.threads; ++share) {
                try {
                    Rows rows(p);
                    Backward backward(p, *gradients);
                    Gathering* sums = all_parts[share] = new Gathering(p);
                    for (int64_t matrix = sharing == 1 ? share : 0; sharing == 1 && matrix < matrices; matrix += p.threads) {
                        sums->clear(p);
                        for (int64_t job = 0; job < group * blocks; ++job) {
                            const int64_t head = matrix % p.kv_heads * group + job / blocks;
                            rows.take(matrix / p.kv_heads, head, job % blocks * ROWS);
                            backward.run(rows, sums->key.data, sums->value.data);
                        }
                        write(p, *gradients, matrix, &sums, 1);
                    }
                } catch (const std::bad_alloc&) {
                    failed = 1;
                }
            }
        }
        for (int64_t matrix = 0; sharing > 1 && !failed && matrix < matrices; ++matrix) {
#pragma omp parallel for num_threads(p.threads) schedule(static, 1) reduction(| : failed)
            for (int share = 0; share < p.threads; ++share) {
                try {
                    Rows rows(p);
                    Backward backward(p, *gradients);
                    Gathering* sums = all_parts[share];
                    sums->clear(p);
                    for (int64_t job = share; job < group * blocks; job += p.threads) {
                        const int64_t head = matrix % p.kv_heads * group + job / blocks;
                        rows.take(matrix / p.kv_heads, head, job % blocks * ROWS);
                        backward.run(rows, sums->key.data, sums->value.data);
                    }
                } catch (const std::bad_alloc&) {
                    failed = 1;
                }
            }
            if (!failed) write(p, *gradients, matrix, all_parts.data(), p.threads);
        }
        for (Gathering* part : all_parts) delete part;
    } catch (const std::bad_alloc&) {
        failed = 1;
    }
    return failed;
}
