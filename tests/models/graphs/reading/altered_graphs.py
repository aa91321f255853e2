"""Models in which single fields were changed: what bytes at random seldom bring about."""

from collections.abc import Iterator
from typing import Any

import onnx
from hypothesis import strategies as st
from onnx import TensorProto

INTEGERS = st.one_of(
    st.integers(-2, 40), st.sampled_from([2**31 - 1, 2**31, -(2**31), 2**62, -(2**63)])
)
TEXTS = st.sampled_from(
    ["", "x", "y", "W", "h", "out", "sr", "If", "Loop", "Constant", "Cast", "Dropout", "Relu",
     "then_branch", "value", "to", "mine", "ai.onnx"]
)  # fmt: skip


def messages(message: Any) -> Iterator[Any]:
    """A message and all within it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                yield from messages(part)


@st.composite
def altered(draw: st.DrawFn, model: onnx.ModelProto) -> bytes:
    """The model's bytes after one to four fields were changed."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for _ in range(draw(st.integers(1, 4))):
        message = draw(st.sampled_from(list(messages(made))))
        field = draw(st.sampled_from(list(message.DESCRIPTOR.fields)))
        if field.is_repeated:
            _alter_list(draw, message, field)
        elif field.message_type is not None:
            if draw(st.booleans()):
                message.ClearField(field.name)
            else:
                getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, draw(_scalars(field)))
    return made.SerializeToString()


def _alter_list(draw: st.DrawFn, message: Any, field: Any) -> None:
    held = getattr(message, field.name)
    if field.message_type is not None:
        if held and draw(st.booleans()):
            del held[draw(st.integers(0, len(held) - 1))]
        elif held:
            held.add().CopyFrom(draw(st.sampled_from(list(held))))
        else:
            held.add()
    elif held and draw(st.booleans()):
        place = draw(st.integers(0, len(held) - 1))
        held[place] = draw(_scalars(field))
    else:
        held.append(draw(_scalars(field)))


def _scalars(field: Any) -> st.SearchStrategy[Any]:
    if field.cpp_type == field.CPPTYPE_STRING:
        is_text = field.type == field.TYPE_STRING
        return TEXTS if is_text else st.binary(max_size=8)
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return st.floats(width=32)
    if field.cpp_type == field.CPPTYPE_ENUM:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.name in ("data_type", "elem_type"):
        return st.sampled_from(list(TensorProto.DataType.values()))
    if field.cpp_type == field.CPPTYPE_UINT64:
        return st.integers(0, 2**64 - 1)
    if field.cpp_type == field.CPPTYPE_INT32:
        return st.integers(-(2**31), 2**31 - 1)
    return INTEGERS
