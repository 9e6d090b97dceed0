"""How a problem is computed: one file for each way, none of which imports another.

Each has `forward`: the output and the log-normaliser of a problem and its values, and `backward`:
the gradients of both. `heedmap.attention` chooses; the map's answers come from `tiles`.
"""
