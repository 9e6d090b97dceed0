// Random problems for the kernels, to be compiled with the address and undefined-behaviour sanitizers:
// every buffer is as long as it must be, and no longer.
//
//     sanitized ROUNDS SEED

#include "backward.cpp"
#include "forward.cpp"
#include "statistics.cpp"
#include "tame.cpp"

#include <cstdio>
#include <cstdlib>
#include <random>

static std::mt19937 generator;

static int between(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(generator);
}

static bool perhaps() { return between(0, 1) == 1; }

static std::vector<float> numbers(int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> made(count);
    for (float& number : made) number = normal(generator);
    return made;
}

template <typename T>
static std::vector<T> whole_numbers(int64_t count, int low, int high) {
    std::vector<T> made(count);
    for (T& number : made) number = (T)between(low, high);
    return made;
}

static std::vector<int32_t> bins(int64_t size, int64_t count) {
    std::vector<int32_t> made(size);
    for (int64_t i = 0; i < size; ++i) made[i] = (int32_t)(((i + 1) * count - 1) / size);
    return made;
}

static void one_round() {
    const int64_t batch = between(1, 2), kv_heads = between(1, 3), heads = kv_heads * between(1, 2);
    const int64_t queries = between(1, 130), keys = between(1, 300);
    const int64_t width = between(1, 40), value_width = between(1, 40);
    const int64_t rows = batch * heads * queries, lines = batch * kv_heads * keys;
    const auto query = numbers(rows * width), key = numbers(lines * width);
    const auto value = numbers(lines * value_width), bias = numbers(rows * keys);
    const auto first = whole_numbers<int32_t>(rows, -3, (int)keys + 2);
    const auto last = whole_numbers<int32_t>(rows, -3, (int)keys + 2);
    const auto valid = whole_numbers<uint8_t>(batch * keys, 0, 1);
    const auto visible = whole_numbers<uint8_t>(rows * keys, 0, 1);
    HeedmapProblem p{};
    p.query = query.data(), p.key = key.data(), p.value = value.data();
    p.batch = batch, p.heads = heads, p.kv_heads = kv_heads, p.queries = queries, p.keys = keys;
    p.width = width, p.value_width = value_width;
    p.scale = (float)between(-1, 1) * 0.3f, p.threads = between(1, 3);
    const int64_t places[3][3] = {{heads * queries * width, queries * width, width},
                                  {kv_heads * keys * width, keys * width, width},
                                  {kv_heads * keys * value_width, keys * value_width, value_width}};
    std::copy_n(places[0], 3, p.query_strides);
    std::copy_n(places[1], 3, p.key_strides);
    std::copy_n(places[2], 3, p.value_strides);
    const int64_t table[4] = {heads * queries * keys, queries * keys, keys, 1};
    std::copy_n(table, 4, p.visible_strides);
    std::copy_n(table, 4, p.bias_strides);
    p.span_strides[0] = heads * queries, p.span_strides[1] = queries, p.valid_stride = keys;
    HeedmapNumbers given[3] = {{query.data(), (int64_t)query.size()}, {key.data(), (int64_t)key.size()}, {}};
    if (!heedmap_tame(given)) std::abort();
    auto huge = value;
    huge[between(0, (int)huge.size() - 1)] = perhaps() ? NAN : perhaps() ? -INFINITY : 1e18f;
    given[between(0, 2)] = {huge.data(), (int64_t)huge.size()};
    if (heedmap_tame(given)) std::abort();

    if (perhaps()) p.first = first.data(), p.last = last.data();
    if (perhaps()) p.valid = valid.data();
    if (perhaps()) p.visible = visible.data();
    if (perhaps()) p.bias = bias.data();

    std::vector<float> output(rows * value_width), normalizer(rows);
    if (heedmap_forward(&p, output.data(), normalizer.data())) std::abort();

    const int64_t down = between(1, (int)queries), across = between(1, (int)keys);
    const int64_t top = perhaps() ? between(1, (int)std::min<int64_t>(9, keys)) : 0;
    const int64_t first_matrix = between(0, (int)(batch * heads) - 1);
    const int64_t matrices = between(1, (int)(batch * heads - first_matrix)), some = matrices * queries;
    std::vector<float> received(matrices * keys), entropy(some), weights(some * top);
    std::vector<float> pooled(matrices * down * across), largest(pooled.size());
    std::vector<int64_t> found(some * top);
    const auto row_bins = bins(queries, down), column_bins = bins(keys, across);
    HeedmapStatistics s{};
    s.first_matrix = first_matrix, s.matrices = matrices;
    std::vector<float> known(normalizer.begin() + first_matrix * queries, normalizer.begin() + first_matrix * queries + some);
    s.log_normalizer = known.data();
    if (perhaps()) s.received = received.data();
    if (perhaps()) s.entropy = entropy.data();
    if (perhaps()) s.pooled = pooled.data();
    if (perhaps()) s.largest = largest.data();
    if (s.pooled || s.largest) {
        s.pooled_rows = down, s.pooled_columns = across;
        s.row_bins = row_bins.data(), s.column_bins = column_bins.data();
    }
    s.top = top, s.top_weights = weights.data(), s.top_keys = found.data();
    std::vector<float> some_output(some * value_width);
    if (heedmap_statistics(&p, &s, perhaps() ? some_output.data() : nullptr, perhaps())) std::abort();
    for (int64_t place : found)
        if (place < 0 || place >= keys) std::abort();

    const auto upward = numbers(rows * value_width), slope = numbers(rows);
    std::vector<float> d_query(query.size()), d_key(key.size()), d_value(value.size());
    const HeedmapGradients g{normalizer.data(), upward.data(), slope.data(),
                             d_query.data(),    d_key.data(),  d_value.data()};
    if (heedmap_backward(&p, &g)) std::abort();
}

// Keys that are far from the processor, which blocks of rows take in together; some begin late.
static void far_round(bool late) {
    const int64_t queries = 32 * ROWS + 5, keys = 4100, width = 130;
    const auto query = numbers(queries * width), key = numbers(keys * width), value = numbers(keys * width);
    const auto first = whole_numbers<int32_t>(queries, 0, 700);
    const auto last = whole_numbers<int32_t>(queries, 3, (int)keys + 2);
    HeedmapProblem p{};
    p.query = query.data(), p.key = key.data(), p.value = value.data();
    p.batch = p.heads = p.kv_heads = p.threads = 1, p.queries = queries, p.keys = keys;
    p.width = p.value_width = width, p.scale = 0.1f;
    p.query_strides[2] = p.key_strides[2] = p.value_strides[2] = width;
    p.last = last.data(), p.first = late ? first.data() : nullptr;
    std::vector<float> output(queries * width), normalizer(queries);
    if (!is_far(p) || heedmap_forward(&p, output.data(), normalizer.data())) std::abort();
    std::vector<float> received(keys), entropy(queries);
    HeedmapStatistics s{};
    p.queries = 9 * ROWS + 5;
    s.matrices = 1, s.log_normalizer = normalizer.data();
    s.received = received.data(), s.entropy = entropy.data();
    if (heedmap_statistics(&p, &s, nullptr, 0) || heedmap_statistics(&p, &s, output.data(), 0)) std::abort();
}

int main(int, char** words) {
    generator.seed((unsigned)std::atoi(words[2]));
    far_round(false), far_round(true);
    for (int round = std::atoi(words[1]); round; --round) one_round();
    std::puts("clean");
}
