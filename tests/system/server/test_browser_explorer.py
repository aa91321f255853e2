"""The explorer of a study in a real Chromium: what is chosen anywhere stands out everywhere."""

import re
from collections.abc import Generator
from urllib.parse import parse_qs, urlparse

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from service.figures.numbers import read_numbers
from storage.records import StudyRecord
from tests.service.listening import listening
from tests.service.many_trials import many_trials
from tests.service.site import Site
from tests.system.server.test_browser import (
    FAINT_WORDS,
    TOO_WIDE,
    browser,
    console_errors,
    downloads,
    drawn,
    picture,
    press,
    tab_to,
    wait_until,
)

__all__ = ["browser", "downloads"]

pytestmark = pytest.mark.browser

FRONT = "figure-front"
TRIALS = 60

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  violations.push(`${event.effectiveDirective} ${event.sourceFile}`);
});
"""

PLACES = """
const [id, wanted] = arguments;
const box = document.getElementById(id);
const found = {};
for (const trace of box.data) {
  const [x, y] = [box._fullLayout.xaxis, box._fullLayout.yaxis];
  const at = box.getBoundingClientRect();
  (trace.customdata ?? []).forEach((number, place) => {
    if (wanted.includes(number) && (trace.xaxis ?? "x") === "x") {
      const [a, b] = [x.d2p(trace.x[place]), y.d2p(trace.y[place])];
      found[number] = [at.left + x._offset + a, at.top + y._offset + b];
    }
  });
}
return found;
"""
"""Where trials are in the window."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    site = Site(tmp_path_factory.mktemp("explorer"))
    yield site
    site.close()


@pytest.fixture(scope="module")
def study(site: Site) -> StudyRecord:
    return many_trials(site, TRIALS, name="sixty trials")


@pytest.fixture(scope="module")
def base(site: Site, study: StudyRecord, browser: webdriver.Chrome) -> Generator[str]:
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    with listening(site) as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture
def page(base: str, study: StudyRecord, browser: webdriver.Chrome) -> Generator[str]:
    """The study's page, drawn; nothing on it may be against the policy, or end in an error."""
    address = f"{base}/studies/{study.id}"
    browser.get(address)
    drawn(browser, FRONT)
    yield address
    assert browser.execute_script("return window.violations") == []
    assert console_errors(browser) == []


def query(browser: webdriver.Chrome, name: str) -> list[str]:
    return parse_qs(urlparse(browser.current_url).query).get(name, [])


def in_address(browser: webdriver.Chrome) -> set[int]:
    return set(read_numbers(",".join(query(browser, "trials"))))


ROWS = """
return [...document.querySelectorAll(`#table tr${arguments[0]}`)].map((row) => +row.dataset.trial);
"""


def rows(browser: webdriver.Chrome, chosen: str = "[data-trial]") -> list[int]:
    return browser.execute_script(ROWS, chosen)


def chosen_rows(browser: webdriver.Chrome) -> set[int]:
    return set(rows(browser, ".chosen"))


def outstanding(browser: webdriver.Chrome, figure: str = FRONT) -> set[int]:
    script = f"""
    const found = new Set();
    for (const trace of document.getElementById("{figure}").data) {{
      (trace.selectedpoints ?? []).forEach((place) => found.add(trace.customdata[place]));
    }}
    return [...found];
    """
    return set(browser.execute_script(script))


def select_box(
    browser: webdriver.Chrome, start: tuple[float, float], end: tuple[float, float]
) -> None:
    chain = ActionChains(browser, duration=50)
    chain.w3c_actions.pointer_action.move_to_location(*map(round, start))
    chain.w3c_actions.pointer_action.pointer_down()
    middle = [(a + b) / 2 for a, b in zip(start, end, strict=True)]
    chain.w3c_actions.pointer_action.move_to_location(*map(round, middle))
    chain.w3c_actions.pointer_action.move_to_location(*map(round, end))
    chain.w3c_actions.pointer_action.pointer_up()
    chain.perform()


def mode(browser: webdriver.Chrome, figure: str, title: str) -> None:
    button = f"#{figure} .modebar-btn[data-title='{title}']"
    browser.execute_script("document.querySelector(arguments[0]).click()", button)


def test_a_box_selects_rows_curves_and_the_address_and_a_reload_keeps_them(
    page: str, study: StudyRecord, browser: webdriver.Chrome
) -> None:
    places = browser.execute_script(PLACES, FRONT, list(range(TRIALS)))
    x, y = next(iter(places.values()))
    mode(browser, FRONT, "Box Select")
    select_box(browser, (x - 40, y - 40), (x + 40, y + 40))
    chosen = wait_until(browser, lambda: in_address(browser), "a selection in the address")
    inside = {
        int(number) for number, (a, b) in places.items() if abs(a - x) < 39 and abs(b - y) < 39
    }
    assert inside <= chosen
    wait_until(browser, lambda: chosen_rows(browser) == chosen, "its rows")
    assert outstanding(browser) == chosen
    picture(browser, "study-selection")
    browser.get(browser.current_url)
    drawn(browser, FRONT)
    assert in_address(browser) == chosen
    assert chosen_rows(browser) == chosen
    assert outstanding(browser) == chosen
    text = browser.find_element(By.ID, "chosen").text
    assert f"{len(chosen)} selected" in text


