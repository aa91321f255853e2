"""The manifests: valid by Kubernetes' own schemas, as closed as `restricted` asks, whole."""

import re
import shutil
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.files import DEPLOY, known_variables, manifests

OBJECTS = [(f"{file}: {document['kind']}", document) for file, document in manifests()]
VERSIONS = ("1.31", kubernetes_validate.latest_version())
PODS = {
    f"{document['kind']} {document['metadata']['name']}": document["spec"]["template"]
    for _, document in OBJECTS
    if "template" in document.get("spec", {})
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("name", "document"), OBJECTS, ids=[name for name, _ in OBJECTS])
def test_it_is_what_kubernetes_takes(name: str, document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_field_that_does_not_exist_is_found() -> None:
    broken = next(dict(document) for _, document in OBJECTS if document["kind"] == "Deployment")
    broken["spec"] = {**broken["spec"], "replica": 2}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_asks_for_nothing_that_restricted_refuses(name: str) -> None:
    spec = PODS[name]["spec"]
    assert spec["automountServiceAccountToken"] is False
    whole = spec["securityContext"]
    assert whole["runAsNonRoot"] is True
    assert whole["runAsUser"] == 10001
    assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"]["cpu"]
    assert all("hostPath" not in volume for volume in spec["volumes"])


@pytest.mark.parametrize("name", PODS)
def test_what_a_pod_refers_to_is_there(name: str) -> None:
    spec = PODS[name]["spec"]
    kinds = {(document["kind"], document["metadata"]["name"]) for _, document in OBJECTS}
    assert ("ServiceAccount", spec["serviceAccountName"]) in kinds
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in spec["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert {"/data", "/tmp"} <= {mount["mountPath"] for mount in container["volumeMounts"]}
        for source in container["envFrom"]:
            if "configMapRef" in source:
                assert ("ConfigMap", source["configMapRef"]["name"]) in kinds
        assert container["image"] == "reflectory"


def test_no_file_holds_a_secret() -> None:
    assert all(document["kind"] != "Secret" for _, document in OBJECTS)
    (settings,) = (document for _, document in OBJECTS if document["kind"] == "ConfigMap")
    assert set(settings["data"]) <= known_variables()


def test_every_pod_has_its_network_rules_and_twins_their_budget() -> None:
    policies = [document["spec"] for _, document in OBJECTS if document["kind"] == "NetworkPolicy"]
    assert any(
        policy["podSelector"] == {}
        and set(policy["policyTypes"]) == {"Ingress", "Egress"}
        and "ingress" not in policy
        and "egress" not in policy
        for policy in policies
    ), "what is not allowed is not refused"
    labels = {pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in PODS.values()}
    selected: set[str] = set()
    for policy in policies:
        selector = policy["podSelector"]
        selected |= set(selector.get("matchLabels", {}).values())
        for expression in selector.get("matchExpressions", []):
            selected |= set(expression["values"])
    assert labels == selected
    budgets = {
        document["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]
        for _, document in OBJECTS
        if document["kind"] == "PodDisruptionBudget"
    }
    assert budgets == {"api", "coordinator"}


def test_what_comes_in_comes_from_pods_that_are_named() -> None:
    """A namespace by itself lets every pod of it in, and an address whoever has it."""
    policies = [document["spec"] for _, document in OBJECTS if document["kind"] == "NetworkPolicy"]
    rules = [rule for policy in policies for rule in policy.get("ingress", [])]
    assert rules
    for rule in rules:
        assert rule["ports"]
        assert rule["from"]
        for source in rule["from"]:
            assert source["podSelector"]["matchLabels"]
            assert "ipBlock" not in source
    # Nobody calls these.
    entered = {
        policy["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
        for policy in policies
        if "ingress" in policy
    }
    assert entered == {"api"}


def test_the_images_are_named_by_digest() -> None:
    document = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    names = {container["image"] for pod in PODS.values() for container in pod["spec"]["containers"]}
    assert {image["name"] for image in document["images"]} == names
    for image in document["images"]:
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", image["digest"])
        assert "newTag" not in image


def bytes_of(quantity: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([KMG]i)", quantity).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return int(number) << {"Ki": 10, "Mi": 20, "Gi": 30}[unit]


def test_the_site_fits_into_its_quota_and_every_container_into_its_range() -> None:
    (quota,) = (document for _, document in OBJECTS if document["kind"] == "ResourceQuota")
    (ranges,) = (document for _, document in OBJECTS if document["kind"] == "LimitRange")
    hard, (range_,) = quota["spec"]["hard"], ranges["spec"]["limits"]
    taken = {"pods": 0, "memory": 0}
    for _, document in OBJECTS:
        if "template" not in document.get("spec", {}):
            continue
        spec = document["spec"]
        # While a Deployment is replaced, there is one more.
        count = spec.get("replicas", 1) + (document["kind"] == "Deployment")
        taken["pods"] += count
        for container in spec["template"]["spec"]["containers"]:
            memory = bytes_of(container["resources"]["limits"]["memory"])
            assert memory <= bytes_of(range_["max"]["memory"])
            taken["memory"] += count * memory
    assert taken["pods"] <= int(hard["pods"])
    assert taken["memory"] <= bytes_of(hard["limits.memory"])


def test_workers_get_neither_the_databases_password_nor_the_buckets() -> None:
    (container,) = PODS["Deployment worker"]["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "reflectory-worker"}}]


def test_every_file_is_one_that_kustomize_builds() -> None:
    folder = DEPLOY / "kubernetes"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    there = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(listed) == there
    if shutil.which("kubectl"):
        built = subprocess.run(
            ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True
        )
        objects = list(yaml.safe_load_all(built.stdout))
        assert len(objects) == len(OBJECTS)
