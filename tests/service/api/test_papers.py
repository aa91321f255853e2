from pathlib import Path

from starlette.testclient import TestClient

from search.documents.readable import mean
from search.papers import SEARCHED, TABLES
from service.app import create_app
from tests.real_data import real_data
from tests.service.pages.test_pages import Elements, assert_strict
from tests.service.site import Site

NEED_FILES = ("ucr", "multilabel", "ptb-words", "ptb-characters")


def test_tables_are_listed_with_how_many_rows_they_have(client: TestClient) -> None:
    items = client.get("/v1/papers").json()["items"]
    assert [item["name"] for item in items] == list(TABLES)
    for item in items:
        assert item["title"]
        assert item["about"].endswith((".", "7."))
        entries = client.get(f"/v1/papers/{item['name']}").json()["entries"]
        printed = [entry for entry in entries if entry["system"] != SEARCHED]
        assert item["rows"] == len(printed) > 0


def test_a_row_of_each_table_is_a_study_that_is_taken(client: TestClient) -> None:
    for name in TABLES:
        row = client.get(f"/v1/papers/{name}").json()["entries"][0]
        answer = client.post("/v1/studies?dry_run=true", json=row["spec"])
        if name in NEED_FILES:
            assert answer.status_code == 422
            assert "REFLECTORY_DATA" in answer.json()["errors"][0]["message"]
            continue
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found["dimensions"] == []
        assert found["parameter_range"] == {"low": row["parameters"], "high": row["parameters"]}


def test_every_set_of_the_ucr_table_has_the_counts_that_it_prints(tmp_path: Path) -> None:
    """By the real files, where they are."""
    site = Site(tmp_path / "data", data_sets=real_data())
    here = {"base_url": "http://localhost:8080", "client": ("127.0.0.1", 50000)}
    with TestClient(create_app(site.settings), **here) as client:
        for row in client.get("/v1/papers/ucr").json()["entries"]:
            answer = client.post("/v1/studies?dry_run=true", json=row["spec"])
            assert answer.status_code == 200, answer.text
            counts = answer.json()["parameter_range"]
            assert counts == dict.fromkeys(("low", "high"), row["printed_parameters"])
    site.close()


def test_an_unknown_table_is_not_found_and_near_names_are_told(client: TestClient) -> None:
    for path in ("/v1/papers/pixel_mnist", "/papers/pixel_mnist"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "unknown table 'pixel_mnist'; did you mean pixel-mnist" in answer.json()["detail"]


def test_pages_lead_from_a_table_to_the_form_of_a_row(client: TestClient) -> None:
    papers = client.get("/papers")
    assert_strict(papers)
    links = [link["href"] for link in Elements(papers.text).all("a")]
    assert "/papers/ucr" in links
    assert "/help/benchmarks/reproduction.md" in links
    table = client.get("/papers/addition")
    assert_strict(table)
    assert "6,140 parameters are printed" in table.text
    (link,) = [
        link["href"]
        for link in Elements(table.text).all("a")
        if "lr-gru-128-24-addition" in (link["href"] or "")
    ]
    form = client.get(link or "")
    assert form.status_code == 200
    named = [field for field in Elements(form.text).all("input") if field.get("name") == "name"]
    assert named[0]["value"] == "addition: T=750/lr-gru-128-24-addition, seed 0"
    assert client.get("/studies/new?table=addition&row=T=751").status_code == 404


def test_a_page_has_what_was_measured_beside_what_is_printed(client: TestClient) -> None:
    entries = client.get("/v1/papers/sequences").json()["entries"]
    measured = [entry for entry in entries if entry["verdict"]["mean"] is not None]
    page = client.get("/papers/sequences")
    assert_strict(page)
    assert measured
    for entry in measured:
        assert mean(entry["verdict"]["mean"], entry["verdict"]["half_width"]) in page.text
        for found in entry["found"]:
            assert f"{found['network']}, {found['parameters']:,} parameters" in page.text
    (link,) = [
        link["href"]
        for link in Elements(page.text).all("a")
        if (link["href"] or "").startswith("/help/benchmarks")
    ]
    address, _, anchor = (link or "").partition("#")
    assert f'id="{anchor}"' in client.get(address).text
