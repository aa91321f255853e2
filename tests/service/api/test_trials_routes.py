import csv
import io
import re

import pytest
from starlette.testclient import TestClient

from models.checkpoint import load
from service.api.fronts import csv_tables
from storage.records import TrialState
from tests.service.site import Site, sha256

PROBLEM = "application/problem+json"


def test_paging_visits_every_trial_once_by_number(client: TestClient, site: Site) -> None:
    study = site.study()
    for number in range(5):
        site.trial(study, number, state=TrialState.QUEUED)
    path = f"/v1/studies/{study.id}/trials"
    seen: list[int] = []
    cursor: str | None = None
    for _ in range(10):
        query = {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
        page = client.get(path, params=query).json()
        seen += [trial["number"] for trial in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [0, 1, 2, 3, 4]


def test_trials_can_be_listed_by_outcome_with_their_reasons(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.5)
    site.trial(study, 1, state=TrialState.STOPPED, reason="budget")
    found = client.get(f"/v1/studies/{study.id}/trials?outcome=stopped").json()["items"]
    assert [(trial["number"], trial["reason"]) for trial in found] == [(1, "budget")]
    assert found[0]["links"]["checkpoint"] is None
    assert client.get(f"/v1/studies/{study.id}/trials?outcome=good").status_code == 422


def test_all_trials_come_as_csv(
    client: TestClient, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two pages and a half, and a column that only trials of the last have.
    monkeypatch.setattr(csv_tables, "_PAGE", 2)
    study = site.study()
    for number in range(4):
        site.trial(study, number, quality=number / 10)
    site.trial(study, 4, state=TrialState.STOPPED, reason='dominated, by "2"')
    answer = client.get(f"/v1/studies/{study.id}/trials?format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    listed = client.get(f"/v1/studies/{study.id}/trials").json()["items"]
    assert [int(row["number"]) for row in rows] == [trial["number"] for trial in listed]
    assert rows[4]["reason"] == 'dominated, by "2"'
    for row, trial in zip(rows, listed, strict=True):
        assert row["outcome"] == trial["outcome"]
        assert row["parameters"] == str(trial["values"]["parameters"])
        assert {name: row[name] for name in trial["hyperparameters"]} == {
            name: str(value) for name, value in trial["hyperparameters"].items()
        }
    stopped = client.get(f"/v1/studies/{study.id}/trials?format=csv&outcome=stopped").text
    assert [row["number"] for row in csv.DictReader(io.StringIO(stopped))] == ["4"]
    assert client.get("/v1/studies/unknown/trials?format=csv").status_code == 404


def test_a_trial_tells_its_values_attempts_and_measurement(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.9, test_quality=0.8, throughput=120.0, ratio=1.5)
    site.lease(study, 0, attempt=1)
    site.lease(study, 0, attempt=2)
    trial = client.get(f"/v1/studies/{study.id}/trials/0").json()
    assert trial["outcome"] == "complete"
    assert trial["values"]["quality"] == 0.9
    assert trial["test_quality"] == 0.8
    assert trial["throughput_ratio"] == 1.5
    assert trial["throughput"]["device"] == "a test's CPU"
    assert trial["throughput"]["record"]["batch_size"] == 64
    assert [attempt["number"] for attempt in trial["attempts"]] == [1, 2]
    assert trial["spec"]["model"]["architecture"]["kind"] == "rnn"
    listed = client.get(f"/v1/studies/{study.id}/trials").json()["items"][0]
    assert listed.items() <= trial.items()


def test_nothing_of_a_lease_token_is_ever_told(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    told = client.get(f"/v1/studies/{study.id}/trials/0").text
    assert lease.token not in told
    assert "token" not in told


def test_a_curve_is_told_by_epoch(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0)
    for epoch in (2, 1):
        site.epoch(study, 0, epoch)
    curve = client.get(f"/v1/studies/{study.id}/trials/0/metrics").json()
    assert [row["epoch"] for row in curve] == [1, 2]
    assert curve[1]["train_loss"] == 0.5


def test_a_checkpoint_is_whole_and_builds_the_trials_model(client: TestClient, site: Site) -> None:
    study = site.study()
    trial = site.trial(study, 0)
    answer = client.get(f"/v1/studies/{study.id}/trials/0/checkpoint")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["etag"] == f'"{sha256(answer.content)}"'
    assert int(answer.headers["content-length"]) == len(answer.content)
    module = load(answer.content).module
    assert sum(p.numel() for p in module.parameters()) == trial.parameters


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [("0-0", 0, 0), ("10-19", 10, 19), ("5-", 5, None), ("-7", -7, None), ("0-99999999", 0, None)],
)
def test_a_range_of_a_checkpoint_is_those_bytes(
    client: TestClient, site: Site, asked: str, first: int, last: int | None
) -> None:
    study = site.study()
    site.trial(study, 0)
    path = f"/v1/studies/{study.id}/trials/0/checkpoint"
    whole = client.get(path).content
    part = client.get(path, headers={"Range": f"bytes={asked}"})
    assert part.status_code == 206
    assert part.content == whole[first : None if last is None else last + 1]
    start = first if first >= 0 else len(whole) + first
    end = start + len(part.content) - 1
    assert part.headers["content-range"] == f"bytes {start}-{end}/{len(whole)}"


def test_a_download_goes_on_only_with_the_same_bytes(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0)
    path = f"/v1/studies/{study.id}/trials/0/checkpoint"
    whole = client.get(path)
    tag = whole.headers["etag"]
    same = client.get(path, headers={"Range": "bytes=3-", "If-Range": tag})
    assert (same.status_code, same.content) == (206, whole.content[3:])
    other = client.get(path, headers={"Range": "bytes=3-", "If-Range": '"other"'})
    assert (other.status_code, other.content) == (200, whole.content)


def test_an_unchanged_checkpoint_is_not_sent_again(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0)
    path = f"/v1/studies/{study.id}/trials/0/checkpoint"
    tag = client.get(path).headers["etag"]
    for header in (tag, f'"x", W/{tag}', "*"):
        answer = client.get(path, headers={"If-None-Match": header})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == tag
    assert client.get(path, headers={"If-None-Match": '"x"'}).status_code == 200


def test_a_range_behind_the_end_is_a_416_that_tells_the_size(
    client: TestClient, site: Site
) -> None:
    study = site.study()
    site.trial(study, 0)
    path = f"/v1/studies/{study.id}/trials/0/checkpoint"
    size = len(client.get(path).content)
    for asked in (f"{size}-", "-0"):
        answer = client.get(path, headers={"Range": f"bytes={asked}"})
        assert answer.status_code == 416
        assert answer.headers["content-type"] == PROBLEM
        assert answer.headers["content-range"] == f"bytes */{size}"


@pytest.mark.parametrize("asked", ["bytes=5-2", "bytes=0-1,4-5", "lines=1-2", "bytes=-", "5-9"])
def test_a_range_that_is_not_one_range_of_bytes_is_answered_with_the_whole(
    client: TestClient, site: Site, asked: str
) -> None:
    study = site.study()
    site.trial(study, 0)
    path = f"/v1/studies/{study.id}/trials/0/checkpoint"
    answer = client.get(path, headers={"Range": asked})
    assert (answer.status_code, answer.content) == (200, client.get(path).content)


def test_head_answers_as_get_without_the_bytes(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0)
    path = f"/v1/studies/{study.id}/trials/0/checkpoint"
    named = {"X-Request-ID": "the-same"}
    head, get = client.head(path, headers=named), client.get(path, headers=named)
    assert (head.status_code, head.content) == (200, b"")
    assert dict(head.headers) == dict(get.headers)


def test_a_report_says_the_same_as_json_csv_and_html(client: TestClient, site: Site) -> None:
    study = site.study()
    trial = site.trial(study, 1)
    path = f"/v1/studies/{study.id}/trials/1/report"
    report = client.get(path).json()
    assert report["totals"]["parameters"] == trial.parameters
    assert report["dense_twin"]["parameters"] == trial.dense_parameters
    table = list(csv.DictReader(io.StringIO(client.get(f"{path}?format=csv").text)))
    tensors = [row for row in table if row["level"] == "tensor"]
    assert sum(int(row["parameters"]) for row in tensors) == trial.parameters
    page = client.get(f"{path}?format=html")
    assert page.headers["content-type"].startswith("text/html")
    assert f"{trial.parameters:,}" in page.text
    assert all(row["name"] in page.text for row in tensors)


def test_a_report_page_stands_alone(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0)
    page = client.get(f"/v1/studies/{study.id}/trials/0/report?format=html")
    assert not re.search(r"(src|href|url)\s*[=(]|<script|<link|@import", page.text)
    assert "default-src 'none'" in page.headers["content-security-policy"]


@pytest.mark.parametrize("part", ["checkpoint", "report", "log", "onnx"])
def test_what_a_trial_has_not_got_is_a_404(client: TestClient, site: Site, part: str) -> None:
    study = site.study()
    site.trial(study, 0, state=TrialState.QUEUED)
    answer = client.get(f"/v1/studies/{study.id}/trials/0/{part}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == PROBLEM
    assert part in answer.json()["detail"]


def test_the_log_is_that_of_the_last_attempt(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, state=TrialState.RUNNING)
    site.settings.logs_dir.mkdir()
    for number in (1, 2):
        lease = site.lease(study, 0, attempt=number)
        (site.settings.logs_dir / f"{lease.attempt}.log").write_text(f"attempt {number}\n")
    answer = client.get(f"/v1/studies/{study.id}/trials/0/log")
    assert answer.text == "attempt 2\n"
    assert (answer.headers["Log-Attempt"], answer.headers["Log-Start"]) == ("2", "0")
    assert answer.headers["content-type"].startswith("text/plain")
    rest = client.get(f"/v1/studies/{study.id}/trials/0/log", headers={"Range": "bytes=8-"})
    assert (rest.status_code, rest.text) == (206, "2\n")
    assert (rest.headers["Log-Attempt"], rest.headers["Log-Start"]) == ("2", "8")
    over = client.get(f"/v1/studies/{study.id}/trials/0/log", headers={"Range": "bytes=10-"})
    assert over.status_code == 416


@pytest.mark.parametrize(
    "path",
    [
        "/v1/studies/none",
        "/v1/studies/none/trials",
        "/v1/studies/none/front",
        "/v1/studies/none/events",
        "/v1/studies/none/trials/0",
        "/v1/studies/none/trials/0/metrics",
        "/v1/studies/none/trials/0/checkpoint",
        "/v1/studies/..%2f..%2fetc%2fpasswd/trials/0/log",
        "/v1/nothing",
        "/nothing",
        "/assets/nothing.css",
        "/assets/..%2fpages.py",
    ],
)
def test_what_is_not_there_is_a_404_problem(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == PROBLEM
    assert answer.json()["status"] == 404
    assert answer.json()["detail"]


@pytest.mark.parametrize("number", ["-1", "x", "1.5", "9" * 30])
def test_a_number_that_no_trial_has_is_refused(client: TestClient, site: Site, number: str) -> None:
    study = site.study()
    answer = client.get(f"/v1/studies/{study.id}/trials/{number}")
    assert answer.status_code in (404, 422)
    assert answer.headers["content-type"] == PROBLEM
