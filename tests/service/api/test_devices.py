"""Devices are those of living coordinators, with what runs on them."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from search.dispatch.coordinator_report import CoordinatorFigures
from search.studies.spec import StudySpec
from search.studies.submission import submit
from service.api.devices.schemas import DEVICES_EXAMPLE, DeviceList
from service.data_dir.machine_name import coordinator_name, machine_of
from storage.fleet.coordinators import CoordinatorRecord, Coordinators, SlotRecord
from storage.records import TrialState
from storage.repositories.studies import Studies
from tests.service.site import SMALL_SPEC, Site, now

CPU = ("cpu", "a CPU")
GPU = ("cuda:GPU-1", "a GPU")


def coordinator(site: Site, owner: str, **given: Any) -> None:
    record = CoordinatorRecord(
        **{
            "owner": owner,
            "slots": (
                SlotRecord("gpu-0-0", *GPU, 0.5),
                SlotRecord("gpu-0-1", *GPU, 0.5),
                SlotRecord("cpu-0", *CPU, 1.0),
            ),
            "measuring_slots": (
                SlotRecord("lane cuda:GPU-1", *GPU, 0.0),
                SlotRecord("lane cpu", *CPU, 0.0),
            ),
            "figures": CoordinatorFigures().model_dump(mode="json"),
            "started_at": now(),
            "seen_at": now(),
            **given,
        }
    )
    with site.database.write() as session:
        Coordinators(session).report(record)


def items(client: TestClient) -> list[dict[str, Any]]:
    answer = client.get("/v1/devices")
    assert answer.status_code == 200
    return answer.json()["items"]


def test_nobody_works_and_there_is_no_device(client: TestClient, site: Site) -> None:
    coordinator(site, "gone:/data", seen_at=now() - timedelta(hours=1))
    assert items(client) == []


def test_slots_stand_with_their_device_and_tell_what_runs(client: TestClient, site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 3, state=TrialState.RUNNING)
    with site.database.write() as session:
        Studies(session).claim(
            study.id, owner="ada:/data", now=now(), until=now() + timedelta(hours=1)
        )
    site.lease(study, 3)
    coordinator(site, "ada:/data")
    coordinator(site, "bob:/data")
    found = items(client)
    assert [(item["machine"], item["device"], item["model"]) for item in found] == [
        ("ada", *GPU),
        ("ada", *CPU),
        ("bob", *GPU),
        ("bob", *CPU),
    ]
    gpu, cpu, _, bobs = found
    assert [(slot["name"], slot["share"], slot["busy"]) for slot in gpu["slots"]] == [
        ("gpu-0-0", 0.5, False),
        ("gpu-0-1", 0.5, False),
    ]
    (slot,) = cpu["slots"]
    assert slot["busy"]
    assert slot["attempt"].pop("since")
    assert slot["attempt"] == {"study": study.id, "trial": 3, "kind": "train"}
    # A slot of the same name on another machine is another slot.
    assert [(slot["busy"], slot["attempt"]) for slot in bobs["slots"]] == [(False, None)]
    assert cpu["lane"] == {"state": "free", "study": None, "trial": None}


def test_what_runs_for_another_tenant_is_busy_and_has_no_name(
    client: TestClient, site: Site
) -> None:
    study = submit(
        site.database.of("acme"), StudySpec.model_validate(SMALL_SPEC), sources=site.sources
    )
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    with site.database.write() as session:
        until = now() + timedelta(hours=1)
        Studies(session).claim(study.id, owner="ada:/data", now=now(), until=until)
    site.lease(study, 0)
    coordinator(site, "ada:/data")
    _, cpu = items(client)
    assert [(slot["busy"], slot["attempt"]) for slot in cpu["slots"]] == [(True, None)]
    assert study.id not in client.get("/v1/devices").text


def test_the_example_is_such_a_list(client: TestClient) -> None:
    assert DeviceList.model_validate(DEVICES_EXAMPLE).model_dump(mode="json") == DEVICES_EXAMPLE
    operation = client.get("/openapi.json").json()["paths"]["/v1/devices"]["get"]
    shown = operation["responses"]["200"]["content"]["application/json"]
    # The framework leaves nulls out of its document.
    assert DeviceList.model_validate(shown["example"]) == DeviceList.model_validate(DEVICES_EXAMPLE)
    assert shown["schema"] == {"$ref": "#/components/schemas/DeviceList"}


def test_a_coordinator_is_named_by_machine_and_folder_and_shown_by_machine(tmp_path: Path) -> None:
    name = coordinator_name(tmp_path)
    assert name.endswith(f":{tmp_path}")
    assert machine_of(name)
    assert str(tmp_path) not in machine_of(name)
