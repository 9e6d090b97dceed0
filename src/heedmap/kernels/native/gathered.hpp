// Sums, entropies, the strongest keys and pictures of a block of rows, tile by tile.

#pragma once

#include "rows.hpp"

// Where statistics go; null for what is not asked for. Pictures must be 0 before.
struct HeedmapStatistics {
    float* log_normalizer;  // [matrices, query]
    float* received;        // [matrices, key]
    float* entropy;         // [matrices, query]
    float* pooled;          // [matrices, pooled_rows, pooled_columns]: sums of blocks, and
    float* largest;         // the largest weight of each
    const int32_t* row_bins;     // [query]: which row of a picture a query falls into
    const int32_t* column_bins;  // [key]
    float* top_weights;          // [matrices, query, top]
    int64_t* top_keys;
    int64_t pooled_rows, pooled_columns, top;
    int64_t first_matrix, matrices;  // which ones of batch × heads
};

namespace heedmap {

struct Sum {
    static Vec of(Vec a, Vec b) { return a + b; }
    static float of(float a, float b) { return a + b; }
};

// Of numbers that are not negative; what is not a number is larger than all.
struct Largest {
    static Vec of(Vec a, Vec b) {
        // In the order of their bits, where what is not a number comes last once it has no sign.
        const Ints x = (Ints)a, y = (Ints)b & 0x7fffffff;
        return (Vec)(x > y ? x : y);
    }
    static float of(float a, float b) { return a > b || std::isnan(a) ? a : b; }
};

// One picture: what a block of rows has in each cell of it.
template <typename How>
class Picture {
  public:
    Picture(const HeedmapStatistics& wanted, float* picture)
        : s(wanted), picture_(picture), columns_(picture ? padded(s.pooled_columns) : 0),
          lines_(ROWS * columns_), waiting_(WIDE * LANES) {}

    explicit operator bool() const { return picture_; }

    void begin(int64_t matrix, int64_t start, int count) {
        matrix_ = matrix, count_ = count, group_ = 0;
        first_bin_ = s.row_bins[start];
        for (int r = 0; r < count; ++r) bin_of_[r] = s.row_bins[start + r] - first_bin_;
        std::fill_n(lines_.data, (bin_of_[count - 1] + 1) * columns_, 0.0f);
        std::fill_n(waiting_.data, WIDE * LANES, Vec{});
    }

    template <int N>
    void add(const Vec* tile, const Vec* share, int64_t from, int size) {
        const int32_t* bins = s.column_bins + from;
        for (int c = 0; c < size;) {
            const int32_t bin = bins[c];
            Vec found[N] = {};
            for (; c < size && bins[c] == bin; ++c)
                for (int n = 0; n < N; ++n) found[n] = How::of(found[n], tile[c * WIDE + n]);
            if (bin / LANES != group_) enter<N>(bin / LANES);
            for (int n = 0; n < N; ++n) {
                Vec& cell = waiting_.data[n * LANES + bin % LANES];
                cell = How::of(cell, found[n] * share[n]);
            }
        }
    }

    // Writes what is whole. A bin at either end of the block may have rows in the next one, too:
    // those two lines are left in `edges`.
    template <int N>
    void finish(float* edges) {
        enter<N>(0);
        const int64_t columns = s.pooled_columns;
        const int32_t last = bin_of_[count_ - 1];
        std::copy_n(lines_.data, columns, edges);
        std::fill_n(edges + columns, columns, 0.0f);
        if (last) std::copy_n(lines_.data + last * columns_, columns, edges + columns);
        float* out = picture_ + (matrix_ * s.pooled_rows + first_bin_) * columns;
        for (int32_t bin = 1; bin < last; ++bin)
            std::copy_n(lines_.data + bin * columns_, columns, out + bin * columns);
    }

    // Adds the two lines that a block from row `start` to `end` has left.
    static void join(const HeedmapStatistics& s, float* picture, int64_t matrix, int64_t start,
                     int64_t end, const float* edges) {
        for (const int64_t row : {start, end}) {
            float* line = picture + (matrix * s.pooled_rows + s.row_bins[row]) * s.pooled_columns;
            for (int64_t i = 0; i < s.pooled_columns; ++i) line[i] = How::of(line[i], edges[i]);
            edges += s.pooled_columns;
        }
    }

