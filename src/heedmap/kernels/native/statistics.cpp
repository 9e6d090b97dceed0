// Sums, entropies, the strongest keys and pictures of weights whose log-normaliser is known.

#include "rows.hpp"

// Where statistics go; null for what is not asked for. All but top are sums, set to 0 here.
struct HeedmapStatistics {
    const float* log_normalizer;  // [batch, heads, query]
    float* received;              // [batch, heads, key]
    float* entropy;               // [batch, heads, query]
    float* pooled;                // [batch, heads, pooled_rows, pooled_columns]
    const int32_t* row_bins;      // [query]: which row of pooled a query falls into
    const int32_t* column_bins;   // [key]
    float* top_weights;           // [batch, heads, query, top]
    int64_t* top_keys;
    int64_t pooled_rows, pooled_columns, top;
};

namespace heedmap {
namespace {

// The statistics of a block of rows as they grow, tile by tile.
class Gathered {
  public:
    Gathered(const HeedmapProblem& problem, const HeedmapStatistics& wanted)
        : p(problem), s(wanted), bins_(s.pooled ? (ROWS + 1) * s.pooled_columns : 0),
          top_(s.top * ROWS), places_(s.top * ROWS) {}

    template <int N>
    void run(Rows& rows, float* received, float* edges) {
        begin(rows);
        const Vec unit = all(rows.per_unit * LOG2_E);
        for (int64_t from = rows.from_key; from < rows.to_key; from += KEYS) {
            const int size = (int)std::min<int64_t>(KEYS, rows.to_key - from);
            Vec* tile = rows.scores(from, size);
            // Each tile has a sum of its own: thousands of small terms would be lost one by one.
            Vec entropy[N] = {};
            for (int c = 0; c < size; ++c)
                for (int n = 0; n < N; ++n) {
                    Vec& cell = tile[c * WIDE + n];
                    const Vec power = (cell - anchor_[n]) * unit, w = power_of_two(power);
                    cell = w;
                    // 0 · -inf is not a number; a weight of 0 has no part in the entropy.
                    entropy[n] -= power < all(-126.0f) ? Vec{} : w * power;
                }
            for (int n = 0; n < N; ++n) entropy_[n] += entropy[n];
            if (received) add_received<N>(tile, from, size, received);
            if (s.pooled) add_pooled<N>(tile, from, size);
            if (s.top) add_top<N>(tile, from, size);
        }
        finish(rows, edges);
    }

  private:
    void begin(const Rows& rows) {
        matrix_ = rows.b * p.heads + rows.h;
        const float* known = s.log_normalizer + matrix_ * p.queries + rows.start;
        float* flat = (float*)anchor_;
        for (int r = 0; r < ROWS; ++r) {
            // A row that does not exist, or sees nothing, has weights 0.
            const bool blind = r >= rows.count || known[r] == NONE;
            flat[r] = blind ? -NONE : known[r] / rows.per_unit;
        }
        for (int n = 0; n < WIDE; ++n) entropy_[n] = Vec{}, least_[n] = Vec{};
        if (s.pooled) {
            first_bin_ = s.row_bins[rows.start];
            bins_used_ = s.row_bins[rows.start + rows.count - 1] - first_bin_ + 1;
            std::fill(bins_.data, bins_.data + bins_used_ * s.pooled_columns, 0.0f);
            for (int r = 0; r < rows.count; ++r) bin_of_[r] = s.row_bins[rows.start + r] - first_bin_;
            count_ = rows.count;
        }
        std::fill(held_, held_ + ROWS, 0);
    }

    template <int N>
    void add_received(const Vec* tile, int64_t from, int size, float* received) {
        for (int c = 0; c < size; ++c) {
            Vec sum = tile[c * WIDE];
            for (int n = 1; n < N; ++n) sum += tile[c * WIDE + n];
            received[from + c] += sum_of(sum);
        }
    }

    template <int N>
    void add_pooled(const Vec* tile, int64_t from, int size) {
        for (int c = 0; c < size;) {
            const int32_t bin = s.column_bins[from + c];
            Vec sum[N] = {};
            for (; c < size && s.column_bins[from + c] == bin; ++c)
                for (int n = 0; n < N; ++n) sum[n] += tile[c * WIDE + n];
            const float* flat = (const float*)sum;
            for (int r = 0; r < count_; ++r) bins_.data[bin_of_[r] * s.pooled_columns + bin] += flat[r];
        }
    }

    // Keeps for each row the largest weights in order; of equal ones the earlier key comes first.
    template <int N>
    void add_top(const Vec* tile, int64_t from, int size) {
        for (int c = 0; c < size; ++c)
            for (int n = 0; n < N; ++n) {
                const float* cell = (const float*)(tile + c * WIDE + n);
                unsigned better = greater(tile[c * WIDE + n], least_[n]);
                for (; better; better &= better - 1) {
                    const int lane = __builtin_ctz(better);
                    insert(n * LANES + lane, cell[lane], from + c);
                }
            }
    }

