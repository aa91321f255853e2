"""What servers of other versions answer is read, too."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from search.documents.catalog import Catalog
from search.documents.fronts import HypervolumePoint, Importance
from search.documents.spaces import DryRun
from service.api.audit.schemas import AuditPage
from service.api.datasets.schemas import DatasetDocument, DatasetPage
from service.api.devices.schemas import DEVICES_EXAMPLE, DeviceList
from service.api.fronts.schemas import FrontDocument, PointDocument
from service.api.health.schemas import Ready
from service.api.keys.schemas import KeyPage, NewKeyDocument
from service.api.models.schemas import ModelDetail, ModelPage
from service.api.openapi import EXAMPLES
from service.api.quotas.schemas import QuotaDocument
from service.api.studies.schemas import StudyDocument, StudyPage
from service.api.trials.schemas import (
    EnqueuedDocument,
    EpochDocument,
    MeasureDocument,
    TrialDetail,
    TrialPage,
)
from service.client.reading import read
from service.commands.shown.tables import dry_run_table

_RECORDED = json.loads(EXAMPLES.read_text(encoding="utf-8"))

_READ: dict[str, tuple[Any, Any]] = {
    "devices": (DeviceList, DEVICES_EXAMPLE),
    "dry run": (DryRun, _RECORDED["submit_study"]["200"]),
} | {
    operation: (kind, next(iter(_RECORDED[operation].values())))
    for operation, kind in {
        "create_api_key": NewKeyDocument,
        "describe_dataset": DatasetDocument,
        "describe_model": ModelDetail,
        "enqueue_trial": EnqueuedDocument,
        "get_catalog": Catalog,
        "get_front": FrontDocument,
        "get_hypervolume": list[HypervolumePoint],
        "get_importance": Importance,
        "get_metrics": list[EpochDocument],
        "get_quota": QuotaDocument,
        "get_readiness": Ready,
        "get_study": StudyDocument,
        "get_trial": TrialDetail,
        "list_api_keys": KeyPage,
        "list_audit_events": AuditPage,
        "list_datasets": DatasetPage,
        "list_models": ModelPage,
        "list_studies": StudyPage,
        "list_trials": TrialPage,
        "measure_trial": MeasureDocument,
    }.items()
}

_EVERY = pytest.mark.parametrize("name", _READ)


_MAPPINGS = frozenset(
    {
        "bytes",
        "candidates",
        "combinations",
        "hyperparameters",
        "missing",
        "predicted",
        "reference_point",
        "refusals",
        "samples",
        "test_metrics",
        "totals",
    }
)
"""What holds names that are no fields."""


def _changed(value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    if isinstance(value, dict):
        parts = {n: v if n in _MAPPINGS else _changed(v, change) for n, v in value.items()}
        return change(parts)
    return value


def _dumped(kind: Any, document: Any) -> Any:
    """As JSON, without what was not sent and stands at its default."""
    adapter = TypeAdapter(kind)
    return adapter.dump_python(document, mode="json", by_alias=True, exclude_unset=True)


@_EVERY
def test_what_a_server_answers_is_read_without_a_loss(name: str) -> None:
    kind, answer = _READ[name]
    assert _dumped(kind, read(kind, json.dumps(answer))) == answer


@_EVERY
def test_fields_that_a_newer_server_adds_are_left_out(name: str) -> None:
    kind, answer = _READ[name]
    added = {"added_later": {"limit": None, "used": 1, "unit": "bytes"}}
    newer = _changed(answer, lambda node: {**node, **added})
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(newer)
    found, expected = read(kind, json.dumps(newer)), read(kind, json.dumps(answer))
    assert isinstance(found, type(expected))


def _values(document: Any) -> Iterator[Any]:
    yield document
    for part in document.values() if isinstance(document, dict) else ():
        yield from _values(part)
    for part in document if isinstance(document, list) else ():
        yield from _values(part)


def test_words_that_a_newer_server_has_are_taken_as_they_are() -> None:
    answer = _RECORDED["get_trial"]["200"]
    answer = {**answer, "outcome": "frozen", "origin": "oracle"}
    trial = read(TrialDetail, json.dumps(answer))
    assert (trial.outcome, trial.origin, trial.ended) == ("frozen", "oracle", False)
    assert "frozen" in list(_values(trial.model_dump(mode="json")))


def test_fields_that_an_older_server_does_not_send_have_the_value_that_they_stood_for() -> None:
    answer = _RECORDED["get_front"]["200"]
    later = {"seeds", "on_front_by_mean", "form", "slower", "continues", "throughput"}
    older = _changed(answer, lambda node: {n: v for n, v in node.items() if n not in later})
    for point in older["points"]:
        # Under this name a front had no field then, but its points' values have.
        point["values"] = answer["points"][0]["values"]
    front = read(FrontDocument, json.dumps(older))
    point = front.ranked()[0]
    assert (point.seeds, point.on_front_by_mean, point.slower) == (1, True, False)
    assert (point.form, point.continues, front.throughput) == ("structured", None, "search")


def test_a_dry_run_of_a_server_that_predicts_no_memory_is_read() -> None:
    answer = _RECORDED["submit_study"]["200"]
    found = read(DryRun, json.dumps({n: v for n, v in answer.items() if n != "memory"}))
    assert found.memory is None
    assert dry_run_table(found).caption is None


def test_a_dry_run_says_how_each_study_of_the_warm_start_is_used() -> None:
    sources = [
        {"study": "0a1b2c3d4e5f", "by": "results", "trials": 12},
        {"study": "f5e4d3c2b1a0", "by": "ranks", "trials": 40},
    ]
    answer = {**_RECORDED["submit_study"]["200"], "warm_start": sources, "memory": None}
    caption = str(dry_run_table(read(DryRun, json.dumps(answer))).caption)
    assert caption.splitlines() == [
        "warm start from study 0a1b2c3d4e5f, results of 12 trials",
        "warm start from study f5e4d3c2b1a0, another task: ranks of 40 trials",
    ]


def test_links_and_values_are_read_by_name_as_they_are_written_in_json() -> None:
    answer = _RECORDED["get_front"]["200"]["points"][0]
    point = read(PointDocument, json.dumps(answer))
    for found, given in ((point.links, answer["links"]), (point.values, answer["values"])):
        assert dict(found) == dict(found.items()) == given
        assert [found[name] for name in given] == [*given.values()]
    assert "report" in point.links
    assert "film" not in point.links
    assert (point.links.get("film"), point.links.get("film", "none")) == (None, "none")
    with pytest.raises(KeyError):
        point.links["film"]


def test_what_is_no_answer_of_ours_is_refused() -> None:
    with pytest.raises(ValidationError):
        read(StudyDocument, '{"id": 7}')
    with pytest.raises(ValidationError):
        read(StudyDocument, "<html>")
