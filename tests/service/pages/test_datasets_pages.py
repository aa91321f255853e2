"""The pages of data sets: what they show, and an upload as a browser's form sends it."""

import re

import numpy as np
import pytest
from starlette.testclient import TestClient

from service.rendering.series import HEIGHT, SERIES, WIDTH, series_plot
from tests.service.pages.test_pages import Elements, assert_strict
from tests.service.site import Site
from tests.service.uploading import CSV, TS, assert_nothing_is_left, good_npz, npz, rows_of, upload

ORIGIN = {"Origin": "http://localhost:8080"}


def test_the_page_without_datasets_says_how_to_begin_and_has_the_form(client: TestClient) -> None:
    answer = client.get("/datasets")
    assert answer.status_code == 200
    assert "reflectory datasets upload" in answer.text
    (form,) = Elements(answer.text).all("form")
    assert form.pop("class") == "stacked"
    assert form == {"action": "/datasets", "method": "post", "enctype": "multipart/form-data"}
    (script,) = Elements(answer.text).all("script")
    assert script["src"] == "/assets/times.js"
    assert_strict(answer)


def test_pages_with_forms_name_themselves_as_their_origin(client: TestClient) -> None:
    for path in ("/", "/datasets"):
        page = client.get(path)
        assert "form-action 'self'" in page.headers["content-security-policy"]
        assert page.headers["referrer-policy"] == "same-origin"


def test_every_page_links_to_the_datasets(client: TestClient) -> None:
    assert "/datasets" in {link["href"] for link in Elements(client.get("/").text).all("a")}


def test_the_list_shows_shapes_and_missing_values(client: TestClient) -> None:
    ragged = upload(client, TS, "ragged.ts", unequal_lengths="pad").json()
    gaps = upload(client, b"t,a,b\nx,1,\ny,3,4\nx,?,5\n", "gaps.csv", missing="mean").json()
    answer = client.get("/datasets")
    page = Elements(answer.text)
    for dataset in (ragged, gaps):
        assert dataset["name"] in page.text
        assert dataset["links"]["page"] in {link.get("href") for link in page.all("a")}
    rows = [re.sub(r"<[^>]+>|\s+", " ", row) for row in answer.text.split("<tr>")[2:]]
    assert "gaps.csv" in rows[0]
    assert re.search(r"classification\s+3\s+2\s+1\s+2\s+2\s", rows[0]), rows[0]
    assert re.search(r"4\s+2 to 3\s+2\s+2\s+0\s", rows[1]), rows[1]
    assert_strict(answer)


def test_older_datasets_are_a_page_away(client: TestClient, site: Site) -> None:
    ids = {upload(client, CSV + b"cat,1,2,%d\n" % number).json()["id"] for number in range(3)}
    assert len(ids) == 3
    first = client.get("/v1/datasets?limit=1").json()
    older = client.get("/datasets", params={"cursor": first["next_cursor"]}).text
    shown = set(re.findall(r'href="/datasets/([^"?]+)"', older))
    assert shown == ids - {first["items"][0]["id"]}


def test_a_dataset_page_shows_classes_samples_and_how_to_use_it(client: TestClient) -> None:
    dataset = upload(client, CSV, "pets.csv").json()
    answer = client.get(dataset["links"]["page"])
    page = Elements(answer.text)
    for text in ("pets.csv", "cat", "dog", "Classes", "0.1"):
        assert text in page.text, text
    assert f'"id": "{dataset["id"]}"' in " ".join(page.text)
    assert len(page.all("svg")) == len(dataset["preview"])
    assert len(page.all("polyline")) == len(dataset["preview"])
    assert_strict(answer)


def test_a_dataset_page_shows_splits_and_every_feature(client: TestClient) -> None:
    dataset = upload(client, good_npz(), "a.npz").json()
    page = Elements(client.get(dataset["links"]["page"]).text)
    for text in ("Samples, train", "Samples, validation", "Samples, test"):
        assert text in page.text, text
    assert len(page.all("polyline")) == 2 * len(dataset["preview"])


def test_a_page_of_no_dataset_is_a_404(client: TestClient) -> None:
    assert client.get("/datasets/none").status_code == 404


