// A vector for as many rows as the machine takes at a time, and what is done with it.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#define TALL 8
#elif defined(__AVX2__)
#define LANES 8
#define TALL 4
#else
#define LANES 4
#define TALL 8
#endif

typedef float Vec __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));
typedef Vec Loose __attribute__((aligned(4)));  // one that lies anywhere

namespace heedmap {

constexpr float NONE = -std::numeric_limits<float>::infinity();
constexpr float LN_2 = 0.693147180559945f, LOG2_E = 1.442695040888963f;
constexpr int WIDE = 3;                 // vectors side by side, and
constexpr int ROWS = LANES * WIDE;      // so many rows in a block
constexpr int KEYS = 128;               // keys in a tile, which stays in the first-level cache

// Not 0 + x, which is another number for -0 and so takes an addition.
inline Vec all(float x) { return x - Vec{}; }

// The same, in a register: compilers that run out of them would load it again for each use.
inline Vec held(Vec x) {
#if defined(__AVX2__)
    asm("" : "+v"(x));
#endif
    return x;
}

// The sum of all lanes; a bit for each lane in which a is greater than b; the larger and the smaller
// one of each lane, the second where either is not a number.
#if defined(__AVX512F__)
inline float sum_of(Vec x) { return _mm512_reduce_add_ps((__m512)x); }
inline unsigned greater(Vec a, Vec b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
}
inline Vec larger(Vec a, Vec b) { return (Vec)_mm512_max_ps((__m512)a, (__m512)b); }
inline Vec smaller(Vec a, Vec b) { return (Vec)_mm512_min_ps((__m512)a, (__m512)b); }
#elif defined(__AVX2__)
inline float sum_of(Vec x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
inline unsigned greater(Vec a, Vec b) {
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GT_OQ));
}
inline Vec larger(Vec a, Vec b) { return (Vec)_mm256_max_ps((__m256)a, (__m256)b); }
inline Vec smaller(Vec a, Vec b) { return (Vec)_mm256_min_ps((__m256)a, (__m256)b); }
#else
inline float sum_of(Vec x) {
    float sum = 0;
    for (int i = 0; i < LANES; ++i) sum += x[i];
    return sum;
}
inline unsigned greater(Vec a, Vec b) {
    unsigned bits = 0;
    for (int i = 0; i < LANES; ++i) bits |= (unsigned)(a[i] > b[i]) << i;
    return bits;
}
inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }
inline Vec smaller(Vec a, Vec b) { return a < b ? a : b; }
#endif

// 2^x for G vectors with x up to 127, exactly 0 from below -126.5, where x becomes -127; NaN stays NaN.
// Several side by side, for each step waits for the one before. (Polynomial: minimax on [-1/2, 1/2].)
template <int G>
inline void powers_of_two(Vec* x, Vec* power) {
    // Added to x, it leaves round(x) + 127 in the last bits: the exponent of a float, and 0 for -127.
    const Vec shift = all(12582912.0f + 127.0f);
    Vec shifted[G], rest[G];
    for (int g = 0; g < G; ++g) x[g] = larger(all(-127.0f), x[g]), shifted[g] = x[g] + shift;
    for (int g = 0; g < G; ++g) rest[g] = x[g] - (shifted[g] - shift), power[g] = all(1.535336188319500e-4f);
    for (float next : {1.339887440266574e-3f, 9.618437357674640e-3f, 5.550332471162809e-2f,
                       2.402264791363012e-1f, 6.931472028550421e-1f, 1.0f})
        for (int g = 0; g < G; ++g) power[g] = power[g] * rest[g] + all(next);
    for (int g = 0; g < G; ++g) power[g] *= (Vec)((Ints)shifted[g] << 23);
}

inline Vec power_of_two(Vec x) {
    Vec power;
    powers_of_two<1>(&x, &power);
    return power;
}

// Of two vectors, what belongs into one of them so that rows and columns change places: lanes with
// H in their number are taken from b, the others from a, from the lower or the upper half.
template <int H, bool UPPER, size_t... L>
inline Vec crossed(Vec a, Vec b, std::index_sequence<L...>) {
    constexpr int step = UPPER ? H : 0;
#if defined(__clang__)
    return __builtin_shufflevector(a, b, (L & H ? LANES + L - H + step : L + step)...);
#else
    return __builtin_shuffle(a, b, Ints{(L & H ? LANES + L - H + step : L + step)...});
#endif
}

template <int H, bool UPPER>
inline Vec crossed(Vec a, Vec b) {
    return crossed<H, UPPER>(a, b, std::make_index_sequence<LANES>());
}

// Makes rows of columns: afterwards lane j of vector i is what lane i of vector j was.
template <int H = LANES / 2>
inline void transpose(Vec* x) {
    for (int i = 0; i < LANES; ++i)
        if (!(i & H)) {
            const Vec a = x[i], b = x[i | H];
            x[i] = crossed<H, false>(a, b), x[i | H] = crossed<H, true>(a, b);
        }
    if constexpr (H > 1) transpose<H / 2>(x);
}

// The sums of so many vectors as there are lanes, each in the lane of its number.
template <int H = LANES / 2>
inline Vec sums_of(Vec* x) {
    for (int i = 0; i < H; ++i) x[i] = crossed<H, false>(x[i], x[i | H]) + crossed<H, true>(x[i], x[i | H]);
    if constexpr (H > 1) return sums_of<H / 2>(x);
    return x[0];
}

inline int64_t padded(int64_t width) { return (width + LANES - 1) / LANES * LANES; }

template <typename T>
T* aligned(int64_t count) {
    return (T*)::operator new(sizeof(T) * std::max<int64_t>(count, 1), std::align_val_t(64));
}

template <typename T>
struct Buffer {
    T* data;
    explicit Buffer(int64_t count) : data(aligned<T>(count)) {}
    ~Buffer() { ::operator delete(data, std::align_val_t(64)); }
    Buffer(const Buffer&) = delete;
};

}  // namespace heedmap
