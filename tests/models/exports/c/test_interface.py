"""A raw row in, an answer out: what the interface says, a C file does."""

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from models.errors import ExportError
from models.exports.c import interface as interface_module
from models.exports.c.export import export, sizes
from models.exports.c.interface import INPUTS, RESPONSES
from models.exports.c.toolchain import STRICT, compiler, run, write
from models.exports.c.verify import answers, build, verify
from models.interface import ANSWERS, INPUT_STEPS, Interface
from models.model import ModelSpec, NumberBits
from tests.c_check.builds import builds, check
from tests.conformance.model_specs import trained
from tests.models.exports.c.test_export import spec_of

ORDER = [(7 * place + 3) % 17 for place in range(17)]
SCALED = [
    {"kind": "fill_missing", "values": [1e6 + 1, 0.5, -3.0]},
    {"kind": "standardise", "means": [1e6 + 0.1, 0.25, -7.0], "deviations": [1.0, 0.5, 3.0]},
]
FLAT = [
    {"kind": "divide", "by": 255.0},
    {"kind": "reorder", "order": ORDER},
    {"kind": "layout", "steps": 5, "features": 3},
]
ONE_HOT = {"kind": "one_hot", "symbols": 7}
LOGITS = {"kind": "classes", "classes": ["a", "b", "c", "d"]}


def interface_of(
    inputs: list[dict[str, Any]], answer: dict[str, Any], sample: list[Any] | None = None
) -> Interface:
    fixed = any(step["kind"] == "layout" for step in inputs)
    shape = sample or ([17] if fixed else ["steps", 3])
    return Interface.model_validate({"sample": shape, "inputs": inputs, "answer": answer})


def test_every_step_and_answer_can_be_written() -> None:
    assert set(INPUTS) == set(INPUT_STEPS)
    assert set(RESPONSES) == set(ANSWERS)


@pytest.mark.parametrize("bits", [32, 8, 4])
@pytest.mark.parametrize("structured", ["none", "all"])
@pytest.mark.parametrize("kind", ["gru", "mlp"])
def test_tokens_are_read_as_one_hot_numbers(
    kind: str, structured: str, bits: NumberBits, tmp_path: Path
) -> None:
    """Others than there are count as zeros."""
    fields = {"kind": kind, "structured_inputs": structured}
    spec = spec_of(fields, {"kind": "low_rank", "d": 3}, input_size=7)
    spec = spec.model_copy(update={"bits": bits})
    interface = interface_of([ONE_HOT], LOGITS, ["steps"])
    file = check(spec, builds()[:1], interface=interface)
    assert file.tables_bytes == sizes(spec, interface=interface).tables_bytes
    program = [str(build(file, spec, tmp_path))]
    tokens = torch.tensor([[3, 7, -1, 2**31 - 1, 2]])
    found = answers(program, spec, tokens, steps=5)
    inside = (tokens >= 0) & (tokens < 7)
    x = interface.preprocess(tokens.where(inside, 0)).where(inside.unsqueeze(2), 0)
    with torch.no_grad():
        torch.testing.assert_close(found, trained(spec)(x), atol=1e-5, rtol=1e-5)


def test_one_hot_numbers_cost_no_products() -> None:
    """A token is a column of the input matrix: nothing is multiplied, and no vector is kept."""
    spec = spec_of({"kind": "gru"}, input_size=50, output_steps="every")
    interface = interface_of([{**ONE_HOT, "symbols": 50}], LOGITS, ["steps"])
    network = trained(spec)
    file = export(network, spec, interface=interface)
    verify(file, network, spec, interface=interface)
    assert "const int32_t *x" in file.header
    assert file.state_bytes == export(network, spec).state_bytes
    (layer,) = re.findall(r"static void layer_0.*?\n}", file.source, re.DOTALL)
    assert "accumulate(a" not in layer


