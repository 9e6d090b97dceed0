// Whether numbers are finite, and so is every product of one with another.

#include "vectors.hpp"

using namespace heedmap;

namespace {

// The sum of squares; not a number, or infinite, where one of them is.
float squares(const float* numbers, int64_t count) {
    Vec sum{};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const Vec x = *(const Loose*)(numbers + i);
        sum += x * x;
    }
    float total = sum_of(sum);
    for (; i < count; ++i) total += numbers[i] * numbers[i];
    return total;
}

}  // namespace

struct HeedmapNumbers {
    const float* numbers;
    int64_t count;
};

// Returns 1 if no norm of the three reaches 1e18, else 0; any may have no numbers.
extern "C" int heedmap_tame(const HeedmapNumbers* given) {
    for (int i = 0; i < 3; ++i)
        if (!(squares(given[i].numbers, given[i].count) < 1e36f)) return 0;
    return 1;
}
