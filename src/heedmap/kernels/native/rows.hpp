// Attention by blocks of rows: softmax(query · keyᵀ · scale + bias) · value with its log-normaliser,
// and statistics of the weights from a log-normaliser that is known.
//
// A vector holds the same thing for as many rows (queries) as it has lanes, and a tile of scores lies
// keys first. So maxima and sums over keys are plain vector operations, and keys and values are read
// where they lie, one number at a time for all rows: nothing is packed but the rows' own queries.
//
// Scores are kept as plain products (with a bias, scaled and added up) and are multiplied only after
// the row's maximum or log-normaliser was taken away: that saves digits.

#pragma once

#include "vectors.hpp"

// What the caller gives. Strides count numbers, and are 0 where one entry stands for all.
struct HeedmapProblem {
    const float* query;      // [batch, heads, query, width], the last dimension without gaps
    const float* key;        // [batch, kv_heads, key, width], likewise
    const float* value;      // [batch, kv_heads, key, value_width], likewise; null for statistics
    const int32_t* first;    // [batch, heads, query]: the first key that a query sees; null: 0
    const int32_t* last;     // the last one; null: the last there is
    const uint8_t* valid;    // [batch, key], 0 for keys that nobody sees; null: all are seen
    const uint8_t* visible;  // [batch, heads, query, key], 0 for hidden pairs; null: none is
    const float* bias;       // [batch, heads, query, key], scores to add; null: none
    int64_t query_strides[3], key_strides[3], value_strides[3];
    int64_t span_strides[2], valid_stride, visible_strides[4], bias_strides[4];
    int64_t batch, heads, kv_heads, queries, keys, width, value_width;
    float scale;
    int32_t threads;
};

namespace heedmap {

// Does something for each of 0 to N - 1, which the compiler knows one by one: so it keeps what is
// numbered by them in registers, where it would go through memory for a loop's.
template <typename Do, int... I>
inline void each(const Do& act, std::integer_sequence<int, I...>) {
    (act(std::integral_constant<int, I>()), ...);
}
template <int N, typename Do>
inline void each(const Do& act) {
    each(act, std::make_integer_sequence<int, N>());
}

// Sums over `count` places of M numbers times N vectors: at place i, those at
// numbers[i * step + m * apart] and vectors[i * stride + n * LANES]. `put` gets each with m and n.
template <int M, int N, typename Put>
inline void sum_products(const float* numbers, int64_t step, int64_t apart, const float* vectors,
                         int64_t stride, int64_t count, const Put& put) {
    Vec sum[M][N];
    each<M>([&](auto m) { each<N>([&](auto n) { sum[m][n] = Vec{}; }); });
    for (int64_t i = 0; i < count; ++i) {
        Vec vector[N];
        each<N>([&](auto n) { vector[n] = held(*(const Vec*)(vectors + i * stride + n * LANES)); });
        each<M>([&](auto m) {
            const Vec number = all(numbers[i * step + m * apart]);
            each<N>([&](auto n) { sum[m][n] += number * vector[n]; });
        });
    }
    each<M>([&](auto m) { each<N>([&](auto n) { put(m, n, sum[m][n]); }); });
}

// Scores of M keys for N vectors of rows.
template <int N, int M>
inline void score(const float* key, int64_t stride, const float* query, int64_t width, Vec* out) {
    sum_products<M, N>(key, 1, stride, query, ROWS, width,
                       [=](int m, int n, Vec sum) { out[m * WIDE + n] = sum; });
}

// Adds to M numbers of each row what a tile of weights gathers. Summed from zero, then added: the
// more keys there are, the more digits that saves.
template <int N, int M>
inline void gather(const float* value, int64_t stride, const Vec* weight, int count, Vec* out) {
    sum_products<M, N>(value, stride, 1, (const float*)weight, ROWS, count,
                       [=](int m, int n, Vec sum) { out[m * WIDE + n] += sum; });
}

struct Totals {
    Vec weights{}, exponents{};  // the sum of weights, and that of weight times exponent
};

// Makes weights 2^((score - anchor) · unit) of a tile's scores of one vector of rows.
inline Totals weigh(const Vec* scores, Vec anchor, Vec unit, int size, Vec* weights) {
    constexpr int TOGETHER = 2;
    Totals sum;
    const auto step = [&](int c, auto together) {
        constexpr int G = together;
        Vec x[G], w[G];
        for (int g = 0; g < G; ++g) x[g] = (scores[(c + g) * WIDE] - anchor) * unit;
        powers_of_two<G>(x, w);
        for (int g = 0; g < G; ++g) {
            weights[(c + g) * WIDE] = w[g], sum.weights += w[g];
            // A weight of 0 has no part in it, and its exponent is not -inf but -127.
            sum.exponents += w[g] * x[g];
        }
    };
    int c = 0;
    for (; c + TOGETHER <= size; c += TOGETHER) step(c, std::integral_constant<int, TOGETHER>());
    for (; c < size; ++c) step(c, std::integral_constant<int, 1>());
    return sum;
}

// Whether keys and values, 4 MB or more of a matrix, are far from the processor.
inline bool is_far(const HeedmapProblem& problem) {
    return problem.keys * (problem.width + problem.value_width) > (1 << 20);
}

// A block of rows of one matrix, and a tile of their scores.
class Rows {
  public:
    explicit Rows(const HeedmapProblem& problem)
        : p(problem), magnitude(problem.scale == 0 ? 1.0f : std::fabs(problem.scale)),
          per_unit(problem.bias ? 1.0f : magnitude),
          is_far_(is_far(problem)),
          query_(problem.width * ROWS),
          tile_(KEYS * WIDE) {}

