"""Every refusal of a stranger's file, each with a file that meets it."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from models.errors import GraphRefused
from models.graphs.documents import GraphLimits
from models.graphs.reading import OPERATORS, newest_opset, read_graph
from tests.models.graphs.reading.graph_files import (
    chosen_by_rate,
    endless,
    large_constant,
    model_of,
    port,
    small,
    tensor,
)

node = helper.make_node


def refusal(model: onnx.ModelProto | bytes, limits: GraphLimits | None = None) -> str:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    with pytest.raises(GraphRefused) as refused:
        read_graph(data, limits or GraphLimits())
    return str(refused.value)


def test_sound_files_are_read_as_they_are() -> None:
    for model in (small(), chosen_by_rate(), endless(), large_constant()):
        assert read_graph(model.SerializeToString()) == model


def test_a_file_that_is_too_large_is_refused() -> None:
    data = small().SerializeToString()
    assert read_graph(data, replace(GraphLimits(), file_bytes=len(data)))
    message = refusal(data, replace(GraphLimits(), file_bytes=len(data) - 1))
    assert message == f"the file has {len(data)} bytes; an ONNX file may have {len(data) - 1}"


@pytest.mark.parametrize("data", [b"", b"hello", b"PK\x03\x04 no model", b"\x08\x08", b"\x80"])
def test_what_is_no_onnx_is_refused(data: bytes) -> None:
    assert "no ONNX model" in refusal(data)


def test_a_file_that_was_cut_off_is_refused_at_every_length() -> None:
    data = small().SerializeToString()
    for length in range(len(data)):
        refusal(data[:length])


def test_external_data_are_refused_and_never_looked_for() -> None:
    model = small()
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    model.graph.initializer[0].external_data.add(key="location", value="/etc/passwd")
    assert "'W' is in another file; save the model as one file" in refusal(model)


def test_external_data_of_a_body_are_refused_without_a_location() -> None:
    model = chosen_by_rate()
    branch = model.graph.node[3].attribute[0].g
    branch.initializer[0].external_data.add(key="location", value="weights")
    assert "'W' is in another file" in refusal(model)


def test_the_first_five_operators_that_are_not_on_the_list_are_named() -> None:
    kinds = ["RandomNormalLike", "Foo", "Bernoulli", "SequenceAt", "StringSplit", "Bar", "Foo"]
    nodes = [node(kind, ["x"], [f"y{place}"]) for place, kind in enumerate(kinds)]
    nodes.append(node("Relu", ["x"], ["y"]))
    message = refusal(model_of(nodes))
    assert "'Bernoulli', 'SequenceAt', 'StringSplit' and 1 more" in message


def test_operators_of_other_domains_are_refused_also_in_bodies() -> None:
    model = small()
    model.graph.node[1].domain = "com.microsoft"
    assert "'com.microsoft.Relu'" in refusal(model)
    model = chosen_by_rate()
    model.graph.node[3].attribute[1].g.node[0].domain = "mine"
    assert "'mine.Mul'" in refusal(model)


def test_a_domain_that_nothing_uses_is_dropped() -> None:
    model = small()
    model.opset_import.add(domain="com.microsoft", version=1)
    model.opset_import[0].domain = "ai.onnx"
    model.graph.node[0].domain = "ai.onnx"
    assert read_graph(model.SerializeToString()) == small()


def test_operators_that_answer_by_chance_are_not_on_the_list() -> None:
    schemas = onnx.defs.get_all_schemas()
    names = {schema.name for schema in schemas if not schema.domain and not schema.deprecated}
    assert names >= OPERATORS
    for schema in schemas:
        text = (schema.doc or "").lower()
        if not schema.domain and schema.name in OPERATORS - {"Dropout"}:
            assert "random" not in text, schema.name
        types = " ".join(
            kind for typed in schema.type_constraints for kind in typed.allowed_type_strs
        )
        if not schema.domain and "seq(" in types and "tensor(" not in types:
            assert schema.name not in OPERATORS, schema.name


@pytest.mark.parametrize("opset", [0, 1, 10, newest_opset() + 1, 2**40])
def test_opsets_that_are_not_run_are_refused(opset: int) -> None:
    message = refusal(small(opset=opset))
    assert message == f"the model has opset {opset}; allowed are 11 to {newest_opset()}"


def test_opsets_from_the_oldest_to_the_newest_are_read() -> None:
    for opset in (11, newest_opset()):
        assert read_graph(small(opset=opset).SerializeToString()).opset_import[0].version == opset


def test_a_model_without_an_opset_or_with_two_is_refused() -> None:
    model = small()
    model.opset_import.add(domain="ai.onnx", version=12)
    assert "names 12, 17" in refusal(model)
    del model.opset_import[:]
    assert "names none" in refusal(model)


@pytest.mark.parametrize("version", [0, 2, 1000])
def test_versions_of_the_format_that_are_not_read_are_refused(version: int) -> None:
    assert f"IR version {version}; allowed are 3 to" in refusal(small(ir_version=version))


def test_functions_and_training_information_are_refused() -> None:
    model = small()
    model.functions.add(name="f", domain="mine")
    assert "1 functions of its own; inline them" in refusal(model)
    model = small()
    model.training_info.add()
    assert "training information" in refusal(model)


def test_too_many_nodes_are_refused_those_of_bodies_counted() -> None:
    limits = replace(GraphLimits(), nodes=9)
    read_graph(chosen_by_rate().SerializeToString(), limits)
    message = refusal(chosen_by_rate(), replace(limits, nodes=8))
    assert message == "the model has more than 8 nodes, those of bodies counted"


def test_too_many_tensors_ports_and_metadata_are_refused() -> None:
    assert "more than 0 initializers" in refusal(small(), GraphLimits(tensors=0))
    assert "2 inputs and outputs; allowed are 1" in refusal(small(), GraphLimits(ports=1))
    model = small()
    model.metadata_props.add(key="k", value="v" * 100)
    assert "metadata take 105 bytes" in refusal(model, GraphLimits(metadata_bytes=50))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None),
            "'x' is a sequence; only tensors",
        ),
        (
            helper.make_value_info("x", helper.make_optional_type_proto(port("x").type)),
            "'x' is an optional",
        ),
        (
            helper.make_value_info(
                "x", helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [2])
            ),
            "'x' is a sparse tensor",
        ),
        (port("x", element=TensorProto.STRING), "elements of type string; allowed are float32"),
        (port("x", element=TensorProto.COMPLEX64), "elements of type complex64"),
        (onnx.ValueInfoProto(name="x"), "the input 'x' has no type"),
        (port("x", [2**40]), "a size of 2147483648 or more"),
        (port("x", [1] * 17), "more than 16 dimensions"),
    ],
)
def test_inputs_that_are_no_tensors_of_numbers_are_refused(made, words: str) -> None:
    assert words in refusal(model_of([node("Relu", ["x"], ["y"])], inputs=[made]))


def test_outputs_without_types_are_refused() -> None:
    model = small()
    model.graph.output[0].ClearField("type")
    assert "the output 'y' has no type" in refusal(model)


def test_strings_and_sparse_tensors_are_refused() -> None:
    model = small()
    model.graph.initializer.append(
        TensorProto(name="s", data_type=TensorProto.STRING, dims=[1], string_data=[b"a"])
    )
    assert "'s' has elements of type string" in refusal(model)
    model = small()
    model.graph.sparse_initializer.add()
    assert "sparse tensors" in refusal(model)
    cast = model_of([node("Cast", ["x"], ["y"], to=TensorProto.STRING)])
    assert "Cast makes elements of type string" in refusal(cast)
    constant = node("Constant", [], ["c"], value_strings=[b"a"])
    assert "holds strings" in refusal(model_of([constant, node("Relu", ["x"], ["y"])]))
    constant = node("Constant", [], ["c"])
    constant.attribute.add(name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR)
    assert "a sparse tensor" in refusal(model_of([constant, node("Relu", ["x"], ["y"])]))


def test_attributes_that_hold_more_than_they_say_are_refused() -> None:
    model = small()
    model.graph.node[1].attribute.add(name="axis", type=onnx.AttributeProto.INT).tp.SetInParent()
    assert "'axis' of a node Relu holds more than its type says" in refusal(model)
    model = small()
    model.graph.node[1].attribute.add(name="axis", ref_attr_name="a", type=onnx.AttributeProto.INT)
    assert "what a function is called with" in refusal(model)


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ([4, 5], "takes 80 bytes; 64 are there"),
        ([1], "takes 4 bytes"),
        ([2**40, 2**40], "are there"),
        ([4, -4], "no size may be negative"),
        ([0], "takes 0 bytes; 64"),
    ],
)
def test_dimensions_that_disagree_with_the_bytes_are_refused(dims: list[int], words: str) -> None:
    model = small()
    model.graph.initializer[0].dims[:] = dims
    assert words in refusal(model)


def test_numbers_in_a_list_are_counted_too() -> None:
    wrong = helper.make_tensor("W", TensorProto.FLOAT, [2], [1.0, 2.0])
    wrong.dims[:] = [3]
    nodes = [node("Mul", ["x", "W"], ["y"])]
    assert "are 3 numbers; 2 are there" in refusal(model_of(nodes, tensors=[wrong]))
    wrong.dims[:] = [2]
    assert read_graph(model_of(nodes, tensors=[wrong]).SerializeToString())
    wrong.int32_data.append(1)
    assert "elements in int32_data by mistake" in refusal(model_of(nodes, tensors=[wrong]))


@pytest.mark.parametrize("element", [TensorProto.INT4, TensorProto.BOOL, TensorProto.UINT32])
def test_short_elements_have_their_own_sizes(element: int) -> None:
    held = helper.make_tensor("W", element, [3], [1, 0, 1])
    model = model_of([node("Relu", ["x"], ["y"])], tensors=[held], opset=21, ir_version=10)
    assert read_graph(model.SerializeToString())
    held.dims[:] = [5]
    refusal(model_of([node("Relu", ["x"], ["y"])], tensors=[held], opset=21, ir_version=10))


@pytest.mark.parametrize(
    ("dtype", "value", "shown"),
    [
        (np.float32, np.nan, "nan"),
        (np.float32, np.inf, "inf"),
        (np.float16, -np.inf, "-inf"),
        (np.float64, np.nan, "nan"),
    ],
)
def test_a_weight_that_is_not_finite_is_named(dtype, value: float, shown: str) -> None:
    weights = np.ones(7)
    weights[5] = value
    model = model_of([node("Relu", ["x"], ["y"])], tensors=[tensor("layer.bias", weights, dtype)])
    message = refusal(model)
    assert message.startswith(f"the weight 'layer.bias' holds {shown} at place 5 (from 0)")


def test_nan_is_found_in_lists_in_bodies_and_in_constants() -> None:
    listed = helper.make_tensor("W", TensorProto.FLOAT, [2], [1.0, np.nan])
    relu = node("Relu", ["x"], ["y"])
    assert "'W' holds nan" in refusal(model_of([relu], tensors=[listed]))
    brain = helper.make_tensor("W", TensorProto.BFLOAT16, [2], [1.0, np.nan])
    assert "'W' holds nan" in refusal(model_of([relu], tensors=[brain]))
    constant = node("Constant", [], ["c"], value=tensor("", [np.nan]))
    assert "'c' holds nan" in refusal(model_of([constant, relu]))
    model = chosen_by_rate()
    held = model.graph.node[3].attribute[0].g.initializer[1]
    held.CopyFrom(tensor("scale", np.nan))
    assert "'scale' holds nan" in refusal(model)


def test_masks_may_hold_infinity() -> None:
    masks = [tensor("one", -np.inf), tensor("mask", np.triu(np.full((3, 3), -np.inf), 1))]
    assert read_graph(model_of([node("Relu", ["x"], ["y"])], tensors=masks).SerializeToString())


def test_cycles_are_told_from_nodes_out_of_order() -> None:
    cycle = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])]
    assert re.search(r"has a cycle: the node Add reads 'b'", refusal(model_of(cycle)))
    itself = [node("Add", ["x", "y"], ["y"])]
    assert "has a cycle" in refusal(model_of(itself))
    unsorted = [node("Relu", ["a"], ["y"]), node("Relu", ["x"], ["a"])]
    assert "not in order: the node Relu reads 'a'" in refusal(model_of(unsorted))


def test_names_that_nothing_defines_are_refused() -> None:
    assert "reads 'z', which nothing defines" in refusal(model_of([node("Relu", ["z"], ["y"])]))
    lost = model_of([node("Relu", ["x"], ["a"])])
    assert "an output reads 'y', which nothing defines" in refusal(lost)


def test_a_name_that_is_defined_twice_is_refused() -> None:
    twice = [node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])]
    assert "the name 'y' is defined twice" in refusal(model_of(twice))
    shadowing = chosen_by_rate()
    shadowing.graph.node[3].attribute[0].g.initializer[0].name = "x"
    assert "the name 'x' is defined twice" in refusal(shadowing)
    ports = [port("y"), port("y")]
    assert "'y' stands there twice" in refusal(
        model_of([node("Relu", ["x"], ["y"])], outputs=ports)
    )


def test_names_are_text_of_some_length() -> None:
    data = small().SerializeToString().replace(b"product", b"pr\xff\xfeuct")
    assert "not UTF-8" in refusal(data)
    model = small()
    model.graph.node[0].name = "n" * 1001
    message = refusal(model)
    assert "of 1001 characters; allowed are 1000" in message
    assert len(message) < 200


def test_a_dropout_that_drops_is_refused() -> None:
    def dropping(mode: str, *more) -> onnx.ModelProto:
        nodes = [node("Dropout", ["x", "", mode], ["y"])]
        inputs = [port("x"), *more]
        return model_of(
            nodes, inputs=inputs, tensors=[tensor("on", True, bool), tensor("off", False, bool)]
        )

    assert read_graph(dropping("off").SerializeToString())
    assert read_graph(model_of([node("Dropout", ["x"], ["y"])]).SerializeToString())
    assert "may drop at random" in refusal(dropping("on"))
    assert "may drop at random" in refusal(dropping("m", port("m", (), TensorProto.BOOL)))


def test_inputs_with_a_default_become_constants() -> None:
    model = small(inputs=[port("x"), port("W", [4, 4])])
    assert [entry.name for entry in read_graph(model.SerializeToString()).graph.input] == ["x"]


def test_nodes_of_one_name_are_told_apart() -> None:
    chain = ["x", "a", "b", "y"]
    nodes = [node("Relu", [one], [two], name="n") for one, two in pairwise(chain)]
    nodes[2].name = "n_1"
    read = read_graph(model_of(nodes).SerializeToString())
    assert [part.name for part in read.graph.node] == ["n", "n_1_", "n_1"]