def test_what_is_ticked_in_the_table_stands_out_in_the_figures(
    page: str, browser: webdriver.Chrome
) -> None:
    tab_to(browser, "#table input[name=trials]")
    press(browser, " ", Keys.ARROW_DOWN, Keys.ARROW_DOWN, " ")
    wait_until(browser, lambda: in_address(browser) == {0, 2}, "two trials in the address")
    wait_until(browser, lambda: outstanding(browser) == {0, 2}, "two points that stand out")
    assert drawn(browser, "figure-curves") == {0, 2}
    wait_until(browser, lambda: "2 selected" in browser.find_element(By.ID, "chosen").text, "count")
    press(browser, "p")
    wait_until(browser, lambda: query(browser, "pins") == ["2"], "a pin in the address")
    wait_until(browser, lambda: "Pinned trials" in browser.find_element(By.ID, "pinned").text, "it")


def test_pins_stand_side_by_side(page: str, browser: webdriver.Chrome) -> None:
    browser.get(f"{page}?pins=1,4")
    shown = browser.find_element(By.ID, "pinned")
    assert len(shown.find_elements(By.CSS_SELECTOR, "thead a[href*='/trials/']")) == 2
    assert shown.find_elements(By.CSS_SELECTOR, "tr.differs")
    browser.execute_script(
        "document.querySelector('#pinned a[data-go]').scrollIntoView({block: 'center'})"
    )
    shown.find_element(By.CSS_SELECTOR, "a[aria-label='Unpin trial 1']").click()
    wait_until(browser, lambda: query(browser, "pins") == ["4"], "one pin less")


def test_the_table_is_filtered_and_sorted_without_a_new_page(
    page: str, browser: webdriver.Chrome
) -> None:
    browser.execute_script("window.sameDocument = true")
    field = browser.find_element(By.ID, "where")
    field.send_keys("d<=8 accuracy>0.5")
    wait_until(browser, lambda: 0 < len(rows(browser)) < TRIALS / 2, "fewer rows")
    assert query(browser, "where") == ["d<=8 accuracy>0.5"]
    browser.execute_script("document.querySelector('#table th a[href*=\"sort=quality\"]').click()")
    wait_until(browser, lambda: query(browser, "sort") == ["quality"], "another order")

    def qualities() -> list[float]:
        cells = "#table td[data-label='accuracy']"
        return [float(cell.text) for cell in browser.find_elements(By.CSS_SELECTOR, cells)]

    wait_until(browser, lambda: (q := qualities()) and q == sorted(q, reverse=True), "that order")
    field.send_keys(" nonsense")
    alert = "#chosen [role=alert]"
    wait_until(
        browser,
        lambda: "is no condition" in browser.find_element(By.CSS_SELECTOR, alert).text,
        "what is wrong",
    )
    assert browser.execute_script("return window.sameDocument")


def test_a_zoom_by_dragging_survives_an_event_and_the_legend_hides(
    page: str, site: Site, study: StudyRecord, browser: webdriver.Chrome
) -> None:
    scale = f"return document.getElementById('{FRONT}')._fullLayout.xaxis.range"
    before = browser.execute_script(scale)
    box = browser.find_element(By.CSS_SELECTOR, f"#{FRONT} .nsewdrag").rect
    top = browser.execute_script("return window.scrollY")
    x, y = box["x"] + box["width"] / 4, box["y"] - top + box["height"] / 4
    select_box(browser, (x, y), (x + box["width"] / 3, y + box["height"] / 3))
    zoomed = wait_until(
        browser, lambda: (now := browser.execute_script(scale)) != before and now, "a zoom"
    )
    hidden = f"""
    return [...document.querySelectorAll("#{FRONT} .legend .traces")]
      .find((item) => item.textContent.includes("low_rank"))?.style.opacity;
    """
    toggle = f"""
    [...document.querySelectorAll("#{FRONT} .legend .traces")]
      .find((item) => item.textContent.includes("low_rank"))
      .querySelector(".legendtoggle").dispatchEvent(new MouseEvent("{{}}", {{{{bubbles: true}}}}));
    """
    for event in ("mousedown", "mouseup"):
        browser.execute_script(toggle.format(event))
    wait_until(browser, lambda: browser.execute_script(hidden) == "0.5", "a hidden parametrization")
    number = site.trial(study, TRIALS, quality=0.999, parameters=60_000, throughput=9.0).number
    wait_until(browser, lambda: number in rows(browser), "the new trial in the table")
    wait_until(browser, lambda: number in drawn(browser, FRONT), "the new trial in the figure")
    assert browser.execute_script(scale) == zoomed
    assert browser.execute_script(hidden) == "0.5"


