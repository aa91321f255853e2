import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings import Settings
from storage.blobs.places import FolderPlace, place_of

ROOT = Path(__file__).parents[2]


def names() -> list[str]:
    """Every setting's name in the environment."""
    prefix = Settings.model_config.get("env_prefix", "")
    return [
        str(field.validation_alias or f"{prefix}{name}".upper())
        for name, field in Settings.model_fields.items()
    ]


def test_every_setting_says_what_it_is() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name


def test_the_reference_names_every_setting_and_no_other() -> None:
    page = (ROOT / "deploy/docs/reference/settings.md").read_text()
    documented = set(re.findall(r"REFLECTORY_[A-Z_]*[A-Z]", page))
    client_only = {"REFLECTORY_SERVER", "REFLECTORY_KEY"}
    assert documented - client_only == set(names())


def test_the_environment_sets_every_setting_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "REFLECTORY_DATA_DIR": "/somewhere",
        "REFLECTORY_DATA": "/data",
        "REFLECTORY_PORT": "0",
        "REFLECTORY_LEASE_SECONDS": "3.5",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.data_dir == Path("/somewhere")
    assert settings.data_sets == Path("/data")
    assert (settings.port, settings.lease_seconds) == (0, 3.5)


def test_databases_stand_in_the_data_directory_unless_told_otherwise(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert settings.database_url == f"sqlite:///{tmp_path}/reflectory.db"
    assert settings.optuna_url == f"sqlite:///{tmp_path}/optuna.db"
    elsewhere = Settings(data_dir=tmp_path, database_url="postgresql://somewhere/db")
    assert elsewhere.database_url == "postgresql://somewhere/db"


def test_templates_and_assets_are_in_the_wheel() -> None:
    """Hatchling takes all files of the packages, unless git ignores them."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert "service" in wheel["targets"]["wheel"]["packages"]
    ignored = (ROOT / ".gitignore").read_text().split()
    assert all(line.startswith("/") or line in ("__pycache__/", "*.egg-info/") for line in ignored)


BUCKET = "s3://bucket/prefix?endpoint=https://minio:9000&region=eu-central-1"


def test_artifacts_are_kept_in_one_place(tmp_path: Path) -> None:
    folder, bucket = tmp_path / "a", place_of(BUCKET)
    assert Settings(data_dir=tmp_path).artifacts_place == FolderPlace(tmp_path / "artifacts")
    assert Settings(data_dir=tmp_path, artifacts_dir=folder).artifacts_place == FolderPlace(folder)
    by_url = Settings(data_dir=tmp_path, artifacts_url=folder.as_uri())
    assert by_url.artifacts_place == FolderPlace(folder)
    assert Settings(data_dir=tmp_path, artifacts_url=BUCKET).artifacts_place == bucket
    with pytest.raises(ValidationError, match="ARTIFACTS_DIR or REFLECTORY_ARTIFACTS_URL, not"):
        Settings(data_dir=tmp_path, artifacts_dir=folder, artifacts_url=BUCKET)


def test_only_a_bucket_can_be_redirected_to(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path, artifacts_url=BUCKET, downloads="redirect")
    for folder in (None, "file:///somewhere"):
        with pytest.raises(ValidationError, match="'redirect' need artifacts in a bucket"):
            Settings(data_dir=tmp_path, downloads="redirect", artifacts_url=folder)


def test_a_url_with_credentials_is_refused_and_not_shown(tmp_path: Path) -> None:
    secret = "s3://AKIAEXAMPLE:hunter2@bucket"
    with pytest.raises(ValidationError) as refused:
        Settings(data_dir=tmp_path, artifacts_url=secret)
    assert "hunter2" not in str(refused.value)
    run = subprocess.run(
        [sys.executable, "-m", "service.cli", "serve", "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "REFLECTORY_ARTIFACTS_URL": secret, "COLUMNS": "200"},
    )
    assert run.returncode == 2
    assert "hunter2" not in run.stdout + run.stderr
    assert "AWS_SECRET_ACCESS_KEY" in run.stderr
