"""Environment variables of what forks, and of attempts."""

from collections.abc import Mapping

PRELOAD = {
    # One thread each while importing: a pool that a library starts would not survive a fork.
    # `torch.set_num_threads` gives an attempt more where its ticket says so.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # torch then asks for huge pages: fresh large tensors cost a fraction of the page faults.
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""What has to be set before torch is imported in a process that is to fork."""

KEPT_FROM_ATTEMPTS = frozenset(
    {
        "REFLECTORY_DATABASE_URL",
        "REFLECTORY_OPTUNA_URL",
        "REFLECTORY_SECRET",
        "REFLECTORY_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "RAY_AUTH_TOKEN",
    }
)
"""What opens our tables, our bytes or our doors: an attempt has its lease token, and needs no more.
"""


def environment_of_attempts(ours: Mapping[str, str]) -> dict[str, str]:
    """The environment of a fork server, and so of its attempts."""
    passed = {name: value for name, value in ours.items() if name not in KEPT_FROM_ATTEMPTS}
    return passed | PRELOAD