@pytest.mark.parametrize("inputs", [SCALED, FLAT, FLAT[::2], [*FLAT, *SCALED]], ids=len)
@pytest.mark.parametrize("kind", ["gru", "mlp", "structured mlp"])
def test_raw_samples_are_read(inputs: list[dict[str, Any]], kind: str) -> None:
    structured = "all" if kind.startswith("structured") else "none"
    fields = {"kind": kind.split()[-1], "structured_inputs": structured}
    spec = spec_of(fields, {"kind": "low_rank", "d": 3})
    interface = interface_of(inputs, LOGITS, [17] if inputs[0]["kind"] == "divide" else None)
    network = trained(spec)
    file = export(network, spec, interface=interface)
    verify(file, network, spec, interface=interface)
    found = sizes(spec, interface=interface)
    assert (found.tables_bytes, found.state_bytes) == (file.tables_bytes, file.state_bytes)


def test_every_step_of_a_sequence_is_answered_of_raw_numbers() -> None:
    spec = spec_of({"kind": "lstm"}, output_steps="every")
    answer = {"kind": "numbers", "means": [1e6, 0, 1, 2], "deviations": [3.0, 1, 2, 1e-3]}
    check(spec, builds()[:1], interface=interface_of(SCALED, answer))
    check(spec, builds()[:1], interface=interface_of(FLAT, answer))


def test_numbers_far_from_zero_lose_nothing() -> None:
    """One part of single precision would be off by 0.06 deviations."""
    spec = spec_of({"kind": "rnn", "activation": "identity"}, input_size=1)
    means = [{"kind": "standardise", "means": [1e6 + 0.03], "deviations": [1.0]}]
    interface = interface_of(means, {"kind": "numbers"}, ["steps", 1])
    network = trained(spec)
    raw = (1e6 + torch.randn(8, 5, 1).double()).float()
    exact = ((raw.double() - (1e6 + 0.03)) / 1.0).float()
    file = export(network, spec, interface=interface)
    verify(file, network, spec, interface=interface, samples=raw)
    assert torch.equal(interface.preprocess(raw), exact)


@pytest.mark.parametrize(
    ("kind", "output_steps"),
    [("lstm", "last"), ("lstm", "every"), ("mlp", "last"), ("structured mlp", "last")],
)
def test_padded_samples_are_read_to_their_ends(kind: str, output_steps: str) -> None:
    structured = "all" if kind.startswith("structured") else "none"
    fields = {"kind": kind.split()[-1], "structured_inputs": structured}
    spec = spec_of(fields, {"kind": "low_rank", "d": 3}, output_steps=output_steps)
    interface = interface_of(SCALED, LOGITS).model_copy(update={"padded": True})
    network = trained(spec)
    raw = torch.randn(4, 5, 3) + torch.tensor([1e6, 0.0, -7.0])
    lengths = torch.tensor([3, 5, 1, 4])
    file = export(network, spec, interface=interface)
    verify(file, network, spec, interface=interface, samples=raw, lengths=lengths)


@pytest.mark.parametrize(
    "answer",
    [
        {"kind": "labels", "labels": ["a", "b", "c", "d"]},
        {"kind": "numbers"},
        {"kind": "numbers", "means": [1e6, 0, 1, 2], "deviations": [3.0, 1, 2, 1e-3]},
        LOGITS,
    ],
    ids=str,
)
def test_answers_are_those_of_the_interface(answer: dict[str, Any]) -> None:
    spec = spec_of({"kind": "gru"})
    network = trained(spec)
    interface = interface_of([], answer)
    verify(export(network, spec, interface=interface), network, spec, interface=interface)


def shared(spec: ModelSpec, interface: Interface, folder: Path, name: str) -> ctypes.CDLL:
    write(export(trained(spec), spec, interface=interface, name=name), folder)
    target = folder / f"{name}.so"
    command = [compiler(), *STRICT, "-shared", "-fPIC", f"{name}.c", "-o", str(target)]
    run(command, folder)
    return ctypes.CDLL(str(target))


NAMES = ['"quoted"', "back\\slash", "naïve ☃", "what??!", "new\nline", "7up", "%s", "", "*/ x"]


def test_class_names_are_kept_byte_for_byte(tmp_path: Path) -> None:
    spec = spec_of({"kind": "gru"}, output_size=len(NAMES))
    interface = interface_of([], {"kind": "classes", "classes": NAMES})
    library = shared(spec, interface, tmp_path, "named")
    table = (ctypes.c_char_p * len(NAMES)).in_dll(library, "named_names")
    assert [name.decode() for name in table if name is not None] == NAMES


