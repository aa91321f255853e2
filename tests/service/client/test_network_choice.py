"""Which file of a network's front is taken, and what is read of its report."""

from typing import Any

import pytest

from search.graphs.metrics import Agreement, Kl
from search.graphs.network_report import LayerReport, MetricReport, NetworkReport, PartReport
from service.api.fronts.schemas import FrontDocument
from service.client.networks import (
    ChosenFile,
    LayerOfFile,
    MetricOfFile,
    PartOfFile,
    ReportOfFile,
    chosen_file,
)
from service.client.reading import read

_AXES: dict[str, dict[str, str]] = {
    "quality": {"name": "quality", "metric": "kl", "direction": "minimize", "unit": "nats"},
    "bytes": {"name": "bytes", "metric": "bytes", "direction": "minimize", "unit": "bytes"},
    "latency": {"name": "latency", "metric": "latency", "direction": "minimize", "unit": "s"},
}
# By trial: what is lost, bytes, seconds of a call, decisions that are kept.
_FILES: dict[int, tuple[float, int, float, float]] = {
    0: (0.0, 40_000, 0.004, 1.0),
    1: (0.001, 10_000, 0.003, 0.999),
    2: (0.01, 5_000, 0.0035, 0.992),
    3: (0.1, 2_000, 0.001, 0.95),
}


def front(*trials: int, axes: tuple[str, ...] = ("quality", "bytes")) -> FrontDocument:
    points = [_point(number) for number in trials]
    original = {
        "model": "m",
        "trial": 0,
        "values": _point(0)["values"],
        "test_quality": 0.0,
        "on_front": 0 in trials,
    }
    return FrontDocument.model_validate(
        {
            "objectives": [_AXES[axis] for axis in axes],
            "device": "cpu",
            "hypervolume": None,
            "reference_point": None,
            "throughput": "search",
            "unconfirmed": None,
            "original": original,
            "points": points,
        }
    )


def _point(number: int) -> dict[str, Any]:
    lost, size, latency, _ = _FILES[number]
    return {
        "trial": number,
        "values": {
            "quality": lost,
            "parameters": 10_000,
            "throughput": None,
            "bytes": size,
            "latency": latency,
        },
        "quality_mean": lost,
        "quality_interval": None,
        "seeds": 1,
        "on_front_by_mean": True,
        "test_quality": lost,
        "throughput_ratio": None,
        "runtime": None,
        "continues": None,
        "latency_p50": latency,
        "latency_p99": latency,
        "architecture": "network",
        "parametrization": "bits",
        "hyperparameters": {},
        "form": "structured",
        "file_form": None,
        "slower": False,
        "links": {"checkpoint": None, "report": "r", "onnx": "o", "dense": None},
    }


def report(number: int, *, decides: bool = True) -> ReportOfFile:
    lost, size, _, kept = _FILES[number]
    metrics = [MetricReport(metric=Kl(), value=lost, original=0, low=None, high=None)]
    if decides:
        agreement = {"value": kept, "original": 1.0, "low": kept - 0.02, "high": 1.0}
        metrics.append(MetricReport(metric=Agreement(), **agreement))
    part = PartReport(samples=80, metrics=tuple(metrics), worst=(7, 1))
    made = NetworkReport(
        layers=(),
        bytes_before=_FILES[0][1],
        bytes_after=size,
        bytes_predicted=size,
        multiply_adds_before=100,
        multiply_adds_after=100,
        predicted_loss=lost,
        choosing=part,
        test=part,
        node_types={"MatMul": 3},
        warnings=("valid for data like the data given",),
    )
    # As it comes from a server.
    return read(ReportOfFile, made.model_dump_json())


def chosen(
    found: FrontDocument,
    *limited_by: str,
    agreement: float | None = None,
    decides: bool = True,
) -> ChosenFile | None:
    reports = {point.trial: report(point.trial, decides=decides) for point in found.points}
    return chosen_file(found, reports, limited_by={*limited_by}, agreement=agreement)


def told(found: ChosenFile | None) -> tuple[int, str]:
    assert found is not None
    return found.trial, found.rule


def test_without_limits_it_is_the_smallest_that_keeps_99_percent() -> None:
    rule = "the smallest that keeps 99 % of the original's decisions"
    assert told(chosen(front(0, 1, 2, 3))) == (2, rule)


def test_where_none_keeps_99_percent_it_is_the_one_that_loses_least() -> None:
    assert told(chosen(front(0, 3))) == (3, "the lowest kl; none keeps 99 %")


def test_where_nothing_is_decided_it_is_the_one_that_loses_least() -> None:
    assert told(chosen(front(0, 1, 2, 3), decides=False)) == (1, "the lowest kl")


def test_a_limit_on_agreement_takes_the_smallest_that_keeps_it() -> None:
    rule = "the smallest that keeps 94 % of the original's decisions"
    assert told(chosen(front(0, 1, 2, 3), "agreement", agreement=0.94)) == (3, rule)
    both = chosen(front(0, 1, 2, 3), "agreement", "bytes", agreement=0.94)
    assert told(both) == (3, rule)


def test_a_limit_on_bytes_takes_the_one_that_loses_least_within_it() -> None:
    assert told(chosen(front(2, 3), "bytes")) == (2, "the lowest kl within the limits")


def test_the_second_objective_says_what_small_means() -> None:
    found = front(0, 1, 2, 3, axes=("quality", "latency", "bytes"))
    rule = "the fastest that keeps 99 % of the original's decisions"
    assert told(chosen(found)) == (1, rule)


@pytest.mark.parametrize("trials", [(), (0,)], ids=["nothing", "the original"])
def test_the_original_is_no_smaller_file(trials: tuple[int, ...]) -> None:
    assert chosen(front(*trials)) is None


def test_a_report_is_read_as_the_server_has_it() -> None:
    kept = report(2).agreement
    assert kept is not None
    assert (kept.value, kept.low, kept.high) == (0.992, 0.972, 1.0)
    assert report(2).test.metric("cosine") is None


def test_every_field_that_is_read_is_one_that_is_written() -> None:
    for reads, writes in (
        (ReportOfFile, NetworkReport),
        (PartOfFile, PartReport),
        (MetricOfFile, MetricReport),
        (LayerOfFile, LayerReport),
    ):
        assert {*reads.model_fields} <= {*writes.model_fields}
