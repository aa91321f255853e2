"""The report of a study: one file that needs nothing else."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import unescape

import pytest
from starlette.testclient import TestClient

from storage.records import TrialState
from tests.service.pages.test_pages import Elements
from tests.service.site import Site

_LOADING = {"src", "srcset", "href", "data", "action", "poster", "background", "xlink:href"}


def assert_self_contained(page: str) -> None:
    """Nothing in the file leads out of it, and nothing runs but what draws its figures."""
    page, *scripts = re.split(r"(?s)<script[^>]*>.*?</script>", page)
    page += "".join(scripts)
    elements = Elements(page)
    for tag, attributes in elements.found:
        assert tag not in ("script", "link", "iframe", "object", "embed", "img", "base"), tag
        assert not _LOADING & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], tag
    style = page.split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    outside = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://", outside)


def test_a_report_is_one_file_that_tells_all(client: TestClient, site: Site) -> None:
    study = site.study(name="small <b>digits</b>")
    site.run(study)
    site.trial(study, 0, quality=0.9, test_quality=0.88, throughput=100.0, ratio=0.8)
    site.trial(study, 1, quality=0.95, throughput=50.0, ratio=1.6, parameters=9)
    site.trial(study, 2, state=TrialState.STOPPED, reason="pareto_gain at epoch 1: too little")
    site.trial(study, 3, state=TrialState.INFEASIBLE, reason="parameters: 900 is over 500")
    site.trial(study, 4, state=TrialState.FAILED, reason="<script>alert(1)</script>")
    answer = client.get(f"/v1/studies/{study.id}/report")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-disposition"] == f'inline; filename="study-{study.id}.html"'
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    scripts = re.findall(r"(?s)<script>(.*?)</script>", answer.text)
    hashes = (b64encode(sha256(one.encode()).digest()).decode() for one in scripts)
    assert policy.split("script-src ")[1].split(";")[0].split() == [
        f"'sha256-{one}'" for one in hashes
    ]
    assert policy.endswith("sandbox allow-scripts allow-downloads")
    assert_self_contained(answer.text)
    text = " ".join(Elements(answer.text).text)
    for said in (
        "small <b>digits</b>",
        "Best accuracy: trial 1",
        "Best throughput: trial 0",
        "pareto_gain at epoch 1: too little",
        "parameters: 900 is over 500",
        "<script>alert(1)</script>",
        "reflectory submit spec.json",
        "a test's CPU",
        "torch",
    ):
        assert said in text, said
    # A plot for each pair of the three objectives.
    assert [title.split(" over ") for title in titles(answer.text) if " over " in title] == [
        ["accuracy", "parameters"],
        ["accuracy", "throughput"],
        ["throughput", "parameters"],
    ]
    assert "Smallest within noise of the best: trial 1, 9 parameters" in text


def titles(page: str) -> list[str]:
    """What the figures of a report are called."""
    return re.findall(r'<figure class="figure">\s*<h3>(.*?)</h3>', page)


def test_a_plain_report_has_tables_alone(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.9, throughput=100.0)
    path = f"/v1/studies/{study.id}/report"
    answer = client.get(path, params={"plain": True})
    assert "<script" not in answer.text
    assert answer.headers["content-security-policy"].endswith("; sandbox")
    assert len(answer.content) < 100_000 < len(client.get(path).content)
    assert_self_contained(answer.text)
    assert "Points of the front" in answer.text


def test_what_was_asked_can_be_sent_again(client: TestClient, site: Site) -> None:
    study = site.study(limits={"parameters": 5000})
    page = client.get(f"/v1/studies/{study.id}/report").text
    spec = json.loads(unescape(page.split('<pre class="wide">')[1].split("</pre>")[0]))
    assert spec["limits"]["parameters"] == 5000
    again = client.post("/v1/studies", json=spec)
    assert again.status_code == 202
    assert again.json()["spec"] == dict(study.spec)


@pytest.mark.parametrize(
    ("objectives", "plots"),
    [(["quality"], 0), (["quality", "parameters"], 1), (["parameters", "throughput"], 1)],
)
def test_a_report_has_plots_of_the_objectives_asked_for(
    client: TestClient, site: Site, objectives: list[str], plots: int
) -> None:
    study = site.study(objectives=objectives)
    site.trial(study, 0, quality=0.9, throughput=100.0, ratio=0.8)
    page = client.get(f"/v1/studies/{study.id}/report").text
    assert len([title for title in titles(page) if " over " in title]) == plots


def test_a_report_of_nothing_yet_is_a_report(client: TestClient, site: Site) -> None:
    page = client.get(f"/v1/studies/{site.study().id}/report").text
    assert_self_contained(page)
    assert "No trial is on the front yet." in page


def test_a_report_that_still_holds_is_not_sent_again(client: TestClient, site: Site) -> None:
    study = site.study()

    def asked(headers: Mapping[str, str]) -> tuple[int, str]:
        answer = client.get(f"/v1/studies/{study.id}/report", headers=headers)
        # A browser takes those of a 304 for those of the report that it has.
        assert "style-src 'unsafe-inline'" in answer.headers["content-security-policy"]
        return answer.status_code, answer.headers["etag"]

    status, tag = asked({})
    assert status == 200
    assert asked({"If-None-Match": tag}) == (304, tag)
    site.event(study, file="new")
    assert asked({"If-None-Match": tag})[0] == 200


def test_a_report_of_no_study_is_a_404(client: TestClient) -> None:
    assert client.get("/v1/studies/none/report").status_code == 404
