"""Who computes a sequence or a stack: each backend is an object, and one table chooses.

`run_sequence` and `run_stack` run what they are given, `choose` and `computing` say by what.
"""
