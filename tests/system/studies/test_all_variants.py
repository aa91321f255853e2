"""Every architecture with every parametrization in one study, on a real server."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.service.running import Server

TASK = {"kind": "digits", "train_samples": 200}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("all-variants") / "data")
    yield running.start()
    running.close()


def small_study(
    architectures: Iterable[str], parametrizations: Iterable[str], *, trials: int, seed: int
) -> dict[str, Any]:
    """Small models of one epoch, so that a trial takes a moment."""
    return {
        "name": "every variant",
        "task": TASK,
        "architectures": list(dict.fromkeys(architectures)),
        "parametrizations": list(dict.fromkeys(parametrizations)),
        "space": {"hidden_size": {"low": 8, "high": 16}},
        "budget": {"trials": trials, "epochs": 1},
        "objectives": ["quality", "parameters"],
        "sampler": {"kind": "random"},
        "seed": seed,
    }


def trained(server: Server, study: dict[str, Any]) -> set[tuple[str, str]]:
    """The pairs of a finished study that were trained to the end; no trial may have failed."""
    assert study["state"] == "finished", study
    assert study["state_reason"] is None
    pairs: set[tuple[str, str]] = set()
    for trial in server.trials(study["id"]):
        assert trial["outcome"] in ("complete", "infeasible"), trial
        if trial["outcome"] == "infeasible":
            assert trial["reason"]
            continue
        assert 0 <= trial["values"]["quality"] <= 1
        pairs.add((trial["architecture"], trial["parametrization"]))
    return pairs


def pairs_of(catalog: dict[str, Any]) -> set[tuple[str, str]]:
    return {(a, p) for a, kinds in catalog["combinations"].items() for p in kinds}


def kinds_of(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["kind"] for entry in entries]


def test_a_study_of_every_variant_runs_to_a_front(server: Server) -> None:
    catalog = server.get("/v1/catalog")
    architectures = kinds_of(catalog["architectures"])
    spec = small_study(architectures, kinds_of(catalog["parametrizations"]), trials=60, seed=1)
    study = server.wait(server.submit(spec), seconds=280)
    pairs = trained(server, study)
    assert pairs <= pairs_of(catalog)
    assert {architecture for architecture, _ in pairs} == set(architectures)
    front = server.get(f"/v1/studies/{study['id']}/front")["points"]
    assert front
    for point in front:
        assert point["values"]["throughput"] > 0
        report = server.get(f"/v1/studies/{study['id']}/trials/{point['trial']}/report")
        assert report["totals"]["parameters"] == point["values"]["parameters"]


@pytest.mark.slow
def test_every_pair_of_the_catalog_is_trained(server: Server) -> None:
    """Studies of what is left, until each pair was drawn."""
    left = pairs_of(server.get("/v1/catalog"))
    for seed in range(12):
        names = [[pair[place] for pair in sorted(left)] for place in (0, 1)]
        spec = small_study(*names, trials=max(8, 2 * len(left)), seed=seed)
        left -= trained(server, server.wait(server.submit(spec), seconds=280))
        if not left:
            break
    assert not left


def test_a_study_begins_with_its_presets(server: Server) -> None:
    presets = ["svd-rnn-32-16", "rnn-32", "svd-mlp-32-40"]
    spec = {
        "task": TASK,
        "architectures": ["rnn"],
        "parametrizations": ["dense"],
        "presets": presets,
        "space": {"hidden_size": {"low": 8, "high": 16}},
        "budget": {"trials": 4, "epochs": 1},
        "sampler": {"kind": "random"},
    }
    study = server.wait(server.submit(spec))
    assert study["state"] == "finished", study
    trials = server.trials(study["id"])
    entries = {entry["name"]: entry for entry in server.get("/v1/catalog")["presets"]}
    assert [trial["outcome"] for trial in trials] == ["complete"] * 4
    for trial, name in zip(trials, presets, strict=False):
        for part in ("architecture", "parametrization"):
            document = dict(entries[name][part])
            assert trial[part] == document.pop("kind")
            for field, value in document.items():
                assert trial["hyperparameters"][f"{trial[part]}.{field}"] == value
        for field, value in entries[name]["training"].items():
            assert trial["hyperparameters"][f"training.{field}"] == value
        assert trial["values"]["throughput"] > 0
    assert 8 <= trials[3]["hyperparameters"]["rnn.hidden_size"] <= 16
