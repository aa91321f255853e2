"""The pages of uploaded models: what they show, and an upload as a browser's form sends it."""

from starlette.testclient import TestClient
from torch import nn

from tests.service.model_files import (
    assert_no_model_is_left,
    model_rows,
    perceptron,
    plain,
    saved,
    upload_model,
)
from tests.service.network_files import in_branches, network
from tests.service.pages.test_pages import Elements, assert_strict
from tests.service.site import Site

ORIGIN = {"Origin": "http://localhost:8080"}


def test_the_page_without_models_says_how_to_begin_and_has_the_form(client: TestClient) -> None:
    answer = client.get("/models")
    assert answer.status_code == 200
    assert "reflectory models upload" in answer.text
    (form,) = Elements(answer.text).all("form")
    assert form.pop("class") == "stacked"
    assert form == {"action": "/models", "method": "post", "enctype": "multipart/form-data"}
    assert "/models" in {link["href"] for link in Elements(client.get("/").text).all("a")}
    assert_strict(answer)


def test_the_list_leads_to_each_model_with_its_tensors_and_tasks(client: TestClient) -> None:
    gru = upload_model(client, saved(plain(nn.GRU, outputs=10)), "my gru").json()
    flat = upload_model(client, saved(perceptron()), "flat", sequence_length="8").json()
    listed = client.get("/models")
    assert_strict(listed)
    page = Elements(listed.text)
    for model in (gru, flat):
        assert model["name"] in page.text
        assert model["links"]["page"] in {link.get("href") for link in page.all("a")}
        answer = client.get(model["links"]["page"])
        assert_strict(answer)
        shown = Elements(answer.text)
        for text in (model["name"], "readout.weight", "digits, layout rows"):
            assert any(text in part for part in shown.text), text
        assert model["links"]["checkpoint"] in {link.get("href") for link in shown.all("a")}
    assert client.get("/models/none").status_code == 404


def test_older_models_are_a_page_away(client: TestClient) -> None:
    content = saved(plain(nn.RNN))
    for steps in "123":
        upload_model(client, content, sequence_length=steps)
    first = client.get("/v1/models?limit=1").json()
    older = client.get("/models", params={"cursor": first["next_cursor"]}).text
    links = {link.get("href") for link in Elements(older).all("a")}
    assert first["items"][0]["links"]["page"] not in links
    assert len([link for link in links if link and link.startswith("/models/")]) == 2


def test_the_form_uploads_without_a_script_and_leads_to_the_new_page(
    client: TestClient, site: Site
) -> None:
    # A browser sends all fields, empty ones too.
    fields = {"name": "", "nonlinearity": "", "output_steps": "last", "sequence_length": ""}
    answer = client.post(
        "/models",
        files={"file": ("gru.safetensors", saved(plain()))},
        data=fields,
        headers=ORIGIN,
        follow_redirects=False,
    )
    assert answer.status_code == 303, answer.text
    page = client.get(answer.headers["Location"])
    assert "gru.safetensors" in Elements(page.text).text
    assert model_rows(site) == (1, 1)


def test_a_refused_form_comes_back_with_the_sentence(client: TestClient, site: Site) -> None:
    files = {"file": ("model.pt", b"PK\x03\x04<b>torch</b>")}
    answer = client.post("/models", files=files, headers=ORIGIN)
    assert answer.status_code == 422
    assert any("ZIP archive" in text for text in Elements(answer.text).text)
    assert Elements(answer.text).all("form")
    assert_strict(answer)
    assert_no_model_is_left(site)


def test_another_pages_form_is_refused(client: TestClient, site: Site) -> None:
    files = {"file": ("a.safetensors", saved(plain()))}
    answer = client.post("/models", files=files, headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403
    assert_no_model_is_left(site)


def test_what_a_user_wrote_is_shown_and_never_run(client: TestClient) -> None:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    model = upload_model(client, saved(plain()), name=evil).json()
    for path in ("/models", model["links"]["page"]):
        answer = client.get(path)
        assert evil not in answer.text
        assert any(evil in text for text in Elements(answer.text).text)
        assert_strict(answer)


def test_a_network_has_a_line_and_a_page_with_its_ports_and_layers(client: TestClient) -> None:
    upload_model(client, saved(plain()), "my gru")
    model = upload_model(client, network().SerializeToString(), "vad.onnx").json()
    listed = client.get("/models")
    assert_strict(listed)
    assert "ONNX, opset 17, 3 nodes" in Elements(listed.text).text
    assert "my gru" in Elements(listed.text).text
    answer = client.get(model["links"]["page"])
    assert_strict(answer)
    shown = Elements(answer.text)
    for text in ("vad.onnx", "batch × 32", "batch × 5", "MatMul", "32 × 64", "8,192", "86.5 %"):
        assert any(text in part for part in shown.text), text
    assert model["links"]["checkpoint"] in {link.get("href") for link in shown.all("a")}
    branches = upload_model(client, in_branches().SerializeToString(), "branches.onnx").json()
    page = client.get(branches["links"]["page"])
    assert_strict(page)
    assert any("bodies of If" in part for part in Elements(page.text).text)


def test_a_form_begins_with_a_network_too(client: TestClient) -> None:
    model = upload_model(client, network().SerializeToString(), "vad.onnx").json()
    assert client.get("/studies/new", params={"model": model["id"]}).status_code == 200
