"""What the kernels of whole and of thin matrices have in common: activations and their slopes."""
# pyright: basic
# Triton ships no types, and what it compiles is not quite Python.

import triton
import triton.language as tl


@triton.jit
def sigmoid(z):
    """Of single precision."""
    return 1.0 / (1.0 + tl.exp(-z))


@triton.jit
def tanh(z):
    """Of single precision."""
    return 2.0 / (1.0 + tl.exp(-2.0 * z)) - 1.0


@triton.jit
def activated(z, slope, ACTIVATION: tl.constexpr):
    """An RNN's activation; comparisons as they are here leave NaN what it is."""
    if ACTIVATION == "tanh":
        z = tanh(z)
    elif ACTIVATION == "relu":
        z = tl.where(z < 0, 0.0, z)
    elif ACTIVATION == "leaky_relu":
        z = tl.where(z < 0, slope * z, z)
    elif ACTIVATION == "abs":
        z = tl.where(z < 0, -z, z)
    return z


@triton.jit
def through(gradient, stored, slope, ACTIVATION: tl.constexpr):
    """What passes an activation that gave what is stored, or of `abs` was given it."""
    if ACTIVATION == "tanh":
        gradient = gradient * (1.0 - stored * stored)
    elif ACTIVATION == "relu":
        gradient = tl.where(stored > 0, gradient, 0.0)
    elif ACTIVATION == "leaky_relu":
        gradient = tl.where(stored > 0, gradient, slope * gradient)
    elif ACTIVATION == "abs":
        gradient = tl.where(stored < 0, -gradient, gradient)
    return gradient
