"""Hard limits: what a model has is counted on the model itself."""

from collections.abc import Generator

import pytest

from models.architectures import Architecture, Rnn
from models.model import ModelSpec
from models.parametrizations import Dense, Family
from search.errors import SpecRefused
from search.spaces.limits import excesses
from search.spaces.space import SearchSpace
from search.studies.spec import Limits, StudySpec
from search.studies.submission import checked_space
from tests.conformance.model_specs import LAST, pair_name, pairs, small, spec_of
from tests.service.running import Server
from tests.service.site import Site

SPEC = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {"hidden_size": {"low": 8, "high": 64}},
    "objectives": ["quality", "parameters"],
    "budget": {"trials": 3, "epochs": 1},
    "sampler": {"kind": "random"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    running = Server(tmp_path_factory.mktemp("limits") / "data")
    yield running.start()
    running.close()


def real_bytes(model: ModelSpec) -> int:
    """What the built model's numbers take, counted tensor by tensor."""
    tensors = model.build(seed=0).state_dict().values()
    return sum(len(tensor.contiguous().numpy().tobytes()) for tensor in tensors)


@pytest.mark.parametrize("pair", pairs(), ids=pair_name)
def test_memory_is_what_the_built_model_takes_and_never_less_than_its_parameters(
    pair: tuple[type[Architecture], type[Family]],
) -> None:
    architecture, parametrization = pair
    model = spec_of(small(architecture), parametrization)
    size = real_bytes(model)
    assert size >= 4 * model.parameter_count()
    assert list(excesses(Limits(memory_bytes=size), model)) == []
    ((sentence, excess),) = excesses(Limits(memory_bytes=size - 1), model)
    assert f"{size} bytes" in sentence
    assert f"limit of {size - 1}" in sentence
    assert excess == pytest.approx(size / (size - 1) - 1)


def test_multiply_adds_of_a_dense_network_are_the_sizes_of_its_matrices() -> None:
    model = spec_of(Rnn(hidden_size=10), Dense)
    cost = 10 * (10 + LAST.input_size + LAST.output_size)
    assert list(excesses(Limits(multiply_adds=cost), model)) == []
    ((sentence, excess),) = excesses(Limits(multiply_adds=cost // 2), model)
    assert f"{cost} multiply-adds" in sentence
    assert excess == pytest.approx(cost / (cost // 2) - 1)


def test_every_limit_that_is_passed_is_told() -> None:
    model = spec_of(Rnn(hidden_size=10), Dense)
    limits = Limits(parameters=1, multiply_adds=1, memory_bytes=1)
    sentences = [sentence for sentence, _ in excesses(limits, model)]
    assert [sentence.split()[1] for sentence in sentences] == [
        "parameters",
        "multiply-adds",
        "bytes",
    ]


def test_a_space_that_cannot_keep_a_limit_is_refused_where_that_is_certain() -> None:
    least = SearchSpace(StudySpec.model_validate(SPEC)).parameter_range.low
    enough = {**SPEC, "limits": {"parameters": least, "memory_bytes": 4 * least}}
    checked_space(StudySpec.model_validate(enough))
    short = {**SPEC, "limits": {"parameters": least - 1, "memory_bytes": 4 * least - 1}}
    with pytest.raises(SpecRefused) as refused:
        checked_space(StudySpec.model_validate(short))
    faults = {fault.path: fault.message for fault in refused.value.faults}
    assert list(faults) == ["limits.parameters", "limits.memory_bytes"]
    assert str(least) in faults["limits.parameters"]
    assert str(4 * least) in faults["limits.memory_bytes"]


def test_refused_draws_are_listed_and_cost_no_budget(server: Server) -> None:
    """About half of the space is over the limit; three trials are trained all the same."""
    limit = 4 * 2500
    study = server.wait(server.submit({**SPEC, "limits": {"memory_bytes": limit}, "seed": 2}))
    assert (study["state"], study["state_reason"]) == ("finished", None)
    trials = server.trials(study["id"])
    refused = [trial for trial in trials if trial["outcome"] == "infeasible"]
    trained = [trial for trial in trials if trial["outcome"] == "complete"]
    assert len(trained) == 3
    assert refused
    assert study["progress"]["trials"]["refused"] == len(refused)
    assert all(4 * trial["values"]["parameters"] <= limit for trial in trained)
    for trial in refused:
        size = 4 * trial["values"]["parameters"]
        expected = f"{size} bytes of parameters and buffers are over the limit of {limit}"
        assert trial["reason"] == expected
        assert not trial["attempts"]


def test_a_study_ends_when_its_draws_are_used_up_and_nothing_was_feasible(server: Server) -> None:
    study = server.wait(server.submit({**SPEC, "limits": {"multiply_adds": 1}}))
    assert (study["state"], study["state_reason"]) == ("finished", "nothing_feasible")
    trials = server.trials(study["id"])
    assert [trial["outcome"] for trial in trials] == ["infeasible"] * 60
    assert server.get(f"/v1/studies/{study['id']}/front")["points"] == []


def test_a_limit_that_no_candidate_can_keep_is_a_422(server: Server) -> None:
    answer = server.http.post("/v1/studies", json={**SPEC, "limits": {"memory_bytes": 16}})
    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["errors"]] == ["limits.memory_bytes"]
    assert "16 bytes" in answer.json()["errors"][0]["message"]


def test_agreement_is_for_networks_of_others(site: Site) -> None:
    with pytest.raises(SpecRefused, match=r"limits\.agreement: 0\.9 is for the task model_outputs"):
        site.study(limits={"agreement": 0.9})