    // Takes up to ROWS rows from `row` on.
    void take(int64_t batch, int64_t head, int64_t row) {
        b = batch, h = head, start = row;
        count = (int)std::min<int64_t>(ROWS, p.queries - row);
        wide = (count + LANES - 1) / LANES;
        const int64_t kv = h / (p.heads / p.kv_heads);
        key = p.key + b * p.key_strides[0] + kv * p.key_strides[1];
        value = p.value ? p.value + b * p.value_strides[0] + kv * p.value_strides[1] : nullptr;
        const float* q = p.query + b * p.query_strides[0] + h * p.query_strides[1];
        std::memset(query_.data, 0, sizeof(float) * p.width * ROWS);
        const float sign = p.scale > 0 ? 1.0f : p.scale < 0 ? -1.0f : 0.0f;
        for (int r = 0; r < count; ++r) {
            const float* line = q + (row + r) * p.query_strides[2];
            for (int64_t i = 0; i < p.width; ++i) query_.data[i * ROWS + r] = line[i] * sign;
        }
        take_spans();
    }

    // How many keys the tile from `from` on has.
    int size_of(int64_t from) const { return (int)std::min<int64_t>(KEYS, to_key - from); }

    // Makes the scores of `size` keys from `from` on, in `tile` where one is given.
    Vec* scores(int64_t from, int size, Vec* tile = nullptr) {
        if (!tile) tile = tile_.data;
        for_width([&](auto n) { multiply<n>(from, size, tile); });
        if (p.bias) add_bias(from, size, tile);
        hide(from, size, tile);
        return tile;
    }

    Vec* tile() { return tile_.data; }

    // Calls something with how many vectors of rows there are, for the compiler to know.
    template <typename Do>
    void for_width(const Do& act) const {
        if (wide == 1) act(std::integral_constant<int, 1>());
        else if (wide == 2) act(std::integral_constant<int, 2>());
        else act(std::integral_constant<int, 3>());
    }

    const HeedmapProblem& p;
    const float magnitude;  // the scale without its sign
    const float per_unit;   // how large one unit of what `scores` gives is
    int64_t b = 0, h = 0, start = 0, from_key = 0, to_key = 0;
    int count = 0, wide = 0;
    const float* key = nullptr;
    const float* value = nullptr;

