"""`python -m tests.screenshots`: every kind of page, wide and narrow, light and dark, to look at.

Pages are found by following links from the first one; of pages that differ by an id alone, the
first is taken. `--server URL` shows what a server has; without it, rows are made up: a study of 200
trials and one without any.
"""

import argparse
import base64
import re
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.benchmarks.explorer import chromium, serving
from tests.service.many_trials import many_trials
from tests.service.site import Site

ROOT = Path(__file__).parents[1]
_SIZES = {"wide": (1400, 1000), "narrow": (390, 844)}
_THEMES = ("light", "dark")
_TALLEST = 4_000
_SETTLE_SECONDS = 2.0
"""Figures are drawn in less, and pages do not say when they have drawn the last one."""
_SCROLL = "scrollTo(0, arguments[0] * document.documentElement.scrollHeight)"
_ID = re.compile(r"(?<=/)([0-9a-f]{12,}|\d+|(?<=/papers/).+)(?=/|$)")
_ELSEWHERE = re.compile(r"^/(v1|api|static|assets|dashboard|csv|openapi|metrics)\b|^/help/.+/")
"""Files, what programs read, Optuna's own pages, and pages of the documentation but the first."""
_MORE = ("/studies/new", "/no/such/page", "/docs")
"""What no page has to link to."""


def main() -> None:
    """Photograph what `--server` has, or what is made up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", metavar="URL", help="a running server")
    parser.add_argument("--out", type=Path, default=Path("build/screenshots"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="reflectory-pages-") as folder,
        nullcontext(given.server) if given.server else _made_up(Path(folder, "data")) as url,
        chromium(Path(folder, "profile")) as browser,
    ):
        _photographed(browser, url.rstrip("/"), given.out)


@contextmanager
def _made_up(data: Path) -> Generator[str]:
    """A server of a study of 200 trials and of one without any."""
    site = Site(data)
    # Newest first: of pages of one kind the study of 200 trials is shown.
    site.study(name="nothing yet")
    many_trials(site, 200)
    site.close()
    with serving(data, ROOT) as url:
        yield url


def _photographed(browser: webdriver.Chrome, url: str, out: Path) -> None:
    for kind, path in _pages(browser, url).items():
        for size, (width, height) in _SIZES.items():
            for theme in _THEMES:
                _emulate(browser, width, height, theme)
                browser.get(f"{url}{path}")
                # Figures are drawn when they come near the window.
                for part in (0.3, 0.6, 1, 0):
                    browser.execute_script(_SCROLL, part)
                    time.sleep(_SETTLE_SECONDS / 4)
                target = out / f"{kind}-{size}-{theme}.png"
                target.write_bytes(_picture(browser, width))
        sys.stdout.write(f"{path} -> {out / kind}-*.png\n")
        sys.stdout.flush()


def _pages(browser: webdriver.Chrome, url: str) -> dict[str, str]:
    """The path of the first page of each kind, by the kind's name."""
    found: dict[str, str] = {}
    waiting = ["/", *_MORE]
    while waiting:
        path = waiting.pop(0)
        kind = _ID.sub("N", urlsplit(path).path).strip("/").replace("/", "-") or "index"
        if kind in found:
            continue
        found[kind] = path
        browser.get(f"{url}{path}")
        for link in browser.find_elements(By.CSS_SELECTOR, "a[href]:not([download])"):
            there = urldefrag(link.get_attribute("href") or "").url
            if there.startswith(f"{url}/") and not _ELSEWHERE.match(there.removeprefix(url)):
                waiting.append(there.removeprefix(url))
    return found


def _emulate(browser: webdriver.Chrome, width: int, height: int, theme: str) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def _picture(browser: webdriver.Chrome, width: int) -> bytes:
    height = browser.execute_script("return document.documentElement.scrollHeight")
    area = {"x": 0, "y": 0, "width": width, "height": min(height, _TALLEST), "scale": 1}
    shot = browser.execute_cdp_cmd(
        "Page.captureScreenshot", {"clip": area, "captureBeyondViewport": True}
    )
    return base64.b64decode(shot["data"])


if __name__ == "__main__":
    main()
