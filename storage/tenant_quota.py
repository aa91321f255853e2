"""What a tenant may have: the names of what is limited, and a limit for each."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

QuotaName: TypeAlias = Literal[
    "studies",
    "queued_trials",
    "slots",
    "stored_bytes",
    "uploads",
    "streams",
    "streams_per_key",
    "requests_per_minute",
]

QUOTA_NAMES: tuple[QuotaName, ...] = get_args(QuotaName)


@dataclass(frozen=True, kw_only=True)
class TenantQuota:
    """What one tenant may have; null is no limit."""

    studies: int | None = None
    """Studies in progress."""
    queued_trials: int | None = None
    """Trials that wait for a slot, in all studies in progress, and those that users asked for."""
    slots: int | None = None
    """Slots that its attempts are on at once."""
    stored_bytes: int | None = None
    """Bytes of its artifacts, data sets, models and logs; the same bytes count once."""
    uploads: int | None = None
    """Uploads at once, at one API process."""
    streams: int | None = None
    """Event streams at once, at one API process."""
    streams_per_key: int | None = None
    """Of these, with one key."""
    requests_per_minute: int | None = None
    """Requests of all of its keys in a minute, at one API process."""
    weight: float = 1.0
    """Its share of the slots beside others that want them: twice the weight, twice the slots."""

    def limit(self, name: QuotaName) -> int | None:
        """The limit of that name."""
        limit: int | None = getattr(self, name)
        return limit


UNLIMITED: Final = TenantQuota()
