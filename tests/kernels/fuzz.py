"""Random problems for our own kernel, for as long as one likes.

    python -m tests.kernels.fuzz SECONDS [FIRST_SEED]

Each seed is a problem of each kind of the tests beside this file: output and log-normaliser,
gradients, pictures, strips of rows. It ends with how many seeds there were, or with the first that
fails.
"""

import sys
import time

from tests.kernels import test_native, test_statistics

KINDS = (
    test_native.test_random_problems,
    test_native.test_random_gradients,
    test_statistics.test_pictures_of_sums_and_maxima,
    test_statistics.test_strips_are_parts_of_the_whole,
)


def main() -> None:
    seconds, first = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000
    seed, began = first, time.monotonic()
    test_native.test_a_kernel_was_compiled()
    while time.monotonic() - began < seconds:
        for kind in KINDS:
            try:
                kind(seed)
            except AssertionError:
                print(f"{kind.__name__}({seed}) fails", file=sys.stderr)
                raise
        seed += 1
        if seed % 1_000 == 0:
            print(f"{seed - first} seeds", flush=True)
    print(f"{seed - first} seeds, {len(KINDS)} problems each, none fails")


if __name__ == "__main__":
    main()
