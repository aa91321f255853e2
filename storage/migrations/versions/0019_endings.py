"""Why things ended is a cause and a detail, and what the API asks of the coordinator a command.

Until here it was a sentence, told apart by its first words.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

_COLUMNS = {
    ("study", "state_reason"): ("state_cause", "state_detail"),
    ("study", "ending"): ("ending_cause", "ending_detail"),
    ("trial", "reason"): ("cause", "detail"),
    ("attempt", "reason"): ("cause", "detail"),
    ("booking", "detail"): ("cause", "detail"),
}

# A cause, the first words that it is told by (all words, where no space follows), and how many of
# their letters are not kept.
_Words = tuple[tuple[str, str, int], ...]


def _dropped(*words: tuple[str, str]) -> _Words:
    return tuple((cause, start, len(start)) for cause, start in words)


def _kept(*words: tuple[str, str]) -> _Words:
    return tuple((cause, start, 0) for cause, start in words)


_WAITS = (
    *_dropped(
        ("paused", "paused by "),
        ("no_slot", "waits for a slot: "),
        ("disk_full", "disk full: "),
        ("store_away", "store away: "),
    ),
    *_kept(("over_quota", "quota ")),
)
_ENDS = _dropped(
    ("budget", "budget: "),
    ("cancelled", "cancelled by "),
    ("grid_exhausted", "grid_exhausted"),
    ("nothing_feasible", "nothing_feasible"),
)
_EXITS = _kept(
    ("exited", "exited with code "),
    ("crashed", "crashed by signal "),
    ("memory_limit", "out of memory: the kernel ended it at its limit of "),
    ("out_of_memory", "out of memory: "),
    ("died", "died with "),
)
_LAST_WORDS = tuple(
    pair
    for word in ("complete", "stopped", "infeasible", "failed", "data")
    for pair in _dropped((word, f"{word}: "), (word, word))
)
_WORDS: dict[tuple[str, str], _Words] = {
    ("study", "state_cause"): _WAITS + _ENDS,
    ("study", "ending_cause"): _ENDS + _dropped(("failed", "failed: ")),
    ("trial", "cause"): _dropped(
        ("cancelled", "cancelled by "),
        ("study_failed", "failed: "),
        ("duplicate", "same configuration as trial "),
        ("memory", "memory: "),
        ("unmeasured", "throughput could not be measured: "),
    ),
    ("attempt", "cause"): (
        *_EXITS,
        *_LAST_WORDS,
        *_dropped(
            ("impossible", "said what cannot be: "),
            ("restarted", "the server was stopped"),
            ("paused", "the study was paused"),
        ),
        *_kept(("study_ended", "cancelled by "), ("study_ended", "budget: ")),
    ),
    ("booking", "cause"): _EXITS,
}
# What the first words do not tell, the rest of the row does.
_BY_STATE = (
    "UPDATE study SET state_cause = 'failed' WHERE state = 'failed' AND state_cause IS NULL "
    "AND state_detail IS NOT NULL",
    "UPDATE trial SET cause = 'budget', detail = NULL WHERE detail = 'budget' "
    "AND state IN ('stopped', 'cancelled')",
    "UPDATE trial SET cause = 'early_stopping' WHERE state = 'stopped' AND cause IS NULL "
    "AND detail IS NOT NULL",
    "UPDATE trial SET cause = CASE WHEN dispatched THEN 'infeasible' ELSE 'limit' END "
    "WHERE state = 'infeasible' AND cause IS NULL AND detail IS NOT NULL",
    "UPDATE attempt SET cause = 'lost' WHERE state = 'lost' AND cause IS NULL "
    "AND detail IS NOT NULL",
    "UPDATE booking SET cause = 'lost' WHERE state = 'exited' AND cause IS NULL",
    "UPDATE trial SET test_metrics = '{}' WHERE test_metrics IS NULL",
)


def upgrade() -> None:
    _rename("errand", "command")
    for (table, before), (cause, detail) in _COLUMNS.items():
        if before != detail:
            op.execute(f"ALTER TABLE {table} RENAME COLUMN {before} TO {detail}")
        op.add_column(table, sa.Column(cause, sa.String(16)))
        for word, start, dropped in _WORDS[table, cause]:
            begins = f"SUBSTR({detail}, 1, {len(start)})" if start.endswith(" ") else detail
            # A trial that failed has the sentence of its last attempt, whole.
            only = " AND state <> 'failed'" if (table, word) == ("trial", "study_failed") else ""
            op.execute(
                sa.text(
                    f"UPDATE {table} SET {cause} = :word, "
                    f"{detail} = NULLIF(SUBSTR({detail}, {dropped + 1}), '') "
                    f"WHERE {cause} IS NULL AND {begins} = :start{only}"
                ).bindparams(word=word, start=start)
            )
    for statement in _BY_STATE:
        op.execute(statement)
    op.execute("UPDATE trial SET cause = 'failed' WHERE state = 'failed' AND cause IS NULL")


def downgrade() -> None:
    op.execute("UPDATE trial SET detail = 'budget' WHERE cause = 'budget'")
    for (table, before), (cause, detail) in _COLUMNS.items():
        for word, start, dropped in _WORDS[table, cause]:
            if dropped:
                op.execute(
                    sa.text(
                        f"UPDATE {table} SET {cause} = NULL, "
                        f"{detail} = COALESCE(:start || {detail}, :alone) WHERE {cause} = :word"
                    ).bindparams(word=word, start=start, alone=start.removesuffix(": "))
                )
        op.drop_column(table, cause)
        if before != detail:
            op.execute(f"ALTER TABLE {table} RENAME COLUMN {detail} TO {before}")
    _rename("command", "errand")


def _rename(before: str, after: str) -> None:
    op.drop_index(f"ix_{before}_kind_study_id", before)
    op.rename_table(before, after)
    op.create_index(f"ix_{after}_kind_study_id", after, ["kind", "study_id"])
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE {after} RENAME CONSTRAINT pk_{before} TO pk_{after}")
