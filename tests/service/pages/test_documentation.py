"""The documentation, as the server shows it."""

import posixpath
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.rendering.anchors import anchor
from service.rendering.documentation import Documentation
from tests.service.pages.test_pages import Elements

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "deploy/docs"
SOME = ("index.md", "explanation/parametrizations.md", "benchmarks/showcase.md", "reference/cli.md")


def test_help_begins_with_the_contents(client: TestClient) -> None:
    answer = client.get("/help")
    assert answer.status_code == 200
    assert answer.url.path == "/help/index.md"
    assert "Compress your GRU" in answer.text
    assert '<a href="/help' in client.get("/").text


@pytest.mark.parametrize("path", SOME)
def test_a_page_keeps_to_the_policy_and_its_links_lead_somewhere(
    client: TestClient, path: str
) -> None:
    answer = client.get(f"/help/{path}")
    assert answer.status_code == 200
    assert "unsafe" not in answer.headers["content-security-policy"]
    elements = Elements(answer.text)
    for tag, attributes in elements.found:
        assert "style" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on")], tag
    assert all("src" in script for script in elements.all("script"))
    targets = {
        *(link["href"] for link in elements.all("a")),
        *(image["src"] for image in elements.all("img")),
    }
    local = {target for target in targets if target and not target.startswith(("http", "/", "#"))}
    documentation = Documentation()
    for target in local:
        name = posixpath.normpath(posixpath.join(posixpath.dirname(path), target.partition("#")[0]))
        assert documentation.page(name) or documentation.picture(name), target


def test_pictures_are_served(client: TestClient) -> None:
    answer = client.get("/help/pictures/low_rank.svg")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert answer.text.startswith("<svg")


def test_tables_numbers_and_anchors_are_there(client: TestClient) -> None:
    text = client.get("/help/explanation/parametrizations.md").text
    assert "<table>" in text
    assert '<h2 id="bits">' in text
    assert 'class="n"' in client.get("/help/benchmarks/showcase.md").text
    assert anchor("What `POST /v1/studies` takes, and why") == "what-post-v1studies-takes-and-why"


@pytest.mark.parametrize(
    "path",
    ["nothing.md", "../README.md", "%2e%2e/README.md", "../../pyproject.toml", "/etc/passwd", ""],
)
def test_nothing_else_is_reached(client: TestClient, path: str) -> None:
    answer = client.get(f"/help/{path}", follow_redirects=False)
    assert answer.status_code in (307, 404)
    assert "build-system" not in answer.text


def test_a_wheel_brings_the_pages() -> None:
    """The hook puts the folder where the server looks for it."""
    hook = (ROOT / "deploy/wheel_hook.py").read_text()
    assert '"service/help"' in hook
    assert 'Path(self.root) / "deploy" / "docs"' in hook


def test_what_may_be_wide_scrolls_in_a_box_of_its_own(tmp_path: Path) -> None:
    table = "| n |\n|---:|\n| 1 |\n"
    text = f"# A <page>\n\n{table}\n## B\n\n{table}\nand\n\n{table}\n```sh\nls\n```\n"
    (tmp_path / "a.md").write_text(text)
    found = Documentation(tmp_path).page("a.md")
    assert found is not None
    elements = Elements(found[1])
    boxes = elements.all("div")
    assert [box["aria-label"] for box in boxes] == ["A <page>", "B", "B, table 2"]
    assert all(
        (box["class"], box["role"], box["tabindex"]) == ("wide", "region", "0") for box in boxes
    )
    assert found[1].count("</table>\n</div>") == 3
    assert elements.all("pre") == [{"class": "wide", "tabindex": "0"}]


def test_what_is_asked_for_is_read_from_the_given_folder(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A page\n\n| n |\n|---:|\n| 1 |\n")
    (tmp_path / "a.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text("no")
    documentation = Documentation(tmp_path)
    found = documentation.page("a.md")
    assert found is not None
    assert found[0] == "A page"
    assert '<td class="n">1</td>' in found[1]
    assert documentation.picture("a.svg") == "<svg/>"
    assert documentation.page("a.svg") is documentation.picture("secret.txt") is None
