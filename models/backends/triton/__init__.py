"""Whole sequences on GPUs by Triton's kernels: weights stay on chip for all steps.

`backend` says what they take and `sequence` is the operator. `tiles` cuts a sequence, `launches` is
one call so cut, and `gradients` its backward pass, with all products of many steps at once. `thin`
and `whole` launch the recurrences themselves, `thin_kernels` and `whole_kernels`. Only these import
triton, and only a sequence that runs imports them.
"""