def test_the_class_is_the_first_of_the_largest(tmp_path: Path) -> None:
    library = shared(spec_of({"kind": "gru"}), interface_of([], LOGITS), tmp_path, "chosen")
    for numbers in ([1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0], [-1.0, -2.0, -0.5, 7.0]):
        found = library.chosen_class((ctypes.c_float * 4)(*numbers))
        assert found == int(torch.tensor(numbers).argmax())


def test_a_label_is_one_whose_probability_is_above_a_half(tmp_path: Path) -> None:
    answer = {"kind": "labels", "labels": ["a", "b", "c", "d"]}
    library = shared(spec_of({"kind": "gru"}), interface_of([], answer), tmp_path, "tagged")
    given = (ctypes.c_float * 4)(0.5, 0.51, 0.0, 1.0)
    assert [library.tagged_label(given, label) for label in range(4)] == [0, 1, 0, 1]


def test_a_sample_in_another_order_is_read_to_its_end_and_no_further(tmp_path: Path) -> None:
    spec = spec_of({"kind": "gru"})
    interface = interface_of(FLAT, LOGITS)
    program = [str(build(export(trained(spec), spec, interface=interface), spec, tmp_path))]
    raw = torch.rand(2, 17)
    whole = answers(program, spec, raw, steps=5)
    assert torch.equal(answers(program, spec, raw, steps=9), whole)
    assert not torch.equal(answers(program, spec, raw, steps=4), whole)


@pytest.mark.parametrize(
    ("inputs", "answer", "words"),
    [
        ([{"kind": "standardise", "means": [0.0], "deviations": [1.0]}], LOGITS, "1 numbers; the"),
        ([{"kind": "fill_missing", "values": [0.0] * 4}], LOGITS, "fill_missing has 4 numbers"),
        ([{"kind": "layout", "steps": 3, "features": 5}], LOGITS, "layout has 5 numbers"),
        ([{"kind": "reorder", "order": [1, 0]}], LOGITS, "2 places; the network reads 15"),
        ([{"kind": "one_hot", "symbols": 7}], LOGITS, "one_hot has 7 numbers; the network has 3"),
        ([{"kind": "one_hot", "symbols": 3}, SCALED[0]], LOGITS, "fill_missing stands behind one"),
        ([SCALED[0], {"kind": "one_hot", "symbols": 3}], LOGITS, "one_hot reads tokens; no step"),
        ([], {"kind": "classes", "classes": ["a"]}, "1 names; the network has 4 outputs"),
        ([], {"kind": "classes", "classes": ["a", "b", "c", "d\0"]}, "none of them 0"),
        ([], {"kind": "labels", "labels": ["a", "b", "c", "é" * 2048]}, "4096 bytes does not fit"),
        ([], {"kind": "numbers", "means": [1.0], "deviations": [1.0]}, "numbers.means has 1"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_model_is_named(
    inputs: list[dict[str, Any]], answer: dict[str, Any], words: str
) -> None:
    spec = spec_of({"kind": "gru"})
    with pytest.raises(ExportError, match=words):
        export(spec.build(seed=0), spec, interface=interface_of(inputs, answer))


def test_tokens_take_no_numbers_steps() -> None:
    spec = spec_of({"kind": "gru"}, vocabulary=5)
    for step in ({"kind": "divide", "by": 2.0}, {"kind": "one_hot", "symbols": 3}):
        interface = interface_of([step], LOGITS, ["steps"])
        with pytest.raises(ExportError, match="reads tokens; input steps for numbers do not fit"):
            export(spec.build(seed=0), spec, interface=interface)


def test_what_nothing_writes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of({"kind": "gru"})
    network = spec.build(seed=0)
    monkeypatch.setattr(interface_module, "INPUTS", {})
    monkeypatch.setattr(interface_module, "RESPONSES", {})
    with pytest.raises(ExportError, match="no C writer for the input step fill_missing"):
        export(network, spec, interface=interface_of(SCALED, LOGITS))
    with pytest.raises(ExportError, match="no C writer for the answer classes"):
        export(network, spec, interface=interface_of([], LOGITS))