def test_brushes_over_two_axes_mean_both(page: str, browser: webdriver.Chrome) -> None:
    figure = "figure-parallel"
    drawn(browser, figure)
    places = """
    const box = document.getElementById("figure-parallel");
    const [at, x, y] = [box.getBoundingClientRect(), box._fullLayout.xaxis, box._fullLayout.yaxis];
    return [x.tickvals, x.ticktext, x.tickvals.map((value) => at.left + x._offset + x.d2p(value)),
            at.top + y._offset + y.d2p(1.04), at.top + y._offset + y.d2p(0.5)];
    """
    _, names, across, top, middle = browser.execute_script(places)
    by_name = dict(zip((re.sub(r"<br>", "", name) for name in names), across, strict=True))
    quality, size = by_name["accuracy"], by_name["parameters (log)"]
    select_box(browser, (quality - 12, top), (quality + 12, middle))
    one = wait_until(browser, lambda: in_address(browser), "one brush")
    ActionChains(browser).key_down(Keys.SHIFT).perform()
    select_box(browser, (size - 12, top), (size + 12, middle))
    ActionChains(browser).key_up(Keys.SHIFT).perform()
    both = wait_until(
        browser, lambda: (now := in_address(browser)) != one and now, "what is in both"
    )
    assert both < one


def test_a_brush_leaves_out_what_the_legend_hides(page: str, browser: webdriver.Chrome) -> None:
    figure = "figure-parallel"
    drawn(browser, figure)
    toggle = browser.find_element(By.CSS_SELECTOR, "#figure-parallel .legendtoggle")
    ActionChains(browser).move_to_element(toggle).click().perform()
    hidden_numbers = """
    const box = document.getElementById("figure-parallel");
    const hidden = box._fullData.filter((trace) => trace.visible === "legendonly");
    const numbers = hidden.flatMap((trace) => box.data[trace.index].customdata ?? []);
    return numbers.filter((number) => number !== null);
    """
    hidden = wait_until(browser, lambda: browser.execute_script(hidden_numbers), "what is hidden")
    places = """
    const box = document.getElementById("figure-parallel");
    const [at, x, y] = [box.getBoundingClientRect(), box._fullLayout.xaxis, box._fullLayout.yaxis];
    const quality = x.ticktext.findIndex((name) => name.replace("<br>", "") === "accuracy");
    return [at.left + x._offset + x.d2p(x.tickvals[quality]),
            at.top + y._offset + y.d2p(1.04), at.top + y._offset + y.d2p(-0.04)];
    """
    quality, top, bottom = browser.execute_script(places)
    select_box(browser, (quality - 12, top), (quality + 12, bottom))
    chosen = wait_until(browser, lambda: in_address(browser), "a brush over all qualities")
    assert not chosen & set(hidden)


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_reads_well_in_every_width_and_scheme(
    base: str, study: StudyRecord, browser: webdriver.Chrome, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
    try:
        for path in ("?trials=1-3&pins=1,2", "/trials/0"):
            browser.get(f"{base}/studies/{study.id}{path}")
            drawn(browser, "figure-curves")
            picture(browser, f"explorer-{scheme}-{width}{'-trial' * path.startswith('/')}")
            assert browser.execute_script(TOO_WIDE, width) == [], path
            if width > 600:
                # Of the pages' own words; those in pictures stand on colours of their own.
                faint = [w for w in browser.execute_script(FAINT_WORDS, 4.5) if "text " not in w]
                assert faint == [], path
            assert browser.execute_script("return window.violations") == []
            assert console_errors(browser) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_without_a_script_tables_are_complete_and_forms_lead_on(
    base: str, study: StudyRecord, browser: webdriver.Chrome
) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(f"{base}/studies/{study.id}")
        found = browser.find_elements(By.CSS_SELECTOR, "#table tr[data-trial]")
        assert len(found) >= TRIALS
        assert "the picture needs JavaScript" in browser.find_element(By.TAG_NAME, "body").text
        browser.find_element(By.ID, "where").send_keys("trial<3", Keys.ENTER)
        row = "#table tr[data-trial]"
        wait_until(
            browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, row)) == 3, "three rows"
        )
        browser.find_elements(By.CSS_SELECTOR, f"{row} button.pin")[1].click()
        wait_until(
            browser, lambda: "Pinned trials" in browser.find_element(By.ID, "pinned").text, "a pin"
        )
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_report_draws_in_its_sandbox(
    base: str, study: StudyRecord, browser: webdriver.Chrome
) -> None:
    browser.get(f"{base}/v1/studies/{study.id}/report")
    count = "return document.querySelectorAll('[data-place] .main-svg').length"
    places = len(browser.find_elements(By.CSS_SELECTOR, "[data-place]"))
    assert places >= 6
    wait_until(browser, lambda: browser.execute_script(count) >= places, "its figures")
    picture(browser, "report")
    assert browser.execute_script("return window.violations") == []
    assert console_errors(browser) == []
