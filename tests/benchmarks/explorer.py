"""How soon a study's page shows something: `python -m tests.benchmarks.explorer`.

Studies of 200 and of 5,000 trials, made as rows, are opened in Chromium in turn, so that whatever
else the machine does is shared by all. It prints medians, in milliseconds since the navigation
began: the first paint, when the table answers (interactive), and when the front is drawn. Of a
selection it prints how long it takes until the figure shows it, from the click on.

With `--old FOLDER`, a checkout of an earlier version serves the same data beside, and its pages,
whose plot is part of the page, are opened in turn too: ratios are to theirs. The first load of each
page is printed apart: it fetches and compiles the scripts.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from selenium import webdriver

from tests.service.many_trials import many_trials
from tests.service.site import Site

SIZES = (200, 5000)
FIGURES = ("paint", "interactive", "drawn")
_PATIENCE_SECONDS = 120.0

_SERVE = """
import socket, sys
from pathlib import Path
import uvicorn
from service.app import create_app
from service.settings import Settings
app = create_app(Settings(data_dir=Path(sys.argv[1])))
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_config=None)).run(sockets=[listener])
"""

_WATCH = """
window.seen = {};
const look = () => {
  const now = performance.now();
  if (document.body?.classList.contains("scripted")) seen.interactive ??= now;
  const drawn = document.querySelector("#figure-front .points path, svg.plot .marks");
  if (drawn !== null) seen.drawn ??= now;
  if (drawn !== null && drawn.closest("svg.plot")) seen.interactive ??= now;
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  if (paint) seen.paint ??= paint.startTime;
  requestAnimationFrame(look);
};
look();
"""

_SELECT = """
const done = arguments[0];
const begun = performance.now();
document.querySelector("#table input[name=trials]").click();
const look = () => {
  const stands = document.getElementById("figure-front").data.some((one) => one.selectedpoints);
  stands ? done(performance.now() - begun) : requestAnimationFrame(look);
};
look();
"""


@contextmanager
def serving(data: Path, code: Path) -> Generator[str]:
    """A server of the code in a folder, over a data directory; gives its address."""
    environment = {**os.environ, "PYTHONPATH": str(code)}
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(data)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=code,
        env=environment,
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def chromium(folder: Path) -> Generator[webdriver.Chrome]:
    """A browser that notes when something is there."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    words = ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000")
    for word in (*words, f"--user-data-dir={folder}"):
        options.add_argument(word)
    driver = shutil.which("chromedriver")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
    browser.set_script_timeout(_PATIENCE_SECONDS)
    try:
        yield browser
    finally:
        browser.quit()


def opened(browser: webdriver.Chrome, address: str) -> Mapping[str, float]:
    """One load of a page.

    Raises:
        TimeoutError: the front is not drawn within two minutes.
    """
    browser.get(address)
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        seen: dict[str, float] = browser.execute_script("return window.seen")
        if set(FIGURES) <= seen.keys():
            return seen
        time.sleep(0.05)
    raise TimeoutError(f"{address} drew nothing")


def main() -> None:
    """Open the pages, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path, help="a checkout of an earlier version")
    parser.add_argument("--loads", type=int, default=7, help="of each page")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reflectory-explorer-") as folder:
        site = Site(Path(folder, "data"))
        ids = {size: many_trials(site, size, seed=size).id for size in SIZES}
        site.close()
        codes = {"new": Path(__file__).parents[2]} | ({"old": given.old} if given.old else {})
        _measure(Path(folder), codes, ids, given.loads)


def _measure(folder: Path, codes: Mapping[str, Path], ids: Mapping[int, str], loads: int) -> None:
    found: dict[tuple[str, int], list[Mapping[str, float]]] = {}
    selections: dict[int, list[float]] = {size: [] for size in ids}
    with ExitStack() as held:
        addresses = {
            name: held.enter_context(serving(folder / "data", code)) for name, code in codes.items()
        }
        # It goes first: a server waits for those who still listen to a study's events.
        browser = held.enter_context(chromium(folder / "profile"))
        for _ in range(loads + 1):
            for name in codes:
                for size, study in ids.items():
                    seen = opened(browser, f"{addresses[name]}/studies/{study}")
                    found.setdefault((name, size), []).append(seen)
                    if name == "new":
                        selections[size].append(browser.execute_async_script(_SELECT))
    middle = {
        (name, size, figure): statistics.median(one[figure] for one in seen[1:])
        for (name, size), seen in found.items()
        for figure in FIGURES
    }
    lines: list[str] = []
    for (name, size), seen in found.items():
        told = ", ".join(f"{figure} {middle[name, size, figure]:.0f}" for figure in FIGURES)
        first = f"the first load drawn {seen[0]['drawn']:.0f} ms"
        lines.append(f"{name}, {size:5,} trials: {told} ms; {first}")
    for size, shown in selections.items():
        after = statistics.median(shown[1:])
        lines.append(f"selection, {size:5,} trials: shown after {after:.0f} ms")
    for figure in FIGURES:
        grown = middle["new", SIZES[1], figure] / middle["new", SIZES[0], figure]
        words = [f"{SIZES[1]:,} to {SIZES[0]} trials {grown:.2f}x"]
        if "old" in codes:
            words += [
                f"to the old page of {size:,} trials "
                f"{middle['new', size, figure] / middle['old', size, figure]:.2f}x"
                for size in ids
            ]
        lines.append(f"{figure}: {'; '.join(words)}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