  private:
    template <int N>
    void multiply(int64_t from, int size, Vec* tile) {
        const int64_t stride = p.key_strides[2];
        int c = 0;
        for (; c + TALL <= size; c += TALL) {
            if (is_far_) fetch(from + c + KEYS);
            score<N, TALL>(key + (from + c) * stride, stride, query_.data, p.width, tile + c * WIDE);
        }
        for (; c < size; ++c)
            score<N, 1>(key + (from + c) * stride, stride, query_.data, p.width, tile + c * WIDE);
    }

    // Asks for what is needed a tile later: from memory it takes longer than the machine looks ahead.
    // (Not inline, a function that does nothing else would be taken for one that does nothing.)
    inline __attribute__((always_inline)) void fetch(int64_t from) {
        for (int64_t c = from; c < from + TALL && c < p.keys; ++c) {
            const char *k = (const char*)(key + c * p.key_strides[2]), *v = (const char*)(value + c * p.value_strides[2]);
            for (int64_t i = 0; i < p.width * 4; i += 64) __builtin_prefetch(k + i, 0, 2);
            for (int64_t i = 0; value && i < p.value_width * 4; i += 64) __builtin_prefetch(v + i, 0, 2);
        }
    }

    // The stretch of keys of each row, and of all of them. Rows that do not exist see what all see.
    void take_spans() {
        const int32_t end = (int32_t)p.keys - 1;
        int32_t low = end + 1, high = -1, late = 0, early = end;
        for (int r = 0; r < ROWS; ++r) {
            const int64_t at = b * p.span_strides[0] + h * p.span_strides[1] + start + r;
            const bool real = r < count;
            const int32_t f = real && p.first ? std::max(p.first[at], 0) : 0;
            const int32_t l = real && p.last ? std::min(p.last[at], end) : end;
            first_[r] = f, last_[r] = l;
            if (!real) continue;
            late = std::max(late, f), early = std::min(early, l);
            if (f <= l) low = std::min(low, f), high = std::max(high, l);
        }
        from_key = low, to_key = std::max<int64_t>(high + 1, low);
        whole_from_ = late, whole_to_ = early;
    }

    void hide(int64_t from, int size, Vec* tile) {
        if (from < whole_from_ || from + size - 1 > whole_to_) {
            for (int c = 0; c < size; ++c)
                for (int n = 0; n < wide; ++n) {
                    const Ints k = Ints{} + (int32_t)(from + c);
                    const Ints f = *(const Ints*)(first_ + n * LANES), l = *(const Ints*)(last_ + n * LANES);
                    Vec& s = tile[c * WIDE + n];
                    s = ((k < f) | (k > l)) ? all(NONE) : s;
                }
        }
        if (p.valid) {
            const uint8_t* valid = p.valid + b * p.valid_stride + from;
            for (int c = 0; c < size; ++c)
                if (!valid[c])
                    for (int n = 0; n < wide; ++n) tile[c * WIDE + n] = all(NONE);
        }
        if (p.visible) {
            const uint8_t* table = p.visible + b * p.visible_strides[0] + h * p.visible_strides[1];
            float* flat = (float*)tile;
            for (int r = 0; r < count; ++r) {
                const uint8_t* line = table + (start + r) * p.visible_strides[2] + from * p.visible_strides[3];
                for (int c = 0; c < size; ++c)
                    if (!line[c * p.visible_strides[3]]) flat[c * ROWS + r] = NONE;
            }
        }
    }

    void add_bias(int64_t from, int size, Vec* tile) {
        const float* table = p.bias + b * p.bias_strides[0] + h * p.bias_strides[1];
        float* flat = (float*)tile;
        for (int r = 0; r < count; ++r) {
            const float* line = table + (start + r) * p.bias_strides[2] + from * p.bias_strides[3];
            for (int c = 0; c < size; ++c) {
                const float bias = line[c * p.bias_strides[3]];
                // Added to a score that is not finite, -inf would not hide it.
                float& s = flat[c * ROWS + r];
                s = bias == NONE ? NONE : s * magnitude + bias;
            }
        }
    }

    const bool is_far_;
    Buffer<float> query_;
    Buffer<Vec> tile_;
    alignas(64) int32_t first_[ROWS], last_[ROWS];
    int64_t whole_from_ = 0, whole_to_ = 0;
};

}  // namespace heedmap
