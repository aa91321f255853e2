"""What a person sees: our pages and Optuna's dashboard, in a real Chromium."""

import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.service.running import PATIENCE_SECONDS, Server

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
SPEC = {"name": "digits for the eye"}
POINTS = (By.CSS_SELECTOR, "#points tr[data-trial]")

TOO_WIDE = """
const [width] = arguments;
if (document.documentElement.scrollWidth <= width) return [];
return [...document.querySelectorAll("main *")]
  .filter((element) => !element.closest(".wide") && element.getBoundingClientRect().right > width)
  .map((element) => `${element.tagName} ${element.id} ${element.textContent.trim().slice(0, 40)}`);
"""
"""What makes a page scroll sideways; nothing where it does not."""

FAINT_WORDS = """
const [least] = arguments;
const parse = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
  .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
  .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const found = new Set();
for (const element of document.querySelectorAll("body *")) {
  const words = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!words || !element.checkVisibility() || element.matches("title, option, :disabled")) continue;
  const style = getComputedStyle(element);
  const pair = [parse(element instanceof SVGElement ? style.fill : style.color), behind(element)];
  const [low, high] = pair.map(light).sort((a, b) => a - b);
  const contrast = (high + 0.05) / (low + 0.05);
  const text = element.textContent.trim().slice(0, 40);
  if (contrast < least) found.add(`${element.tagName} ${contrast.toFixed(2)} ${text}`);
}
return [...found];
"""
"""The words of a page that stand out less from what is behind them, by WCAG's own formula."""


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(
    tmp_path_factory: pytest.TempPathFactory, downloads: Path
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
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def text_of(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.TAG_NAME, "body").text


def wait_until(browser: webdriver.Chrome, holds: Callable[[], Any], what: str) -> Any:
    # What is looked at may be replaced, or the page left, just then.
    wait = WebDriverWait(
        browser,
        PATIENCE_SECONDS,
        poll_frequency=0.1,
        ignored_exceptions=[StaleElementReferenceException, NoSuchElementException],
    )
    return wait.until(lambda _: holds(), message=what)


def wait_for(browser: webdriver.Chrome, *words: str) -> None:
    wait_until(
        browser, lambda: all(word in text_of(browser) for word in words), f"{words} on the page"
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


def press(browser: webdriver.Chrome, *keys: str) -> None:
    chain = ActionChains(browser)
    for key in keys:
        chain = chain.send_keys(key)
    chain.perform()


def tab_to(browser: webdriver.Chrome, wanted: str) -> WebElement:
    """Press Tab until the element that a selector names has the focus, as a person would."""
    for _ in range(200):
        press(browser, Keys.TAB)
        if browser.execute_script("return document.activeElement.matches(arguments[0])", wanted):
            return browser.switch_to.active_element
    raise AssertionError(f"Tab leads to no {wanted} at {browser.current_url}")


def fill_in(browser: webdriver.Chrome, wanted: str, text: str) -> None:
    tab_to(browser, wanted)
    ActionChains(browser).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).perform()
    press(browser, text)


def points(browser: webdriver.Chrome) -> set[int]:
    """The trials of the table of the front."""
    rows = browser.find_elements(*POINTS)
    return {int(str(row.get_attribute("data-trial"))) for row in rows}


DRAWN = """
const box = document.getElementById(arguments[0]);
if (!box?.data || box.querySelector(".points path") === null) return null;
return box.data.flatMap((trace) => trace.customdata ?? []).filter((number) => number !== null);
"""
"""The trials that a figure shows; null while it is not drawn."""


def drawn(browser: webdriver.Chrome, figure: str) -> set[int]:
    """The trials in a figure, once it is there."""
    box = browser.find_element(By.ID, figure)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", box)
    found = wait_until(
        browser, lambda: browser.execute_script(DRAWN, figure), f"a drawing of {figure}"
    )
    return set(found)


@pytest.fixture(scope="module")
def study(server: Server, browser: webdriver.Chrome) -> dict:
    """A study that a person makes with the keyboard alone, watched until it has ended."""
    base = str(server.http.base_url).rstrip("/")
    browser.get(f"{base}/")
    press(browser, Keys.TAB, Keys.ENTER)
    assert browser.current_url.endswith("#main"), "the first Tab leads to the content"
    tab_to(browser, "main a[href='/studies/new']")
    press(browser, Keys.ENTER)
    wait_for(browser, "Parametrizations of their weights")
    fill_in(browser, "#name", SPEC["name"])
    tab_to(browser, "input[name=task]:checked")
    press(browser, Keys.ARROW_DOWN, Keys.ARROW_UP)
    assert browser.switch_to.active_element.get_attribute("value") == "digits"
    browser_only = browser.find_element(By.ID, "parametrizations-unitary_fft")
    assert not browser_only.is_enabled(), "it fits no architecture that is chosen"
    fill_in(browser, "[name='space:hidden_size']", "64 to 8")
    fill_in(browser, "[name='budget:trials']", "8")
    fill_in(browser, "[name='budget:epochs']", "2")
    tab_to(browser, "button[value=check]")
    press(browser, Keys.ENTER)
    wait_for(browser, "This cannot be run as it stands", "the range is empty: low 64 is above")
    picture(browser, "form-refused")
    # Chromium's own word for the answer, which is a page all the same.
    (refusal,) = console_errors(browser)
    assert "422" in refusal
    press(browser, Keys.TAB, Keys.ENTER)
    focused = "return document.querySelector(':target, :focus')?.id"
    assert browser.execute_script(focused) == "space-hidden_size"
    fill_in(browser, "[name='space:hidden_size']", "8 to 32")
    tab_to(browser, "button[value=check]")
    press(browser, Keys.ENTER)
    wait_for(browser, "This can be run", "10 candidates", "Nothing has been started")
    picture(browser, "form-checked")
    assert browser.switch_to.active_element.get_attribute("class") == "outcome"
    tab_to(browser, "button[value=start]")
    # A person whose key bounces sends the form twice.
    press(browser, Keys.ENTER, Keys.ENTER)
    wait_for(browser, SPEC["name"], "Learning curves")
    browser.execute_script("window.sameDocument = true")
    seen = set()

    def ended() -> bool:
        seen.add(len(points(browser)))
        return "finished" in browser.find_element(By.ID, "standing").text

    wait_until(browser, ended, "the end of the study")
    wait_until(browser, lambda: points(browser), "a front")
    assert browser.execute_script("return window.sameDocument"), "the page was loaded again"
    assert len(seen) > 1, "the front never moved"
    (listed,) = server.get("/v1/studies")["items"]
    assert browser.current_url.endswith(listed["links"]["page"])
    return listed


def test_the_page_that_was_watched_shows_the_front_that_the_api_gives(
    server, study, browser
) -> None:
    picture(browser, "study")
    front = server.get(study["links"]["front"])
    assert points(browser) == {point["trial"] for point in front["points"]}
    assert points(browser) <= drawn(browser, "figure-front")
    shown = text_of(browser)
    for point in front["points"]:
        assert f"{point['values']['parameters']:,}" in shown
    assert console_errors(browser) == []


def test_axes_are_chosen_without_a_new_page(server, study, browser) -> None:
    base = str(server.http.base_url).rstrip("/")
    browser.get(base + study["links"]["page"])
    browser.execute_script("window.sameDocument = true")

    def title() -> str:
        summary = browser.find_element(By.ID, "figure-front").get_attribute("aria-label")
        return str(summary)

    wait_until(browser, lambda: title().startswith("Front: accuracy over parameters"), "a figure")
    tab_to(browser, "#axis-y")
    press(browser, "t")
    wait_until(browser, lambda: "Front: throughput" in title(), "throughput on the y axis")
    assert "y=throughput" in browser.current_url
    assert browser.switch_to.active_element.get_attribute("id") == "axis-y"
    picture(browser, "study-other-axes")
    assert browser.execute_script("return window.sameDocument")
    assert console_errors(browser) == []


def test_a_point_is_reached_by_keyboard_and_its_checkpoint_downloaded(
    server, study, browser, downloads
) -> None:
    base = str(server.http.base_url).rstrip("/")
    browser.get(base + study["links"]["page"])
    link = tab_to(browser, "#points tr[data-trial] a")
    number = int(link.text)
    press(browser, Keys.ENTER)
    wait_for(browser, f"Trial {number}", "Hyperparameters", "how it was measured")
    picture(browser, "trial")
    tab_to(browser, "main a[href$='/checkpoint']")
    press(browser, Keys.ENTER)
    (path,) = wait_until(
        browser, lambda: list(downloads.glob("*.safetensors")), "the downloaded checkpoint"
    )
    expected = server.http.get(f"{study['links']['study']}/trials/{number}/checkpoint").content
    assert path.read_bytes() == expected
    assert console_errors(browser) == []


def pages_of(study: dict) -> list[str]:
    page = study["links"]["page"]
    return [
        *("/", "/studies/new", f"/studies/new?from={study['id']}", "/datasets", "/models", "/docs"),
        *(page, f"{page}?y=throughput", f"{page}/trials/0", study["links"]["report"]),
    ]


@pytest.mark.slow
def test_no_page_scrolls_sideways_on_a_phone(server, study, browser) -> None:
    base = str(server.http.base_url).rstrip("/")
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        for path in pages_of(study):
            browser.get(base + path)
            picture(browser, f"phone-{path.strip('/').replace('/', '-').partition('?')[0]}")
            assert browser.execute_script(TOO_WIDE, 360) == [], path
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_words_stand_out_in_both_colour_schemes(server, study, browser, scheme: str) -> None:
    base = str(server.http.base_url).rstrip("/")
    wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
    try:
        for path in pages_of(study):
            browser.get(base + path)
            picture(browser, f"{scheme}-{path.strip('/').replace('/', '-').partition('?')[0]}")
            back = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert (back == "rgb(255, 255, 255)") == (scheme == "light"), path
            # The least that WCAG 2.2 asks for (1.4.3, AA) of words that are not large.
            faint = browser.execute_script(FAINT_WORDS, 4.5)
            assert faint == [], path
            assert console_errors(browser) == [], path
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


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
