"""Whole sequences on GPUs by Triton's kernels: weights stay on chip for all steps.

`backend` says what they take, `tiles` what fits, `sequence` is the operator, `launches` and
`gradients` are its two passes with all products of many steps at once, and `kernels` is the
recurrence itself. Only `kernels` imports triton, and only a sequence that runs imports `kernels`.
"""
