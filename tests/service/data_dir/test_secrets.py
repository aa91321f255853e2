from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from pydantic import SecretStr, ValidationError

from service.data_dir.secrets import signing_secret
from service.settings import Settings

GIVEN = "given-" + "g" * 32


def test_the_secret_of_a_data_directory_is_made_once_and_nobody_else_reads_it(
    tmp_path: Path,
) -> None:
    settings = Settings(data_dir=tmp_path / "new" / "data")
    secret = signing_secret(settings)
    assert len(secret) >= 43
    assert signing_secret(settings) == secret
    [made] = (tmp_path / "new" / "data").iterdir()
    assert made.name == "secret"
    assert made.stat().st_mode & 0o777 == 0o600
    assert signing_secret(Settings(data_dir=tmp_path)) != secret


def test_processes_that_start_together_sign_with_the_same_secret(tmp_path: Path) -> None:
    for again in range(20):
        settings = Settings(data_dir=tmp_path / str(again))
        together = Barrier(4)

        def read(settings: Settings = settings, together: Barrier = together) -> bytes:
            together.wait(100)
            return signing_secret(settings)

        with ThreadPoolExecutor(4) as pool:
            found = [asked.result() for asked in [pool.submit(read) for _ in range(4)]]
        assert len(set(found)) == 1


def test_a_secret_that_is_given_stays_out_of_the_directory_and_out_of_sight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=tmp_path, secret=SecretStr(GIVEN))
    assert signing_secret(settings) == GIVEN.encode()
    assert list(tmp_path.iterdir()) == []
    assert GIVEN not in f"{settings!r} {settings.model_dump_json()}"
    monkeypatch.setenv("REFLECTORY_SECRET", GIVEN)
    assert signing_secret(Settings(data_dir=tmp_path)) == GIVEN.encode()


def test_a_short_secret_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValidationError, match="at least 32") as refusal:
        Settings(secret=SecretStr("hunter2"))
    assert "hunter2" not in str(refusal.value)
