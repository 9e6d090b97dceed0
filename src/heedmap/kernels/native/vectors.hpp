// A vector for as many rows as the machine takes at a time, and what is done with it.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
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

namespace heedmap {

constexpr float NONE = -std::numeric_limits<float>::infinity();
constexpr float LN_2 = 0.693147180559945f, LOG2_E = 1.442695040888963f;
constexpr int WIDE = 3;                 // vectors side by side, and
constexpr int ROWS = LANES * WIDE;      // so many rows in a block
constexpr int KEYS = 128;               // keys in a tile, which stays in the first-level cache

inline Vec all(float x) { return Vec{} + x; }

// The sum of all lanes, and a bit for each lane in which a is greater than b.
#if defined(__AVX512F__)
inline float sum_of(Vec x) { return _mm512_reduce_add_ps((__m512)x); }
inline unsigned greater(Vec a, Vec b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
}
#elif defined(__AVX2__)
inline float sum_of(Vec x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
inline unsigned greater(Vec a, Vec b) {
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GT_OQ));
}
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
#endif

inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }

// 2^x, exactly 0 from below -126; NaN stays NaN. (Polynomial: minimax on [-1/2, 1/2].)
inline Vec power_of_two(Vec x) {
    const Vec bounded = x < all(-126.0f) ? all(-126.0f) : x;
    const Vec whole = bounded + all(12582912.0f) - all(12582912.0f);
    const Vec rest = bounded - whole;
    Vec p = all(1.535336188319500e-4f);
    p = p * rest + all(1.339887440266574e-3f);
    p = p * rest + all(9.618437357674640e-3f);
    p = p * rest + all(5.550332471162809e-2f);
    p = p * rest + all(2.402264791363012e-1f);
    p = p * rest + all(6.931472028550421e-1f);
    p = p * rest + all(1.0f);
    const Ints exponent = __builtin_convertvector(whole, Ints) << 23;
    return x < all(-126.0f) ? Vec{} : (Vec)((Ints)p + exponent);
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
