"""The pages beside a study's own, in a real Chromium: list, form, devices, errors, the API."""

from collections.abc import Generator
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from service.rendering.form.goals import GOALS
from tests.service.running import Server
from tests.service.uploading import CSV
from tests.system.server.test_browser import (
    FAINT_WORDS,
    TOO_WIDE,
    browser,
    console_errors,
    downloads,
    picture,
    press,
    text_of,
    wait_for,
    wait_until,
)

__all__ = ["browser", "downloads"]

pytestmark = pytest.mark.browser

SPEC = {"task": {"kind": "digits"}, "budget": {"trials": 2, "epochs": 1}}

LISTEN = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
SCROLLED = """
return [...document.querySelectorAll(".wide")]
  .filter((part) => part.querySelector("table.cards") && part.scrollWidth > part.clientWidth)
  .map((part) => part.getAttribute("aria-label"));
"""
"""Tables of cards that have to be scrolled all the same."""


@pytest.fixture(scope="module")
def base(server: Server) -> str:
    return str(server.http.base_url).rstrip("/")


@pytest.fixture(scope="module")
def studies(server: Server) -> list[dict[str, Any]]:
    """Three studies that nothing runs of, the last one with labels."""
    made = []
    for name in ("first", "second", "a study with a long name that says what it is about"):
        answer = server.http.post("/v1/studies", json={**SPEC, "name": name})
        made.append(answer.json())
        server.http.post(f"/v1/studies/{made[-1]['id']}/pause")
    labels = {"tags": ["baseline"], "notes": "with the new data"}
    server.http.patch(f"/v1/studies/{made[-1]['id']}", json=labels)
    return made


@pytest.fixture(autouse=True)
def _kept_to_the_policy(browser: webdriver.Chrome) -> Generator[None]:
    """No page violates its policy, as far as it is still open when the test ends."""
    known = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": LISTEN})
    yield
    assert browser.execute_script("return window.violations ?? []") == []
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", known)


def listed(browser: webdriver.Chrome) -> list[str]:
    boxes = browser.find_elements(By.CSS_SELECTOR, "#studies input[name=studies]")
    return [str(box.get_attribute("value")) for box in boxes]


def test_the_list_is_searched_and_shows_times_of_the_reader(
    base: str, studies: list[dict[str, Any]], browser: webdriver.Chrome
) -> None:
    browser.get(f"{base}/")
    assert set(listed(browser)) >= {study["id"] for study in studies}
    browser.execute_script("window.sameDocument = true")
    search = browser.find_element(By.ID, "text")
    search.send_keys("NEW data", Keys.ENTER)
    wait_until(browser, lambda: listed(browser) == [studies[2]["id"]], "the one with these notes")
    assert "text=NEW+data" in browser.current_url
    assert browser.execute_script("return window.sameDocument")
    browser.find_element(By.LINK_TEXT, "baseline").click()
    wait_for(browser, "Show all")
    assert listed(browser) == [studies[2]["id"]]
    browser.get(f"{base}/datasets")
    assert console_errors(browser) == []


def test_a_study_is_deleted_after_a_question(
    server: Server, base: str, browser: webdriver.Chrome
) -> None:
    study = server.http.post("/v1/studies", json={**SPEC, "name": "to go"}).json()["id"]
    browser.get(f"{base}/studies/{study}/delete")
    wait_for(browser, "Cancel it before you delete it")
    browser.find_element(By.XPATH, "//button[text()='Cancel study']").click()
    wait_until(browser, lambda: server.get(f"/v1/studies/{study}")["state"] == "cancelled", "end")
    browser.get(f"{base}/?text=to+go")
    browser.find_element(By.CSS_SELECTOR, f"a[href='/studies/{study}/delete']").click()
    wait_for(browser, "Delete “to go”?", "cannot be restored")
    picture(browser, "delete")
    browser.find_element(By.LINK_TEXT, "Keep study").click()
    assert server.http.get(f"/v1/studies/{study}").status_code == 200
    browser.get(f"{base}/studies/{study}/delete")
    browser.find_element(By.XPATH, "//button[text()='Delete study']").click()
    wait_until(browser, lambda: browser.current_url == f"{base}/", "the list")
    assert study not in listed(browser)
    assert server.http.get(f"/v1/studies/{study}").status_code == 404


def test_ticked_studies_are_compared(
    base: str, studies: list[dict[str, Any]], browser: webdriver.Chrome
) -> None:
    browser.get(f"{base}/")
    for study in studies[:2]:
        browser.find_element(By.ID, f"tick-{study['id']}").click()
    browser.find_element(By.XPATH, "//button[text()='Compare selected']").click()
    wait_for(browser, "Compare studies", "Select other studies")
    shown = text_of(browser)
    assert "first" in shown
    assert "second" in shown
    assert console_errors(browser) == []