def test_the_form_uploads_without_a_script_and_leads_to_the_new_page(
    client: TestClient, site: Site
) -> None:
    # A browser sends all fields, and an empty file where none was chosen.
    files = {"file": ("pets.csv", CSV), "test": ("", b"")}
    fields = {
        "name": "",
        "problem": "",
        "label": "",
        "unequal_lengths": "refuse",
        "missing": "refuse",
    }
    parts = [(name, (None, value.encode())) for name, value in fields.items()]
    body = b"".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"'.encode()
        + (b"" if filename is None else f'; filename="{filename}"'.encode())
        + b"\r\n\r\n"
        + content
        + b"\r\n"
        for name, (filename, content) in [*files.items(), *parts]
    )
    answer = client.post(
        "/datasets",
        content=body + b"--x--\r\n",
        headers={**ORIGIN, "Content-Type": "multipart/form-data; boundary=x"},
        follow_redirects=False,
    )
    assert answer.status_code == 303, answer.text
    page = client.get(answer.headers["Location"])
    assert "pets.csv" in Elements(page.text).text
    assert rows_of(site) == (1, 2)


def test_a_refused_form_comes_back_with_the_sentence(client: TestClient, site: Site) -> None:
    bad = CSV.replace(b"0.2", b"<b>two</b>")
    answer = client.post("/datasets", files={"file": ("a.csv", bad)}, headers=ORIGIN)
    assert answer.status_code == 422
    assert "<b>two" not in answer.text
    assert any("<b>two</b>" in text and "line 2" in text for text in Elements(answer.text).text)
    assert Elements(answer.text).all("form")
    assert_strict(answer)
    assert_nothing_is_left(site)


@pytest.mark.parametrize("origin", ["null", "http://evil.example", "http://localhost:1"])
def test_another_pages_form_is_refused(client: TestClient, site: Site, origin: str) -> None:
    answer = client.post("/datasets", files={"file": ("a.csv", CSV)}, headers={"Origin": origin})
    assert answer.status_code == 403
    assert_nothing_is_left(site)


def test_what_a_user_wrote_is_shown_and_never_run(client: TestClient) -> None:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    content = f'"{evil.replace(chr(34), chr(34) * 2)}",1,2\nother,3,4\n'.encode()
    dataset = upload(client, content, name=evil).json()
    for path in ("/datasets", dataset["links"]["page"]):
        answer = client.get(path)
        assert evil not in answer.text
        assert any(evil in text for text in Elements(answer.text).text)
        assert_strict(answer)


def test_a_series_is_drawn_to_scale_inside_its_picture() -> None:
    plot = series_plot([[0.0, 10.0], [5.0, 10.0], [10.0, 10.0]])
    assert (plot.low, plot.high) == (0.0, 10.0)
    places = [
        [tuple(map(float, point.split(","))) for point in line.points.split()]
        for line in plot.lines
    ]
    (x0, y0), (x1, y1), (x2, y2) = places[0]
    assert x1 - x0 == x2 - x1 > 0
    assert y0 - y1 == y1 - y2 > 0
    assert {y for _, y in places[1]} == {y2}
    assert plot.lines[0].colour != plot.lines[1].colour


@pytest.mark.parametrize(
    "values", [[[3.0]], [[0.0], [0.0]], [[-1.7e308], [1.7e308]], [[1e-320] * 9, [2e-320] * 9]]
)
def test_any_series_is_drawn_inside_its_picture(values: list[list[float]]) -> None:
    plot = series_plot(values)
    assert len(plot.lines) == len(values[0])
    for line in plot.lines:
        points = [tuple(map(float, point.split(","))) for point in line.points.split()]
        assert len(points) >= 2
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
        assert line.colour in SERIES


def test_arrays_have_a_line_and_a_page_with_their_shapes(client: TestClient) -> None:
    upload(client, CSV, "pets.csv")
    frames, labels = np.ones((7, 5, 3), dtype=np.float32), np.arange(7)
    content = npz(frames=frames, labels=labels)
    fields = {"holds": "arrays", "problem": "", "unequal_lengths": "refuse", "missing": "refuse"}
    files = {"file": ("speech.npz", content)}
    answer = client.post(
        "/datasets", files=files, data=fields, headers=ORIGIN, follow_redirects=False
    )
    assert answer.status_code == 303, answer.text
    page = client.get(answer.headers["Location"])
    assert_strict(page)
    shown = Elements(page.text)
    for text in ("speech.npz", "frames", "float32", "5 × 3", "labels", "int64", "one number"):
        assert any(text in part for part in shown.text), text
    listed = client.get("/datasets")
    assert_strict(listed)
    assert {"pets.csv", "speech.npz", "arrays"} <= set(Elements(listed.text).text)
