// Statistics of weights, from a log-normaliser that is known or together with the output.

#include "blocks.hpp"
#include "gathered.hpp"
#include "softmax.hpp"

namespace heedmap {
namespace {

// A block of rows and its statistics. With an output, it has two passes through its keys: the first
// finds the output and the log-normaliser.
class Pass {
  public:
    Pass(const HeedmapProblem& problem, const HeedmapStatistics& wanted, float* output, bool keeps)
        : rows(problem), p(problem), s(wanted), output_(output), keeps_(keeps),
          keeps_weights_(keeps && !s.top), gathered_(p, s), softmax_(p), kept_(keeps ? p.keys * WIDE : 0),
          most_(keeps_weights_ ? (p.keys / KEYS + 1) * WIDE : 0) {}

    void take(int64_t matrix, int64_t row) {
        matrix_ = matrix;
        const int64_t number = s.first_matrix + matrix;
        rows.take(number / p.heads, number % p.heads, row);
        if (output_) softmax_.begin();
    }

    // Takes in the tile of keys from `from` on for the output; `room` is room for it.
    void attend(int64_t from, Vec* room) {
        const int size = rows.size_of(from);
        rows.for_width([&](auto n) {
            if (keeps_weights_) {
                softmax_.add<n, true>(rows, rows.scores(from, size, room), kept(from), from, size);
                std::copy_n(softmax_.most(), (int)n, most(from));
            } else {
                const Vec* scores = rows.scores(from, size, keeps_ ? kept(from) : room);
                softmax_.add<n>(rows, scores, room, from, size);
            }
        });
    }

    // Begins the statistics, for which the log-normaliser must be known.
    void begin() {
        const int64_t line = matrix_ * p.queries + rows.start;
        if (output_) softmax_.finish(rows, output_ + line * p.value_width, s.log_normalizer + line);
        gathered_.begin(rows, matrix_);
    }

    // Takes in the tile of keys from `from` on for the statistics.
    void gather(int64_t from, Vec* room, float* received) {
        const int size = rows.size_of(from);
        rows.for_width([&](auto n) {
            if (keeps_weights_) {
                softmax_.share(rows, most(from));
                gathered_.add_weights<n>(kept(from), most(from), from, size, received);
            } else {
                Vec* scores = keeps_ ? kept(from) : rows.scores(from, size, room);
                gathered_.add<n>(scores, from, size, received);
            }
        });
    }

    void finish(float* sum_edges, float* maximum_edges) {
        rows.for_width([&](auto n) { gathered_.finish<n>(rows, sum_edges, maximum_edges); });
        if (!s.entropy) return;
        if (keeps_weights_) softmax_.write_entropy(rows, s.entropy + matrix_ * p.queries + rows.start);
        else gathered_.write_entropy(rows);
    }

    Rows rows;

  private:
    Vec* kept(int64_t from) { return kept_.data + (from - rows.from_key) * WIDE; }
    Vec* most(int64_t from) { return most_.data + (from - rows.from_key) / KEYS * WIDE; }

    const HeedmapProblem& p;
    const HeedmapStatistics& s;
    float* output_;
    const bool keeps_, keeps_weights_;
    int64_t matrix_ = 0;
    Gathered gathered_;
    Softmax softmax_;
    Buffer<Vec> kept_;  // scores or weights of a block of rows
    Buffer<Vec> most_;  // what the weights of each tile are relative to
};

// What one thread does: it has the blocks whose number leaves its own, divided by that of the threads.
class Share {
  public:
    Share(const HeedmapProblem& problem, const HeedmapStatistics& wanted, float* output, bool keeps)
        : p(problem), s(wanted), attends_(output) {
        const int64_t count = !is_far(p) ? 1 : keeps ? most_kept() : TOGETHER;
        for (int64_t i = 0; i < count; ++i) passes_.push_back(std::make_unique<Pass>(p, s, output, keeps));
    }

    void run(int64_t first, int64_t blocks, float* received, float* sum_edges, float* maximum_edges) {
        const int64_t jobs = s.matrices * blocks, edge = 2 * s.pooled_columns;
        for (int64_t job = first, next = job; job < jobs; job = next) {
            const int64_t matrix = job / blocks;
            int64_t count = 0;
            for (; count < (int64_t)passes_.size() && next < jobs && next / blocks == matrix; next += p.threads)
                passes_[count++]->take(matrix, next % blocks * ROWS);
            go_through(count, received ? received + matrix * p.keys : nullptr);
            for (int64_t i = 0; i < count; ++i) {
                const int64_t at = (job + i * p.threads) * edge;
                passes_[i]->finish(sum_edges ? sum_edges + at : nullptr,
                                   maximum_edges ? maximum_edges + at : nullptr);
            }
        }
    }

  private:
    void go_through(int64_t count, float* received) {
        Vec* room = passes_[0]->rows.tile();
        if (attends_)
            through_keys(passes_.data(), count, [&](Pass& pass, int64_t from) { pass.attend(from, room); });
        for (int64_t i = 0; i < count; ++i) passes_[i]->begin();
        through_keys(passes_.data(), count,
                     [&](Pass& pass, int64_t from) { pass.gather(from, room, received); });
    }

    // How many blocks to keep at a time. What is kept of several is far itself, which only pays where
    // keys and values, 24 MB or more, are in no cache at all, and is done within 64 MB for all threads.
    int64_t most_kept() const {
        const int64_t bytes = (int64_t)sizeof(float) * ROWS * p.keys * p.threads;
        if (p.keys * (p.width + p.value_width) < 6 << 20) return 1;
        return std::clamp<int64_t>((64 << 20) / bytes, 1, TOGETHER);
    }

    const HeedmapProblem& p;
    const HeedmapStatistics& s;
    const bool attends_;
    std::vector<Held<Pass>> passes_;
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
                float* received = s.received ? parts.data() + share * matrices * p.keys : nullptr;
                Share(p, s, output, output && keeps)
                    .run(share, blocks, received, sum_edges.data(), maximum_edges.data());
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
