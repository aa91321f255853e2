"""What a trial costs beside its training: `python -m tests.benchmarks.trial_cost`.

A study of small trials (digits, RNN and GRU, 16 to 64 hidden units, 3 epochs, random sampler) runs
on a server of its own with two slots. Then the very same trainings run one after the other in one
process, bare and as the objective of plain Optuna with a SQLite file; so it goes for several
rounds, with a server of another checkout in turn where `--before` names one.

Shown are the processor's milliseconds per trial (user and system, all processes of the server),
medians with the middle half of the rounds, what they are of the bare loop in the same round, and
the share of the slots' time in which nothing trained or was measured between the first attempt and
the last. Qualities have to agree, or the comparison is none.
"""

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

_SLOTS = 2
_SPEC: Mapping[str, Any] = {
    "name": "cost",
    "task": {"kind": "digits"},
    "architectures": ["rnn", "gru"],
    "space": {"hidden_size": {"low": 16, "high": 64}},
    "sampler": {"kind": "random"},
    "duplicates": "replicate",
}
_TRAINED = "bare loop", "plain Optuna"


class _Hooks:
    """Training for which nobody waits."""

    stood_still_seconds = 0.0

    def batch(self) -> Any:
        return nullcontext()

    def epoch_done(self, report: Any) -> Any:  # noqa: ARG002
        from search.training.jobs import Verdict

        return Verdict(lease_seconds=60)

    def save(self, resume: bytes) -> None:
        del resume


def _train_all(file: Path, how: str) -> None:
    """Do the trainings of a file in this process; print their milliseconds and mean quality."""
    import optuna
    import torch
    from pydantic import TypeAdapter

    from search.tasks import DataSources
    from search.training.jobs import TrainJob
    from search.training.run import train

    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    told = json.loads(file.read_text())
    jobs = TypeAdapter(list[TrainJob]).validate_python(told["jobs"])
    sources = DataSources(cache=Path(told["cache"]), folder=None)
    splits = jobs[0].task.load(sources)

    def quality(job: TrainJob) -> float:
        return train(job, splits, task=job.task, hooks=_Hooks()).quality

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_categorical("architecture", ["rnn", "gru"])
        trial.suggest_int("hidden_size", 16, 64)
        trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)
        found.append(quality(jobs[trial.number]))
        return found[-1]

    quality(jobs[0])
    found: list[float] = []
    begun = time.process_time()
    if how == "bare loop":
        found += map(quality, jobs)
    else:
        storage = f"sqlite:///{file.with_suffix('.db')}"
        study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler(seed=0))
        study.optimize(objective, n_trials=len(jobs))
        file.with_suffix(".db").unlink()
    seconds = time.process_time() - begun
    told = {"ms": 1000 * seconds / len(jobs), "quality": statistics.fmean(found)}
    sys.stdout.write(json.dumps(told))


def _trained(file: Path, how: str) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.trial_cost", "--train", str(file), how]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _role(process: psutil.Process) -> str:
    """What a process of the server is for, as its command line or its title tells."""
    words = " ".join(process.cmdline())
    # The fork server's module stands among the agents.
    for role in ("fork_server", "coordinator", "agent", "dashboard", "api"):
        if role in words:
            return role
    return "supervisor"


def processor_seconds(server: Any) -> dict[str, float]:
    """By role, with what ended below each process."""
    found: dict[str, float] = {}
    for process in server.processes():
        with suppress(psutil.NoSuchProcess):
            times, role = process.cpu_times(), _role(process)
            used = times.user + times.system + times.children_user + times.children_system
            found[role] = found.get(role, 0.0) + used
    return found


def _share_without_work(attempts: Sequence[Any], seconds: float, wall_measured: float) -> float:
    """Of the slots' time between the first attempt and the last; measuring holds all slots.

    `seconds` are the attempts' by their workers' own clocks: rows say when the service heard of a
    beginning and an end.
    """
    first = min(each.started_at.timestamp() for each in attempts)
    last = max(each.ended_at.timestamp() for each in attempts)
    worked = seconds + _SLOTS * wall_measured
    return max(0.0, 1 - worked / (_SLOTS * (last - first)))


