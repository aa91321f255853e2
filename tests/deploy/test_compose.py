"""The compose file: valid by the specification's schema, closed by default, whole."""

import json
import re
import subprocess
from importlib.resources import files
from ipaddress import ip_address, ip_network
from typing import Any

import jsonschema
import pytest
from jsonschema.validators import validator_for

from tests.deploy.files import DEPLOY, ROOT, compose

OURS = [name for name, service in compose()["services"].items() if "build" in service]
ONCE = {"bucket", "migrate", "cli"}


def test_it_is_what_the_compose_specification_allows() -> None:
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    document = json.loads(schema.read_text())
    validator = validator_for(document)(document)
    validator.validate(compose())
    broken = compose()
    broken["services"]["proxy"]["restarts"] = "always"
    with pytest.raises(jsonschema.ValidationError, match="restarts"):
        validator.validate(broken)


def test_what_it_asks_of_the_environment_is_in_the_example_and_nothing_else_is() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+)", text))
    example = (DEPLOY / ".env.example").read_text()
    assert asked == set(re.findall(r"^(\w+)=", example, re.MULTILINE))
    secrets = [name for name in asked if re.search("SECRET|PASSWORD|KEY", name)]
    assert len(secrets) >= 4
    for name in secrets:
        assert re.search(rf"^{name}=$", example, re.MULTILINE), f"{name} has a default"
        assert f"${{{name}:-" not in text or f"${{{name}:-}}" in text


def test_a_file_of_secrets_cannot_be_committed() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("these are not sources under git")
    ignored = subprocess.run(["git", "check-ignore", "-q", "deploy/.env"], cwd=ROOT, check=False)
    assert ignored.returncode == 0


@pytest.mark.parametrize("name", compose()["services"])
def test_a_service_is_closed_and_limited(name: str) -> None:
    service = compose()["services"][name]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["restart"] in ({"no", "on-failure:10"} if name in ONCE else {"unless-stopped"})
    assert "healthcheck" in service or name.startswith("api")
    if "build" not in service:
        assert re.search(r":\d[\w.-]*@sha256:[0-9a-f]{64}$", service["image"])
    assert set(service.get("ports", [])) <= {
        "${LISTEN:-127.0.0.1:8080}:8080",
        "${LISTEN_MACHINES:-127.0.0.1:8081}:8081",
    }
    limits = service["deploy"]["resources"]["limits"]
    assert limits["memory"]
    assert limits["pids"]
    if name != "s3":
        # SeaweedFS's own start script gives its folder to its user, and needs to be root for that.
        assert service["read_only"] is True
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])


@pytest.mark.parametrize("name", compose()["services"])
def test_what_a_service_refers_to_is_there(name: str) -> None:
    document = compose()
    service = document["services"][name]
    for other, wish in service.get("depends_on", {}).items():
        needed = document["services"][other]
        if wish["condition"] == "service_healthy":
            assert "test" in needed["healthcheck"]
        if wish["condition"] == "service_completed_successfully":
            assert other in ONCE
    assert set(service["networks"]) <= set(document["networks"])
    for volume in service.get("volumes", []):
        source = volume.partition(":")[0]
        assert source in document["volumes"] or (DEPLOY / source).is_file(), volume
    for configuration in service.get("configs", []):
        assert configuration["source"] in document["configs"]


def test_everything_that_keeps_rows_waits_for_the_migration() -> None:
    for name in OURS:
        if name not in ONCE | {"worker"}:
            assert "migrate" in compose()["services"][name]["depends_on"], name


def test_the_api_believes_the_proxy_alone_about_where_requests_came_from() -> None:
    document = compose()
    proxy = document["services"]["proxy"]
    address = proxy["networks"]["front"]["ipv4_address"]
    (subnet,) = document["networks"]["front"]["ipam"]["config"]
    assert ip_address(address) in ip_network(subnet["subnet"])
    # Others are given addresses from elsewhere.
    assert ip_address(address) not in ip_network(subnet["ip_range"])
    for name, service in document["services"].items():
        if name.startswith("api"):
            assert service["environment"]["REFLECTORY_TRUSTED_PROXIES"] == address
            # It meets the proxy in one network, where that has this address.
            assert set(service["networks"]) & set(proxy["networks"]) == {"front"}
            assert "ports" not in service


def test_machines_come_in_by_their_own_port() -> None:
    services = compose()["services"]
    assert services["worker"]["command"][-1] == "http://proxy:8081"
    for name in ("coordinator-1", "coordinator-2"):
        assert services[name]["environment"]["REFLECTORY_URL"] == "http://proxy:8081"


def test_workers_see_neither_database_nor_bucket() -> None:
    worker = compose()["services"]["worker"]
    assert "back" not in worker["networks"]
    assert set(worker["environment"]) == {"REFLECTORY_KEY"}


def test_the_buckets_credentials_become_a_document() -> None:
    text: Any = compose()["configs"]["s3"]["content"]
    filled = re.sub(r"\$\{\w+\}", "0123abc", text)
    (identity,) = json.loads(filled)["identities"]
    assert identity["credentials"] == [{"accessKey": "0123abc", "secretKey": "0123abc"}]
