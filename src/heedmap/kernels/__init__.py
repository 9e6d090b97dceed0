"""How a problem is computed: one file for each way, none of which imports another.

Each has `forward`: the output and the log-normaliser of a problem and its values, and `backward`:
the gradients of both; `serves`, where there is one, says which problems it takes. `native` is our
own, where it could be compiled; `fused` is PyTorch's; `tiles` takes every problem, and makes the
blocks that a map is read by; `reference` is the plain formula. `differentiable` chooses.
"""
