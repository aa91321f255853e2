"""Whether anything was committed to the database, told far more cheaply than by a query.

├── contract      what there is to ask
├── bells         wakes the processes that wait, when one of them has committed
├── sqlite        a count in shared memory, and bells
└── postgresql    the snapshot of the server
"""

from storage.changes.bells import Bells
from storage.changes.contract import Changes, Looks
from storage.changes.postgresql import PostgresqlChanges
from storage.changes.sqlite import SqliteChanges

__all__ = ["Bells", "Changes", "Looks", "PostgresqlChanges", "SqliteChanges"]
