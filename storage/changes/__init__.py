"""Whether anything was committed to the database, told far more cheaply than by a query.

├── contract      what there is to ask
├── pipes         wakes the processes that wait, when one of them has committed
├── sqlite        a count in shared memory, and pipes
└── postgresql    the snapshot of the server
"""

from storage.changes.contract import Changes, Looks
from storage.changes.pipes import NotificationPipes
from storage.changes.postgresql import PostgresqlChanges
from storage.changes.sqlite import SqliteChanges

__all__ = ["Changes", "Looks", "NotificationPipes", "PostgresqlChanges", "SqliteChanges"]
