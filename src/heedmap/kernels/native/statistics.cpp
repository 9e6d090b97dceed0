// Statistics of weights, from a log-normaliser that is known or together with the output.

#include "gathered.hpp"
#include "softmax.hpp"

namespace heedmap {
namespace {

// What one thread needs to go through its blocks of rows.
class Pass {
  public:
    Pass(const HeedmapProblem& problem, const HeedmapStatistics& wanted, float* output, bool keeps)
        : p(problem), s(wanted), output_(output), keeps_(keeps), keeps_weights_(keeps && !s.top),
          rows_(p), gathered_(p, s), softmax_(p), kept_(keeps ? p.keys * WIDE : 0),
          most_(keeps_weights_ ? (p.keys / KEYS + 1) * WIDE : 0) {}

    void run(int64_t matrix, int64_t row, float* received, float* sum_edges, float* maximum_edges) {
        const int64_t number = s.first_matrix + matrix;
        rows_.take(number / p.heads, number % p.heads, row);
        if (rows_.wide == 1) run<1>(matrix, received, sum_edges, maximum_edges);
        else if (rows_.wide == 2) run<2>(matrix, received, sum_edges, maximum_edges);
        else run<3>(matrix, received, sum_edges, maximum_edges);
    }

  private:
    template <int N>
    void run(int64_t matrix, float* received, float* sum_edges, float* maximum_edges) {
        if (output_) attend<N>(matrix);
        gathered_.begin(rows_, matrix);
        for (int64_t from = rows_.from_key; from < rows_.to_key; from += KEYS) {
            const int size = (int)std::min<int64_t>(KEYS, rows_.to_key - from);
            if (keeps_weights_) {
                softmax_.share(rows_, most(from));
                gathered_.add_weights<N>(kept(from), most(from), from, size, received);
            } else {
                gathered_.add<N>(keeps_ ? kept(from) : rows_.scores(from, size), from, size, received);
            }
        }
        gathered_.finish<N>(rows_, sum_edges, maximum_edges);
        if (!s.entropy) return;
        if (keeps_weights_) softmax_.write_entropy(rows_, s.entropy + matrix * p.queries + rows_.start);
        else gathered_.write_entropy(rows_);
    }

    template <int N>
    void attend(int64_t matrix) {
        softmax_.begin();
        for (int64_t from = rows_.from_key; from < rows_.to_key; from += KEYS) {
            const int size = (int)std::min<int64_t>(KEYS, rows_.to_key - from);
            Vec* room = rows_.tile();
            if (keeps_weights_) {
                softmax_.add<N, true>(rows_, rows_.scores(from, size), kept(from), from, size);
                std::copy_n(softmax_.most(), N, most(from));
            } else {
                const Vec* scores = rows_.scores(from, size, keeps_ ? kept(from) : room);
                softmax_.add<N>(rows_, scores, room, from, size);
            }
        }
        const int64_t line = matrix * p.queries + rows_.start;
        softmax_.finish(rows_, output_ + line * p.value_width, s.log_normalizer + line);
    }

    Vec* kept(int64_t from) { return kept_.data + (from - rows_.from_key) * WIDE; }
    Vec* most(int64_t from) { return most_.data + (from - rows_.from_key) / KEYS * WIDE; }

    const HeedmapProblem& p;
    const HeedmapStatistics& s;
    float* output_;
    const bool keeps_, keeps_weights_;
    Rows rows_;
    Gathered gathered_;
    Softmax softmax_;
    Buffer<Vec> kept_;  // scores or weights of a block of rows
    Buffer<Vec> most_;  // what the weights of each tile are relative to
};

}  // namespace
}  // namespace heedmap

using namespace heedmap;

// Writes the statistics that are asked for, and where `output` is given also the output and the
// log-normaliser. With `keeps`, each thread keeps the weights of a block of rows in between (or their
// scores, where `top` is asked for), else they are made twice. Every thread has its share of the
// blocks whoever is faster, so that sums come out the same every time. Returns 0, or 1 if there is no
// memory.
extern "C" int heedmap_statistics(const HeedmapProblem* problem, const HeedmapStatistics* statistics,
                                  float* output, int keeps) {
    const HeedmapProblem& p = *problem;
    const HeedmapStatistics& s = *statistics;
    const int64_t matrices = s.matrices, edge = 2 * s.pooled_columns;
    const int64_t blocks = (p.queries + ROWS - 1) / ROWS, jobs = matrices * blocks;
    const int threads = p.threads;
    int failed = 0;
    try {
        std::vector<float> parts(s.received ? threads * matrices * p.keys : 0);
        std::vector<float> sum_edges(s.pooled ? jobs * edge : 0), maximum_edges(s.largest ? jobs * edge : 0);
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(| : failed)
        for (int share = 0; share < threads; ++share) {
            try {
                Pass pass(p, s, output, output && keeps);
                for (int64_t job = share; job < jobs; job += threads) {
                    const int64_t matrix = job / blocks;
                    pass.run(matrix, job % blocks * ROWS,
                             s.received ? parts.data() + (share * matrices + matrix) * p.keys : nullptr,
                             s.pooled ? sum_edges.data() + job * edge : nullptr,
                             s.largest ? maximum_edges.data() + job * edge : nullptr);
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
        for (int64_t job = 0; job < jobs; ++job) {
            const int64_t matrix = job / blocks, row = job % blocks * ROWS;
            const int64_t end = std::min<int64_t>(row + ROWS, p.queries) - 1;
            if (s.pooled)
                Picture<Sum>::join(s, s.pooled, matrix, row, end, sum_edges.data() + job * edge);
            if (s.largest)
                Picture<Largest>::join(s, s.largest, matrix, row, end, maximum_edges.data() + job * edge);
        }
    } catch (const std::bad_alloc&) {
        failed = 1;
    }
    return failed;
}
