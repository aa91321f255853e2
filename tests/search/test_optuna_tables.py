"""Optuna's own tables, opened by several threads at once."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from optuna.storages import RDBStorage

from search.optuna_tables import BeingOpened, shared_storage


def test_new_tables_are_made_once_for_all_threads(tmp_path: Path) -> None:
    storage = shared_storage(f"sqlite:///{tmp_path / 'optuna.db'}")

    def opened() -> RDBStorage:
        while True:
            try:
                return storage()
            except BeingOpened:
                time.sleep(0.01)

    with ThreadPoolExecutor(8) as threads:
        futures = [threads.submit(opened) for _ in range(8)]
        found = {id(future.result()) for future in futures}
    assert found == {id(storage())}
    assert storage().get_all_studies() == []
