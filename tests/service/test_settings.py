import re
import tomllib
from pathlib import Path

import pytest

from service.settings import Settings

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


def test_the_readme_names_every_setting_and_no_other() -> None:
    readme = (ROOT / "README.md").read_text()
    documented = set(re.findall(r"REFLECTORY_[A-Z_]*[A-Z]", readme))
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