@pytest.mark.parametrize("goal", list(GOALS))
def test_a_goal_is_filled_in_and_passes_the_check(
    base: str, browser: webdriver.Chrome, goal: str
) -> None:
    browser.get(f"{base}/studies/new")
    browser.find_element(By.CSS_SELECTOR, f"button[value='goal:{goal}']").click()
    wait_for(browser, f"{GOALS[goal].title}: filled in")
    browser.find_element(By.CSS_SELECTOR, ".send button[value=check]").click()
    wait_for(browser, "This can be run", "Nothing has been started")
    picture(browser, f"goal-{goal}")
    assert console_errors(browser) == []


def test_a_data_set_is_picked_by_its_name_and_the_time_follows_what_is_typed(
    server: Server, base: str, browser: webdriver.Chrome
) -> None:
    ids = {}
    for number, name in enumerate(("wheels.csv", "bearings.csv", "motors.csv")):
        body = CSV + f"cat,{number},1,1\n".encode()
        ids[name] = server.http.post("/v1/datasets", files={"file": (name, body)}).json()["id"]
    browser.get(f"{base}/studies/new")
    browser.find_element(By.ID, "task-dataset").click()
    select = Select(browser.find_element(By.ID, "task-dataset-id"))
    assert len(select.options) == 4
    search = browser.find_element(By.CSS_SELECTOR, "[aria-controls=task-dataset-id]")
    search.send_keys("nothing of this")
    assert len(select.options) == 1
    search.clear()
    search.send_keys("bear 20")
    assert select.first_selected_option.get_attribute("value") == ids["bearings.csv"]
    assert "samples of" in select.first_selected_option.text
    # Enter in the search field sends no form.
    press(browser, Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "task-dataset-id"
    assert "unknown until the first trial" in browser.find_element(By.ID, "estimate").text
    browser.find_element(By.CSS_SELECTOR, ".send button[value=check]").click()
    wait_for(browser, "This can be run")
    chosen = Select(browser.find_element(By.ID, "task-dataset-id")).first_selected_option
    assert chosen.get_attribute("value") == ids["bearings.csv"]
    assert console_errors(browser) == []


def test_an_error_is_a_page_that_leads_back(base: str, browser: webdriver.Chrome) -> None:
    browser.get(f"{base}/devices")
    browser.execute_script("location.assign('/studies/none')")
    wait_for(browser, "there is no study 'none'", "Status 404")
    picture(browser, "error")
    browser.find_element(By.LINK_TEXT, "Back").click()
    wait_for(browser, "Devices")
    assert browser.current_url == f"{base}/devices"
    # Chromium's own word for the answer.
    (error,) = console_errors(browser)
    assert "404" in error


def test_without_scripts_the_list_and_the_form_work(
    base: str, studies: list[dict[str, Any]], browser: webdriver.Chrome
) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(f"{base}/?text=second")
        assert listed(browser) == [studies[1]["id"]]
        assert browser.find_element(By.CSS_SELECTOR, "td[data-label=Started]").text == "–"
        browser.get(f"{base}/studies/new")
        for part in ("#advanced", "#measuring"):
            browser.find_element(By.CSS_SELECTOR, f"{part} > summary").send_keys(Keys.ENTER)
        browser.find_element(By.NAME, "throughput:batch_size").send_keys("1", Keys.ENTER)
        wait_for(browser, "This can be run")
        assert browser.find_element(By.NAME, "throughput:batch_size").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        browser.get(f"{base}/login")


@pytest.mark.slow
def test_the_api_page_shows_every_operation(
    server: Server, base: str, browser: webdriver.Chrome
) -> None:
    document = server.get("/openapi.json")
    operations = sum(len(methods) for methods in document["paths"].values())
    browser.get(f"{base}/docs")
    shown = (By.CSS_SELECTOR, ".opblock")
    wait_until(browser, lambda: len(browser.find_elements(*shown)) == operations, "operations")
    browser.find_element(
        By.CSS_SELECTOR, "#operations-studies-submit_study .opblock-summary-control"
    ).click()
    wait_for(browser, "Request body", "idempotency-key")
    picture(browser, "docs")
    assert console_errors(browser) == []


def own_pages(studies: list[dict[str, Any]]) -> list[str]:
    first, second = (study["id"] for study in studies[:2])
    return [
        *("/", "/?text=none+of+all", f"/studies/{first}/edit", f"/studies/{first}/delete"),
        *("/studies/new", f"/studies/new?from={first}", f"/compare?studies={first},{second}"),
        *("/devices", "/datasets", "/models", "/papers", "/papers/highway", "/login", "/nowhere"),
    ]


def test_no_page_scrolls_sideways_on_a_phone(
    base: str, studies: list[dict[str, Any]], browser: webdriver.Chrome
) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        for path in [*own_pages(studies), "/docs"]:
            browser.get(base + path)
            browser.execute_script(
                "for (const part of document.querySelectorAll('details')) part.open = true"
            )
            assert browser.execute_script(TOO_WIDE, 390) == [], path
            assert browser.execute_script(SCROLLED) == [], path
            assert browser.execute_script("return window.violations") == [], path
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_in_both_colour_schemes(
    base: str, studies: list[dict[str, Any]], browser: webdriver.Chrome, scheme: str
) -> None:
    wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
    try:
        for path in own_pages(studies):
            browser.get(base + path)
            assert browser.execute_script(FAINT_WORDS, 4.5) == [], path
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