def _serve(folder: Path, checkout: Path, spec: Mapping[str, Any], jobs: Path) -> dict[str, Any]:
    """Run the study on a server; what it cost, and its jobs in a file for the loops beside it."""
    from search.training.jobs import TrainJob
    from storage.engine import Database
    from storage.records import AttemptKind, TrialState
    from storage.repositories.attempts import Attempts
    from storage.repositories.trials import Trials
    from tests.service.running import Server

    environment = {"PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
    server = Server(folder / "data", workers=_SLOTS, environment=environment)
    try:
        server.start()
        # The first study finds everything cold.
        server.wait(server.submit({**spec, "budget": {"trials": 4, "epochs": 1}}))
        before = processor_seconds(server)
        study_id = server.submit(spec)
        study = server.wait(study_id, seconds=3600)
        after = processor_seconds(server)
    finally:
        server.close()
    database = Database(f"sqlite:///{server.data_dir / 'reflectory.db'}")
    # Another checkout's tables may be older.
    database.migrate()
    with database.read() as session:
        rows = Trials(session).list(study_id, TrialState.COMPLETE)
        attempts = Attempts(session).of_study(study_id, AttemptKind.TRAIN)
        seconds = Attempts(session).device_seconds(study_id, datetime.now(UTC))
    database.dispose()
    assert len(rows) == spec["budget"]["trials"], study
    documents = [
        {
            "task": study["spec"]["task"],
            "trial": row.spec,
            "number": row.number,
            "epochs": spec["budget"]["epochs"],
        }
        for row in rows
    ]
    for document in documents:
        TrainJob.model_validate(document)
    jobs.write_text(json.dumps({"jobs": documents, "cache": str(server.data_dir / "cache")}))
    per_trial = {
        role: 1000 * (used - before.get(role, 0.0)) / len(rows) for role, used in after.items()
    }
    progress = study["progress"]
    measured = progress["measuring_share"] * progress["wall_seconds"]
    return {
        "ms": sum(per_trial.values()),
        "roles": per_trial,
        "idle": 100 * _share_without_work(attempts, seconds, measured),
        "quality": statistics.fmean(row.quality or 0.0 for row in rows),
    }


def _shown(values: Sequence[float], digits: int) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _table(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    lines = ["| | processor ms per trial | of the bare loop | slots without work, % |"]
    lines.append("|---|---|---|---|")
    bare = [each["ms"] for each in found["bare loop"]]
    for name, rounds in found.items():
        ratios = [each["ms"] / alone for each, alone in zip(rounds, bare, strict=True)]
        idle = _shown([each["idle"] for each in rounds], 1) if "idle" in rounds[0] else ""
        cells = (name, _shown([each["ms"] for each in rounds], 0), _shown(ratios, 2), idle)
        lines.append(f"| {' | '.join(cells)} |")
        for role in sorted(rounds[0].get("roles", ())):
            values = [each["roles"].get(role, 0.0) for each in rounds]
            lines.append(f"| - its {role.replace('_', ' ')} | {_shown(values, 0)} | | |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--throughput", action="store_true", help="with the objective throughput")
    parser.add_argument("--before", type=Path, help="another checkout, whose server runs in turn")
    parser.add_argument("--train", nargs=2, metavar=("FILE", "HOW"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        _train_all(Path(given.train[0]), given.train[1])
        return
    objectives = ["quality", "parameters", *(["throughput"] if given.throughput else [])]
    spec = {
        **_SPEC,
        "objectives": objectives,
        "budget": {"trials": given.trials, "epochs": 3},
    }
    checkouts = {"before": given.before} if given.before else {}
    checkouts["service"] = Path.cwd()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in (*checkouts, *_TRAINED)}
    os.environ["OMP_NUM_THREADS"] = "1"
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as name:
            jobs = Path(name) / "jobs.json"
            for which, checkout in checkouts.items():
                (Path(name) / which).mkdir()
                found[which].append(_serve(Path(name) / which, checkout.absolute(), spec, jobs))
            for how in _TRAINED:
                found[how].append(_trained(jobs, how))
            qualities = {name: each[-1]["quality"] for name, each in found.items()}
            if max(qualities.values()) - min(qualities.values()) > 1e-9:
                raise SystemExit(f"the trainings were not the same: mean qualities {qualities}")
    sys.stdout.write(_table(found))


if __name__ == "__main__":
    main()
