"""`python -m tests.openapi_examples`: asks a real server everything, and keeps what it answers.

`service/api/openapi_examples.json` holds the example of each operation's JSON answer, by operation
and status, which the OpenAPI document shows; a test holds them to the schemas. Long lists are cut.
"""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from service.api.openapi import EXAMPLES
from tests.service.model_files import plain, saved
from tests.service.running import Server
from tests.service.uploading import CSV

SPEC: dict[str, Any] = {
    "name": "small digits",
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank_diagonal"],
    # An activation that torch's own layers have, so that there is a dense file.
    "space": {"hidden_size": {"low": 8, "high": 16}, "activation": "tanh"},
    "budget": {"trials": 4, "epochs": 2},
}
SEVERAL: dict[str, Any] = {
    **{name: part for name, part in SPEC.items() if name not in ("name", "task")},
    "name": "rows and pixels",
    "tasks": [{"kind": "digits"}, {"kind": "digits", "layout": "pixels"}],
    "space": {
        "hidden_size": 8,
        "low_rank_diagonal.d": 2,
        "training.learning_rate": 0.01,
        "training.batch_size": 64,
    },
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "grid"},
    "budget": {"trials": 2, "epochs": 1},
    "collection_budget": {"device_hours": 1.0},
}
"""Each of its studies trains a model of each kind."""
_ITEMS = 2

_SECRETS = {
    "rfl_": "rfl_what-was-told-when-the-key-was-made",
    "whsec_": "whsec_d2hhdCBvbmx5IHRoZSB0ZW5hbnQncyBhZG1pbnMga25vdw==",
}

_NAMES = {"machine": "first"}
"""What the machine that ran this need not tell."""


def examples(folder: Path) -> dict[str, dict[str, Any]]:
    """What a server answers to every operation that answers in JSON, its workers' excepted."""
    server = Server(folder / "data", workers=1)
    found: dict[str, dict[str, Any]] = {}
    try:
        server.start()
        document = server.get("/openapi.json")
        known = {"study_id": "", "number": "0", "dataset_id": "", "model_id": "", "key_id": ""}
        known |= {"table": "highway", "name": "growth"}

        def ask(method: str, path: str, **given: Any) -> Any:
            url = re.sub(r"{(\w+)}", lambda match: known[match[1]], path)
            answer = server.http.request(method, url, **given)
            operation = document["paths"][path][method.lower()]["operationId"]
            assert answer.status_code < 400, (path, answer.text)
            if answer.headers.get("Content-Type") != "application/json":
                return None
            found.setdefault(operation, {})[str(answer.status_code)] = _short(answer.json())
            return answer.json()

        ask("POST", "/v1/studies", json=SPEC, params={"dry_run": True})
        known["study_id"] = ask("POST", "/v1/studies", json=SPEC)["id"]
        for step in ("pause", "resume"):
            ask("POST", f"/v1/studies/{{study_id}}/{step}")
        server.wait(known["study_id"])
        ask("POST", "/v1/collections", json=SEVERAL, params={"dry_run": True})
        collection = ask("POST", "/v1/collections", json=SEVERAL)
        known["collection_id"] = collection["id"]
        for step in ("pause", "resume"):
            ask("POST", f"/v1/collections/{{collection_id}}/{step}")
        for member in collection["studies"]:
            server.wait(member["study"])
        known["dataset_id"] = ask("POST", "/v1/datasets", files={"file": ("a.csv", CSV)})["id"]
        ask("POST", "/v1/datasets", files={"file": ("a.csv", CSV)})
        model = {"file": ("gru.safetensors", saved(plain(outputs=10)))}
        known["model_id"] = ask("POST", "/v1/models", files=model)["id"]
        ask("POST", "/v1/models", files=model)
        one = "/v1/studies/{study_id}/trials/{number}"
        for path, methods in document["paths"].items():
            is_of_workers = path.startswith("/v1/agents/")
            if "get" in methods and not is_of_workers and not path.endswith(("/events", "/bundle")):
                params = {"studies": known["study_id"]} if path.endswith("/compare") else {}
                ask("GET", path, params=params)
        named = {"architecture": "rnn", "parametrization": "dense"}
        ask("POST", "/v1/studies/{study_id}/trials", json=named)
        ask("PATCH", "/v1/studies/{study_id}", json={"budget": {"trials": 6}})
        ask("POST", f"{one}/measure")
        ask("POST", "/v1/studies/{study_id}/cancel")
        ask("POST", "/v1/collections/{collection_id}/cancel")
        # From here on the local user needs one, too.
        made = server.http.post("/v1/keys", json={"name": "laptop", "scopes": ["admin"]})
        server.http.headers["Authorization"] = f"Bearer {made.json()['key']}"
        wanted = {"name": "laptop", "scopes": ["write"], "expires_in": "90d"}
        known["key_id"] = ask("POST", "/v1/keys", json=wanted)["id"]
        ask("POST", "/v1/keys/{key_id}/rotate", json={"overlap": "7d"})
        ask("GET", "/v1/keys")
    finally:
        server.close()
    return found


def _short(value: Any) -> Any:
    """The same with the first items of lists only, and without anything that opens a door."""
    if isinstance(value, list):
        return [_short(item) for item in value[:_ITEMS]]
    if isinstance(value, dict):
        return {name: _NAMES.get(name) or _short(item) for name, item in value.items()}
    if isinstance(value, str):
        return next((told for mark, told in _SECRETS.items() if value.startswith(mark)), value)
    return value


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory(prefix="reflectory-examples-") as folder:
        found = examples(Path(folder))
    EXAMPLES.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
