"""What of a network can be compressed, and the sentence where nothing can."""

import numpy as np
import pytest
from onnx import helper

from models.errors import GraphRefused
from models.graphs.documents import GraphLimits
from models.graphs.layers import find_layers
from models.graphs.network_facts import network_facts, refuse_incompressible
from tests.models.graphs.layer_graphs import GRAPHS
from tests.models.graphs.reading.graph_files import chosen_by_rate, small, tensor


@pytest.mark.parametrize("name", GRAPHS)
def test_every_layer_is_told_of_as_it_is_found(name: str) -> None:
    model = GRAPHS[name]().model()
    layers = network_facts(model, kept_because=None).layers
    assert [(one.name, one.operator, one.shape, one.bytes) for one in layers] == [
        (one.name, one.operator, one.native, one.stored_bytes) for one in find_layers(model)
    ]
    for told, found in zip(layers, find_layers(model), strict=True):
        assert told.quantized == found.quantized
        assert told.has_structure == (found.structured and not found.quantized)


def test_numbers_are_counted_in_bodies_and_attributes_too() -> None:
    facts = network_facts(chosen_by_rate(), kept_because="it is so")
    assert facts.parameters == 2 * (16 + 1) + 1
    assert (facts.layers, facts.kept_because) == ((), "it is so")


def test_layers_above_the_limit_are_refused() -> None:
    model = GRAPHS["matmul"]().model()
    with pytest.raises(GraphRefused, match="has 1 weights of 1024 numbers or more; at most 0"):
        network_facts(model, GraphLimits(layers=0), kept_because=None)


def test_a_layer_is_enough() -> None:
    model = GRAPHS["matmul"]().model()
    refuse_incompressible(model, network_facts(model, kept_because=None))


def test_small_weights_are_refused_with_the_shares_of_their_readers() -> None:
    model = small()
    model.graph.initializer.append(tensor("B", np.ones(16)))
    model.graph.node[1].input[0] = "added"
    model.graph.node.insert(1, helper.make_node("Add", ["h", "B"], ["added"]))
    facts = network_facts(model, kept_because=None)
    with pytest.raises(GraphRefused, match="128 bytes are 50 % read by MatMul, 50 % read by Add"):
        refuse_incompressible(model, facts)


def test_branches_are_enough_where_weights_in_bodies_are_let_pass() -> None:
    model = chosen_by_rate()
    facts = network_facts(model, kept_because=None)
    refuse_incompressible(model, facts, GraphLimits(top_level_share=0))
    with pytest.raises(GraphRefused, match="94 % read by Mul, 6 % read by Constant"):
        refuse_incompressible(model, facts)