    void insert(int row, float weight, int64_t place) {
        float* weights = top_.data + row * s.top;
        int64_t* places = places_.data + row * s.top;
        int64_t at = held_[row] < s.top ? held_[row]++ : s.top - 1;
        for (; at > 0 && weights[at - 1] < weight; --at)
            weights[at] = weights[at - 1], places[at] = places[at - 1];
        weights[at] = weight, places[at] = place;
        if (held_[row] == s.top) ((float*)least_)[row] = weights[s.top - 1];
    }

    void finish(const Rows& rows, float* edges) {
        const int64_t line = matrix_ * p.queries + rows.start;
        if (s.entropy)
            for (int r = 0; r < rows.count; ++r) s.entropy[line + r] = ((float*)entropy_)[r] * LN_2;
        for (int r = 0; s.top && r < rows.count; ++r) fill_top(r, line + r);
        if (!s.pooled) return;
        // A bin at the end of the block may have rows in the next one, too: those are added later.
        const int64_t columns = s.pooled_columns;
        float* out = s.pooled + (matrix_ * s.pooled_rows + first_bin_) * columns;
        std::copy(bins_.data, bins_.data + columns, edges);
        std::fill(edges + columns, edges + 2 * columns, 0.0f);
        if (bins_used_ > 1) {
            const float* final_bin = bins_.data + (bins_used_ - 1) * columns;
            std::copy(final_bin, final_bin + columns, edges + columns);
            std::copy(bins_.data + columns, bins_.data + (bins_used_ - 1) * columns, out + columns);
        }
    }

    // Behind the weights above 0 come keys of weight 0, in their order.
    void fill_top(int row, int64_t line) {
        float* weights = s.top_weights + line * s.top;
        int64_t* places = s.top_keys + line * s.top;
        const int64_t* found = places_.data + row * s.top;
        std::copy(top_.data + row * s.top, top_.data + row * s.top + held_[row], weights);
        std::copy(found, found + held_[row], places);
        int64_t next = 0;
        for (int64_t i = held_[row]; i < s.top; ++i, ++next) {
            while (std::find(found, found + held_[row], next) != found + held_[row]) ++next;
            weights[i] = 0, places[i] = next;
        }
    }

    const HeedmapProblem& p;
    const HeedmapStatistics& s;
    Buffer<float> bins_;
    Buffer<float> top_;
    Buffer<int64_t> places_;
    Vec anchor_[WIDE], entropy_[WIDE], least_[WIDE];
    int64_t held_[ROWS];
    int32_t bin_of_[ROWS];
    int64_t matrix_ = 0;
    int32_t first_bin_ = 0, bins_used_ = 0;
    int count_ = 0;
};

}  // namespace
}  // namespace heedmap

using namespace heedmap;

// Writes what is asked for. Every thread has its share of the blocks whoever is faster, so that
// sums come out the same every time. Returns 0, or 1 if there is no memory.
extern "C" int heedmap_statistics(const HeedmapProblem* problem, const HeedmapStatistics* statistics) {
    const HeedmapProblem& p = *problem;
    const HeedmapStatistics& s = *statistics;
    const int64_t matrices = p.batch * p.heads;
    const int64_t blocks = (p.queries + ROWS - 1) / ROWS, jobs = matrices * blocks;
    const int threads = p.threads;
    int failed = 0;
    try {
        std::vector<float> parts(s.received ? threads * matrices * p.keys : 0);
        std::vector<float> edges(s.pooled ? jobs * 2 * s.pooled_columns : 0);
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(| : failed)
        for (int share = 0; share < threads; ++share) {
            try {
                Rows rows(p);
                Gathered gathered(p, s);
                for (int64_t job = share; job < jobs; job += threads) {
                    const int64_t matrix = job / blocks;
                    rows.take(matrix / p.heads, matrix % p.heads, job % blocks * ROWS);
                    float* received =
                        s.received ? parts.data() + (share * matrices + matrix) * p.keys : nullptr;
                    float* edge = s.pooled ? edges.data() + job * 2 * s.pooled_columns : nullptr;
                    if (rows.wide == 1) gathered.run<1>(rows, received, edge);
                    else if (rows.wide == 2) gathered.run<2>(rows, received, edge);
                    else gathered.run<3>(rows, received, edge);
                }
            } catch (const std::bad_alloc&) {
                failed = 1;
            }
        }
        for (int64_t i = 0; s.received && i < matrices * p.keys; ++i) {
            float sum = 0;
            for (int share = 0; share < threads; ++share) sum += parts[share * matrices * p.keys + i];
            s.received[i] = sum;
        }
        for (int64_t job = 0; s.pooled && job < jobs; ++job) {
            const int64_t row = job % blocks * ROWS, end = std::min<int64_t>(row + ROWS, p.queries) - 1;
            float* out = s.pooled + job / blocks * s.pooled_rows * s.pooled_columns;
            const float* edge = edges.data() + job * 2 * s.pooled_columns;
            for (int64_t side = 0; side < 2; ++side) {
                float* bin = out + s.row_bins[side ? end : row] * s.pooled_columns;
                for (int64_t i = 0; i < s.pooled_columns; ++i) bin[i] += edge[side * s.pooled_columns + i];
            }
        }
    } catch (const std::bad_alloc&) {
        failed = 1;
    }
    return failed;
}
