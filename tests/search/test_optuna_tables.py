"""Optuna's own tables, opened by several threads at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from search.optuna_tables import shared_storage


def test_new_tables_are_made_once_for_all_threads(tmp_path: Path) -> None:
    storage = shared_storage(f"sqlite:///{tmp_path / 'optuna.db'}")
    with ThreadPoolExecutor(8) as threads:
        futures = [threads.submit(storage) for _ in range(8)]
        opened = {id(future.result()) for future in futures}
    assert len(opened) == 1
    assert storage().get_all_studies() == []
