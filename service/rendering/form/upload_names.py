"""What a picker shows of uploads: name, date and shape."""

from typing import Any, cast

from storage.records import DatasetRecord, UploadedModelRecord


def named_data(dataset: DatasetRecord) -> str:
    """A data set, as `rows.csv, 2026-03-01, classification, 60 samples of 1 × 3`."""
    facts = cast(dict[str, Any], dataset.facts)
    samples = facts["samples"]
    if "arrays" in facts:
        shape = f"{samples:,} samples of {len(facts['arrays'])} arrays"
    else:
        steps = f"{facts['steps']:,} × {facts['features']:,}"
        shape = f"{facts['problem']}, {sum(samples.values()):,} samples of {steps}"
    return f"{dataset.name}, {dataset.created_at:%Y-%m-%d}, {shape}"


def named_model(model: UploadedModelRecord) -> str:
    """A model, as `mine, 2026-03-01, gru 64, 10 to 3, 12,345 parameters`."""
    spec = cast(dict[str, Any], model.spec)
    parts = [model.name, f"{model.created_at:%Y-%m-%d}"]
    if "architecture" in spec:
        architecture, signature = spec["architecture"], spec["signature"]
        parts.append(f"{architecture['kind']} {architecture['hidden_size']}")
        parts.append(f"{signature['input_size']} to {signature['output_size']}")
    return ", ".join([*parts, f"{model.parameters:,} parameters"])
