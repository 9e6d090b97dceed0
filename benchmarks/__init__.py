"""Programs that measure heedmap beside others; `python -m benchmarks` runs the main one."""
