"""Attention as one operator; in older files it is products and a softmax."""

import math

import torch
from torch import Tensor

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.operator_table import OperatorTable

ATTENTION = OperatorTable()


def _fault(node: Node) -> str | None:
    if any(node.has_input(place) for place in (4, 5, 6)):
        return "with earlier keys and values"
    if any(node.wants(place) for place in (1, 2, 3)):
        return "with outputs beyond the first"
    return None


@ATTENTION.operator("Attention", fault=_fault)
def attention(
    node: Node, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> Tensor:
    """`softmax(Q Kᵀ scale + mask) V` of `[B, heads, T, d]`, or of `[B, T, heads d]`.

    Where the mask leaves a row nothing to see, it has zeros.
    """
    flat = query.dim() == 3
    if flat:
        heads = node.integer("q_num_heads", 1)
        query = _apart(query, heads)
        key, value = (_apart(x, node.integer("kv_num_heads", heads)) for x in (key, value))
    if query.shape[1] != key.shape[1]:
        shared = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(shared, dim=1) for x in (key, value))
    scores = query @ key.transpose(-1, -2) * node.real("scale", 1 / math.sqrt(query.shape[-1]))
    cap = node.real("softcap", 0.0)
    scores = cap * torch.tanh(scores / cap) if cap else scores
    if node.flag("is_causal"):
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores = scores + mask
    # A softmax of nothing is NaN, and so is its gradient.
    blind = scores.isneginf().all(-1, keepdim=True)
    shares = torch.softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)
    found = shares @ value
    return found.transpose(1, 2).flatten(2) if flat else found


def _apart(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)
