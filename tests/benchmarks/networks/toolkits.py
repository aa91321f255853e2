"""NNCF and Olive, which are no dependencies here: where they are not installed, that is said."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from models.graphs.sessions import Feed
from tests.benchmarks.networks.runtime_quantizers import Maker, raised

_FIRST_OF_4_BITS = 21
"""The opset from which on there are integers of 4 bits."""


def _nncf_quantized(source: Path, target: Path, feeds: Sequence[Feed]) -> None:
    """Weights and what is multiplied with them, in 8 bits."""
    import nncf  # pyright: ignore[reportMissingImports]

    tool: Any = nncf
    model = onnx.load(raised(source, 13))
    samples = [dict(feed) for feed in feeds]
    onnx.save(tool.quantize(model, tool.Dataset(samples), subset_size=len(samples)), target)


def _nncf_weights(mode: str, opset: int, **given: Any) -> Maker:
    """Weights alone; those that are no products stay at 8 bits."""

    def make(source: Path, target: Path, feeds: Sequence[Feed]) -> None:
        del feeds
        import nncf  # pyright: ignore[reportMissingImports]

        tool: Any = nncf
        model = onnx.load(raised(source, opset))
        how = tool.CompressWeightsMode[mode]
        onnx.save(tool.compress_weights(model, mode=how, **given), target)

    return make


def _olive_static(source: Path, target: Path, feeds: Sequence[Feed]) -> None:
    """Onnxruntime's `quantize_static`, as Olive calls it."""
    from olive.data.config import (  # pyright: ignore[reportMissingImports]
        DataComponentConfig,
        DataConfig,
    )
    from olive.passes.onnx.quantization import (  # pyright: ignore[reportMissingImports]
        OnnxStaticQuantization,
    )

    _olive_samples()[:] = feeds
    component: Any = DataComponentConfig
    data: Any = DataConfig
    config = data(
        name="samples",
        load_dataset_config=component(type="held_samples"),
        pre_process_data_config=component(type="skip_pre_process"),
        post_process_data_config=component(type="skip_post_process"),
        dataloader_config=component(type="held_loader"),
    )
    given = {"data_config": config, "quant_format": "QDQ", "per_channel": True}
    _olive_run(OnnxStaticQuantization, given, raised(source, 13), target)


def _olive_blocks(bits: int) -> Maker:
    """Blocks of weights of products alone, rounded to the nearest."""

    def make(source: Path, target: Path, feeds: Sequence[Feed]) -> None:
        del feeds
        from olive.passes.onnx.rtn_quantization import (  # pyright: ignore[reportMissingImports]
            OnnxBlockWiseRtnQuantization,
        )

        _olive_run(OnnxBlockWiseRtnQuantization, {"bits": bits}, source, target)

    return make


@functools.cache
def _olive_samples() -> list[Feed]:
    """What the registered loader of samples gives, which is registered once."""
    from olive.data.registry import Registry  # pyright: ignore[reportMissingImports]

    held: list[Feed] = []
    registry: Any = Registry
    registry.register_dataset("held_samples")(lambda **_: held)
    registry.register_dataloader("held_loader")(lambda _, **__: [(dict(one), None) for one in held])
    return held


def _olive_run(kind: Any, given: Mapping[str, Any], source: Path, target: Path) -> None:
    from olive.model import ONNXModelHandler  # pyright: ignore[reportMissingImports]
    from olive.passes.olive_pass import (  # pyright: ignore[reportMissingImports]
        create_pass_from_dict,
    )

    make: Any = create_pass_from_dict
    handler: Any = ONNXModelHandler
    made = make(kind, dict(given), disable_search=True).run(
        handler(str(source)), str(target.with_name("olive"))
    )
    target.write_bytes(Path(made.model_path).read_bytes())


FROM_TOOLKITS: Mapping[str, Maker] = {
    "NNCF, quantize": _nncf_quantized,
    "NNCF, 8-bit weights": _nncf_weights("INT8_ASYM", 13),
    "NNCF, 4-bit weights": _nncf_weights(
        "INT4_SYM", _FIRST_OF_4_BITS, group_size=-1, all_layers=True
    ),
    "Olive, static": _olive_static,
    "Olive, blocks of 8 bits": _olive_blocks(8),
    "Olive, blocks of 4 bits": _olive_blocks(4),
}
