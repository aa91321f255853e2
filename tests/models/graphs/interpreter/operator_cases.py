"""Nodes of every operator that is computed, at the opsets where its meaning changed."""

from tests.models.graphs.interpreter import number_cases, sequence_cases, shape_cases, window_cases

CASES = [
    *number_cases.unary(),
    *number_cases.pairs(),
    *number_cases.products(),
    *number_cases.reductions(),
    *number_cases.stored(),
    *shape_cases.shapes(),
    *shape_cases.indexing(),
    *window_cases.convolutions(),
    *window_cases.pooling(),
    *window_cases.normalisation(),
    *window_cases.resizing(),
    *window_cases.sampling(),
    *sequence_cases.attention(),
    *sequence_cases.recurrent(),
]