  private:
    // Bins of columns wait until there is one for each lane: rows are then joined by whole vectors.
    template <int N>
    void enter(int32_t group) {
        for (int n = 0; n < N; ++n) {
            Vec* lines = waiting_.data + n * LANES;
            transpose(lines);
            const int end = std::min(LANES, count_ - n * LANES);
            const int32_t* bins = bin_of_ + n * LANES;
            for (int r = 0; r < end;) {
                const int32_t bin = bins[r];
                Vec& cells = *(Vec*)(lines_.data + bin * columns_ + group_ * LANES);
                Vec found = lines[r++];
                for (; r < end && bins[r] == bin; ++r) found = How::of(found, lines[r]);
                cells = How::of(cells, found);
            }
            std::fill_n(lines, LANES, Vec{});
        }
        group_ = group;
    }

    const HeedmapStatistics& s;
    float* picture_;
    const int64_t columns_;
    Buffer<float> lines_;
    Buffer<Vec> waiting_;
    int32_t bin_of_[ROWS];
    int64_t matrix_ = 0;
    int32_t first_bin_ = 0, group_ = 0;
    int count_ = 0;
};

// For each row the largest weights in order; of equal ones the earlier key comes first.
class Top {
  public:
    explicit Top(const HeedmapStatistics& wanted)
        : s(wanted), by_vectors_(s.top <= 32), weights_(s.top * WIDE), keys_(s.top * WIDE) {}

    explicit operator bool() const { return s.top; }

    void begin() {
        std::fill_n(weights_.data, s.top * WIDE, Vec{});
        std::fill_n(least_, WIDE, Vec{});
    }

    template <int N>
    void add(const Vec* tile, int64_t from, int size) {
        for (int c = 0; c < size; ++c)
            for (int n = 0; n < N; ++n) {
                const Vec weight = tile[c * WIDE + n];
                unsigned better = greater(weight, least_[n]);
                if (!better) continue;
                if (by_vectors_) insert_all(n, weight, (int32_t)(from + c));
                else
                    for (; better; better &= better - 1) {
                        const int lane = __builtin_ctz(better);
                        insert(n * LANES + lane, ((const float*)&weight)[lane], (int32_t)(from + c));
                    }
            }
    }

    // Behind the weights above 0 come keys of weight 0, in their order. Where the log-normaliser is
    // not a number, neither are the weights.
    void finish(int64_t line, int count) {
        for (int row = 0; row < count; ++row) {
            float* weights = s.top_weights + (line + row) * s.top;
            int64_t* keys = s.top_keys + (line + row) * s.top;
            if (std::isnan(s.log_normalizer[line + row])) {
                for (int64_t i = 0; i < s.top; ++i) weights[i] = NAN, keys[i] = i;
                continue;
            }
            const auto [held_weights, held_keys, step] = held(row);
            int64_t found = 0;
            for (; found < s.top && held_weights[found * step] > 0; ++found)
                weights[found] = held_weights[found * step], keys[found] = held_keys[found * step];
            int64_t next = 0;
            for (int64_t i = found; i < s.top; ++i, ++next) {
                while (std::find(keys, keys + found, next) != keys + found) ++next;
                weights[i] = 0, keys[i] = next;
            }
        }
    }

  private:
    struct Held {
        float* weights;
        int32_t* keys;
        int64_t step;
    };

    // What a row holds: beside that of its neighbours, where vectors are inserted, else in one piece.
    Held held(int row) const {
        const int64_t start = by_vectors_ ? row : row * s.top, step = by_vectors_ ? ROWS : 1;
        return {(float*)weights_.data + start, (int32_t*)keys_.data + start, step};
    }

    // Moves down whatever is less, in all lanes at once.
    void insert_all(int n, const Vec weight, int32_t place) {
        Vec moving = weight;
        Ints moving_key = Ints{} + place;
        for (int64_t at = n; at < s.top * WIDE; at += WIDE) {
            const Vec here = weights_.data[at];
            const Ints key = keys_.data[at], less = weight > here;
            weights_.data[at] = less ? moving : here, moving = less ? here : moving;
            keys_.data[at] = less ? moving_key : key, moving_key = less ? key : moving_key;
        }
        least_[n] = weights_.data[(s.top - 1) * WIDE + n];
    }

