"""One run: a real server with a finished study and a data set, and schemathesis against it.

Whatever is asked, no answer may be a server error, or of a status, type, header or body that the
OpenAPI document does not describe. Half of the requests name things that are there.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.service.model_files import plain, saved
from tests.service.running import Server
from tests.service.test_faults import SMALL
from tests.service.uploading import CSV

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "missing_required_header",
)
PHASES = ("examples", "coverage", "fuzzing", "stateful")

# A stream of a study that runs does not end: it is asked while the study has ended, and alone.
_ENDLESS = "get_events"
# The key that the requests themselves are made with would be revoked.
_OTHERS = ("--exclude-operation-id", _ENDLESS, "--exclude-operation-id", "revoke_api_key")
_COUNT = re.compile(r"(\d+) generated")


@dataclass(frozen=True)
class Fuzzed:
    """What a run did."""

    cases: int
    failed: bool
    report: str


def fuzz(folder: Path, *, examples: int, seed: int, phases: Sequence[str] = PHASES) -> Fuzzed:
    """Ask so many times per operation and phase; the server has to be whole afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    server = Server(folder / "data", workers=1)
    try:
        server.start()
        key = _new_key(server)
        server.http.headers["Authorization"] = f"Bearer {key}"
        finished = server.submit({**SMALL, "budget": {"trials": 2, "epochs": 1}})
        server.wait(finished)
        upload = server.http.post("/v1/datasets", files={"file": ("a.csv", CSV)})
        assert upload.status_code == 201, upload.text
        model = server.http.post("/v1/models", files={"file": ("a.safetensors", saved(plain()))})
        assert model.status_code == 201, model.text
        settings = folder / "schemathesis.toml"
        settings.write_text(_settings(finished, upload.json()["id"], model.json()["id"], key))
        runs = [
            _ask(server, settings, ["--include-operation-id", _ENDLESS], ("fuzzing",), 10, seed),
            _ask(server, settings, _OTHERS, phases, examples, seed),
        ]
        log = server.log.read_text()
        assert "Traceback" not in log, f"the server met an error: {server.log}"
        assert key not in log
        assert server.get("/healthz")["status"] == "alive"
        for number in range(2):
            trial = server.get(f"/v1/studies/{finished}/trials/{number}")
            assert trial["outcome"] == "complete", "what was there is as it was"
        assert server.stop() == 0
    finally:
        server.close()
    return Fuzzed(
        cases=sum(run.cases for run in runs),
        failed=any(run.failed for run in runs),
        report="\n".join(run.report for run in runs),
    )


def _new_key(server: Server) -> str:
    made = server.http.post("/v1/keys", json={"name": "fuzz", "scopes": ["admin"]})
    assert made.status_code == 201, made.text
    return str(made.json()["key"])


def _settings(study_id: str, dataset_id: str, model_id: str, key: str) -> str:
    """Schemathesis' settings: half of the ids are real ones, except where something is deleted."""
    return f"""
headers = {{ Authorization = "Bearer {key}" }}

[dictionaries.studies]
values = ["{study_id}"]
[dictionaries.datasets]
values = ["{dataset_id}"]
[dictionaries.models]
values = ["{model_id}"]
[dictionaries.trials]
values = [0, 1, 2]

[parameters]
"path.study_id" = {{ dictionary = "studies", probability = 0.5 }}
"path.dataset_id" = {{ dictionary = "datasets", probability = 0.5 }}
"path.model_id" = {{ dictionary = "models", probability = 0.5 }}
"path.number" = {{ dictionary = "trials", probability = 0.5 }}

[[operations]]
include-method = "DELETE"
parameters = {{ study_id = "gone", dataset_id = "gone", model_id = "gone" }}
"""


def _ask(
    server: Server,
    settings: Path,
    which: Sequence[str],
    phases: Sequence[str],
    examples: int,
    seed: int,
) -> Fuzzed:
    url = str(server.http.base_url).rstrip("/")
    command = [str(Path(sys.executable).with_name("st")), "--config-file", str(settings)]
    command += ["--no-color", "run", f"{url}/openapi.json", *which]
    command += ["--phases", ",".join(phases), "--checks", ",".join(CHECKS)]
    command += [
        "--max-examples",
        str(examples),
        "--seed",
        str(seed),
        "--generation-database",
        "none",
    ]
    command += ["--request-timeout", "30", "--warnings", "off"]
    run = subprocess.run(command, cwd=settings.parent, capture_output=True, text=True, check=False)
    counted = _COUNT.search(run.stdout)
    assert counted, f"{run.stdout}\n{run.stderr}"
    return Fuzzed(int(counted.group(1)), run.returncode != 0, run.stdout)
