"""The picture of a front: what `tests.benchmarks.showcase` measured, as the server draws fronts.

Chromium draws the figure by the Plotly of the installed wheel. Each picture carries the digest of
its figure, so that a test can tell a stale one without a browser.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from re import DOTALL, search

from search.documents.fronts import ObjectiveInfo
from search.documents.objectives import Objective
from search.fronts.dominance import front_of
from service.figures.front import front_figure
from service.figures.shown import ShownStudy
from service.figures.style import Json, Theme
from service.rendering.plotly_bundle import plotly_bundle
from storage.records import TrialOrigin, TrialState
from storage.repositories.trial_summaries import TrialSummary
from tests.benchmarks.showcase import results
from tests.benchmarks.showcase.networks import ORIGINAL

THEMES: tuple[Theme, ...] = ("light", "dark")
_WIDTH, _HEIGHT = 960, 520

_INFOS: Mapping[Objective, ObjectiveInfo] = {
    "quality": ObjectiveInfo(
        name="quality", metric="accuracy", direction="maximize", unit="fraction of images"
    ),
    "parameters": ObjectiveInfo(
        name="parameters", metric="parameters", direction="minimize", unit="numbers"
    ),
}


def figure(theme: Theme) -> Json:
    """All networks of the showcase, originals among them, over parameters and accuracy."""
    found = results.load()
    trials = [
        TrialSummary(
            number=number,
            state=TrialState.COMPLETE,
            origin=TrialOrigin.SAMPLER,
            quality=run.validation,
            parameters=run.parameters,
            throughput=None,
            measurement_id=None,
            continues=None,
            finished_at=None,
            architecture=run.cell,
            parametrization="dense" if run.form == ORIGINAL else run.form.partition(",")[0],
            dense_parameters=found.of(run.network, ORIGINAL)[0].parameters,
            throughput_ratio=None,
            latency_p50=None,
            latency_p99=None,
            bytes=None,
            violation=None,
            predicted={},
            best_epoch=1,
        )
        for number, run in enumerate(found.runs)
    ]
    front = front_of(trials, list(_INFOS.values()))
    made = front_figure(
        ShownStudy(
            trials=trials,
            on_front=frozenset(trial.number for trial in front),
            infos=_INFOS,
            own=("quality", "parameters"),
        ),
        theme=theme,
    )
    # A page zooms to the front, and its reader out again; a picture shows everything.
    for axis in ("xaxis", "yaxis"):
        made["layout"][axis].pop("range", None)
        made["layout"][axis]["autorange"] = True
    return made


def digest(theme: Theme) -> str:
    """Of the figure; the picture names it."""
    return hashlib.sha256(json.dumps(figure(theme), sort_keys=True).encode()).hexdigest()


def drawn(theme: Theme) -> str:
    """The picture, as SVG.

    Raises:
        RuntimeError: Chromium is not installed, or draws nothing.
    """
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise RuntimeError("chromium is not installed; pictures of fronts are drawn by it")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(_page(figure(theme)), encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        run = subprocess.run(
            [
                *command,
                f"--user-data-dir={folder}/profile",
                "--virtual-time-budget=20000",
                str(page),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    match = search(r'<pre id="picture">(.+?)</pre>', run.stdout, DOTALL)
    if match is None:
        raise RuntimeError(f"chromium drew nothing: {run.stderr[-500:]}")
    return f"<!-- figure {digest(theme)} -->\n{unescape(match[1])}\n"


def _page(found: Json) -> str:
    words = json.dumps(found).replace("<", "\\u003c")
    return f"""<!DOCTYPE html>
<html><head><meta charset="utf-8"><script>{plotly_bundle().script}</script></head><body>
<div id="figure"></div><pre id="picture"></pre>
<script>
const found = {words};
Plotly.newPlot("figure", found.data, found.layout, found.config)
  .then(() => Plotly.toImage("figure", {{format: "svg", width: {_WIDTH}, height: {_HEIGHT}}}))
  .then(url => {{
    const text = decodeURIComponent(url.slice(url.indexOf(",") + 1));
    document.getElementById("picture").textContent = text;
  }});
</script></body></html>
"""
