"""Whole-sequence kernels: C++ for CPUs, built with the machine's own compiler, behind torch ops."""