    void insert(int row, float weight, int32_t place) {
        const auto [weights, keys, step] = held(row);
        int64_t at = s.top - 1;
        for (; at > 0 && weights[at - 1] < weight; --at)
            weights[at] = weights[at - 1], keys[at] = keys[at - 1];
        weights[at] = weight, keys[at] = place;
        ((float*)least_)[row] = weights[s.top - 1];
    }

    const HeedmapStatistics& s;
    const bool by_vectors_;
    Buffer<Vec> weights_;
    Buffer<Ints> keys_;
    Vec least_[WIDE];
};

// All statistics of a block of rows as they grow.
class Gathered {
  public:
    Gathered(const HeedmapProblem& problem, const HeedmapStatistics& wanted)
        : top(wanted), sums(wanted, wanted.pooled), maxima(wanted, wanted.largest), p(problem),
          s(wanted) {}

    // Starts on rows whose log-normaliser is known.
    void begin(const Rows& rows, int64_t matrix) {
        line_ = matrix * p.queries + rows.start;
        unit_ = all(rows.per_unit * LOG2_E);
        for (int r = 0; r < ROWS; ++r) {
            // A row that does not exist, or sees nothing, has weights 0.
            const float known = r < rows.count ? s.log_normalizer[line_ + r] : NONE;
            ((float*)anchor_)[r] = known == NONE ? -NONE : known / rows.per_unit;
        }
        std::fill_n(entropy_, WIDE, Vec{});
        if (sums) sums.begin(matrix, rows.start, rows.count);
        if (maxima) maxima.begin(matrix, rows.start, rows.count);
        if (top) top.begin();
    }

    // Takes in a tile of scores, of which it makes weights.
    template <int N>
    void add(Vec* tile, int64_t from, int size, float* received) {
        // Each tile has a sum of its own: thousands of small terms would be lost one by one.
        for (int n = 0; n < N; ++n) {
            const Totals sum = weigh(tile + n, anchor_[n], unit_, size, tile + n);
            entropy_[n] -= sum.exponents;
        }
        const Vec whole[WIDE] = {all(1), all(1), all(1)};
        add_weights<N>(tile, whole, from, size, received);
        if (top) top.add<N>(tile, from, size);
    }

    // Takes in a tile of what are weights when each row is multiplied by its share; not for `top`,
    // where weights that are equal must be so to the last bit, nor for the entropy.
    template <int N>
    void add_weights(const Vec* tile, const Vec* share, int64_t from, int size, float* received) {
        if (received) add_received<N>(tile, share, size, received + from);
        if (sums) sums.template add<N>(tile, share, from, size);
        if (maxima) maxima.template add<N>(tile, share, from, size);
    }

    void write_entropy(const Rows& rows) {
        for (int r = 0; r < rows.count; ++r) s.entropy[line_ + r] = ((float*)entropy_)[r] * LN_2;
    }

    template <int N>
    void finish(const Rows& rows, float* sum_edges, float* maximum_edges) {
        if (sums) sums.template finish<N>(sum_edges);
        if (maxima) maxima.template finish<N>(maximum_edges);
        if (top) top.finish(line_, rows.count);
    }

    Top top;
    Picture<Sum> sums;
    Picture<Largest> maxima;

  private:
    template <int N>
    void add_received(const Vec* tile, const Vec* share, int size, float* received) {
        int c = 0;
        for (; c + LANES <= size; c += LANES) {
            Vec lines[LANES];
            for (int i = 0; i < LANES; ++i) lines[i] = over_rows<N>(tile + (c + i) * WIDE, share);
            Loose& sum = *(Loose*)(received + c);
            sum += sums_of(lines);
        }
        for (; c < size; ++c) received[c] += sum_of(over_rows<N>(tile + c * WIDE, share));
    }

    template <int N>
    static Vec over_rows(const Vec* cells, const Vec* share) {
        Vec sum = cells[0] * share[0];
        for (int n = 1; n < N; ++n) sum += cells[n] * share[n];
        return sum;
    }

    const HeedmapProblem& p;
    const HeedmapStatistics& s;
    Vec anchor_[WIDE], entropy_[WIDE], unit_;
    int64_t line_ = 0;
};

}  // namespace heedmap
