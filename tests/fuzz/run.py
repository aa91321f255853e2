"""One run: a real server with a finished study and a data set, and schemathesis against it.

Whatever is asked, no answer may be a server error, or of a status, type, header or body that the
OpenAPI document does not describe. Half of the requests name things that are there, and half of the
JSON bodies have a lone surrogate or such a name somewhere, see `tests.fuzz.hooks`.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.engine import Database
from storage.records import AttemptKind
from storage.repositories.attempts import Attempts
from tests.fuzz.hooks import IDS
from tests.service.model_files import plain, saved
from tests.service.running import Server
from tests.service.uploading import CSV
from tests.system.faults.test_faults import SMALL

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
# The key that the requests themselves are made with would be revoked, were ids found by the way.
_REVOKING = "revoke_api_key"
_OTHERS = ("--exclude-operation-id", _ENDLESS, "--exclude-operation-id", _REVOKING)
_ROOT = Path(__file__).parents[2]
_COUNT = re.compile(r"(\d+) generated")


@dataclass(frozen=True)
class Known:
    """The ids of what is there."""

    study: str
    dataset: str
    model: str
    keys: tuple[str, ...]
    """Of keys that may be revoked."""
    attempts: tuple[str, ...]

    @property
    def all(self) -> list[str]:
        """In one list."""
        return [self.study, self.dataset, self.model, *self.keys, *self.attempts]


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
        _, key = _new_key(server)
        server.http.headers["Authorization"] = f"Bearer {key}"
        finished = server.submit({**SMALL, "budget": {"trials": 2, "epochs": 1}})
        server.wait(finished)
        upload = server.http.post("/v1/datasets", files={"file": ("a.csv", CSV)})
        assert upload.status_code == 201, upload.text
        model = server.http.post("/v1/models", files={"file": ("a.safetensors", saved(plain()))})
        assert model.status_code == 201, model.text
        known = Known(
            study=finished,
            dataset=upload.json()["id"],
            model=model.json()["id"],
            keys=tuple(_new_key(server)[0] for _ in range(3)),
            attempts=_attempts(folder / "data", finished),
        )
        settings = folder / "schemathesis.toml"
        settings.write_text(_settings(known, key))
        runs = [
            _ask(server, settings, known, which, some, count, seed)
            for which, some, count in (
                (("--include-operation-id", _ENDLESS), ("fuzzing",), 10),
                (("--include-operation-id", _REVOKING), ("fuzzing",), 10),
                (_OTHERS, phases, examples),
            )
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


def _attempts(data_dir: Path, study_id: str) -> tuple[str, ...]:
    """Attempts are named to their workers alone."""
    database = Database(f"sqlite:///{data_dir / 'reflectory.db'}")
    try:
        with database.read() as session:
            return tuple(one.id for one in Attempts(session).of_study(study_id, AttemptKind.TRAIN))
    finally:
        database.dispose()


def _new_key(server: Server) -> tuple[str, str]:
    """The id of a new key, and the key."""
    made = server.http.post("/v1/keys", json={"name": "fuzz", "scopes": ["admin"]})
    assert made.status_code == 201, made.text
    return str(made.json()["id"]), str(made.json()["key"])


def _settings(known: Known, key: str) -> str:
    """Schemathesis' settings: half of the ids are real ones, except where something is deleted."""
    return f"""
headers = {{ Authorization = "Bearer {key}" }}

[dictionaries.studies]
values = ["{known.study}"]
[dictionaries.datasets]
values = ["{known.dataset}"]
[dictionaries.models]
values = ["{known.model}"]
[dictionaries.keys]
values = {json.dumps(known.keys)}
[dictionaries.attempts]
values = {json.dumps(known.attempts)}
[dictionaries.trials]
values = [0, 1, 2]

[parameters]
"path.study_id" = {{ dictionary = "studies", probability = 0.5 }}
"path.dataset_id" = {{ dictionary = "datasets", probability = 0.5 }}
"path.model_id" = {{ dictionary = "models", probability = 0.5 }}
"path.key_id" = {{ dictionary = "keys", probability = 0.5 }}
"path.attempt_id" = {{ dictionary = "attempts", probability = 0.5 }}
"path.number" = {{ dictionary = "trials", probability = 0.5 }}

[[operations]]
include-method = "DELETE"
parameters = {{ study_id = "gone", dataset_id = "gone", model_id = "gone" }}
"""


def _ask(
    server: Server,
    settings: Path,
    known: Known,
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
    # Found from the sources, wherever the command runs.
    hooks = {"SCHEMATHESIS_HOOKS": "tests.fuzz.hooks", "PYTHONPATH": str(_ROOT)}
    run = subprocess.run(
        command,
        cwd=settings.parent,
        env={**os.environ, **hooks, IDS: json.dumps(known.all)},
        capture_output=True,
        text=True,
        check=False,
    )
    counted = _COUNT.search(run.stdout)
    assert counted, f"{run.stdout}\n{run.stderr}"
    return Fuzzed(int(counted.group(1)), run.returncode != 0, run.stdout)
