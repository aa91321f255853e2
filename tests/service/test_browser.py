"""What a person sees: our pages and Optuna's dashboard, in a real Chromium."""

import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.service.running import PATIENCE_SECONDS, Server

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
SPEC = {
    "name": "digits for the eye",
    "task": {"kind": "digits"},
    "space": {"hidden_size": {"low": 8, "high": 32}},
    "budget": {"trials": 8, "epochs": 2},
    "sampler": {"kind": "random"},
    "seed": 1,
}


@pytest.fixture(scope="module")
def browser(
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[webdriver.Chrome]:
    if CHROMIUM is None or DRIVER is None:
        if "CI" in os.environ:
            pytest.fail("CI has to have chromium and chromedriver")
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for argument in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1200,1400",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    running = Server(tmp_path_factory.mktemp("browser") / "data")
    yield running.start()
    running.close()


@pytest.fixture(scope="module")
def study(server: Server) -> dict:
    return server.wait(server.submit(SPEC))


def text_of(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.TAG_NAME, "body").text


def wait_for(browser: webdriver.Chrome, *words: str) -> None:
    WebDriverWait(browser, PATIENCE_SECONDS).until(
        lambda driver: all(word in text_of(driver) for word in words),
        message=f"{words} at {browser.current_url}: {text_of(browser)[:2000]}",
    )


def picture(browser: webdriver.Chrome, name: str) -> None:
    """Keep a screenshot for a person to look at, where one is wanted."""
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        browser.save_screenshot(str(Path(folder) / f"{name}.png"))


def console_errors(browser: webdriver.Chrome) -> list[str]:
    # get_log is Chromium's own call, which selenium's base class does not declare
    entries = browser.get_log("browser")  # pyright: ignore[reportAttributeAccessIssue]
    return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]


def test_the_study_page_shows_the_front_that_the_api_gives(server, study, browser) -> None:
    base = str(server.http.base_url).rstrip("/")
    browser.get(f"{base}/")
    wait_for(browser, SPEC["name"], "finished")
    picture(browser, "studies")
    browser.find_element(By.LINK_TEXT, SPEC["name"]).click()
    wait_for(browser, "accuracy", "parameters")
    picture(browser, "study")
    front = server.get(f"/v1/studies/{study['id']}/front")
    shown = text_of(browser)
    for point in front["points"]:
        assert f"{point['values']['parameters']:,}" in shown or str(
            int(point["values"]["parameters"])
        ) in shown.replace(",", "").replace("\u202f", "").replace("\u2009", "")
    assert browser.find_elements(By.TAG_NAME, "svg")
    assert console_errors(browser) == []


def test_the_dashboard_shows_objectives_by_name_and_trials_by_number(
    server, study, browser
) -> None:
    base = str(server.http.base_url).rstrip("/")
    browser.get(f"{base}/dashboard")
    name = f"{SPEC['name']} [{study['id']}]"
    wait_for(browser, name)
    picture(browser, "dashboard")
    browser.find_element(By.PARTIAL_LINK_TEXT, name).click() if browser.find_elements(
        By.PARTIAL_LINK_TEXT, name
    ) else browser.find_element(By.XPATH, f"//*[contains(text(), '{name}')]").click()
    wait_for(browser, "accuracy", "throughput")
    picture(browser, "dashboard-study")
    browser.get(browser.current_url.rstrip("/") + "/trials")
    wait_for(browser, "Trial 0", "Trial 7")
    picture(browser, "dashboard-trials")


def test_the_api_page_works_without_a_network(server, browser) -> None:
    base = str(server.http.base_url).rstrip("/")
    browser.get(f"{base}/docs")
    wait_for(browser, "/v1/studies")
    picture(browser, "docs")
    assert console_errors(browser) == []
