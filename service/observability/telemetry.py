"""OpenTelemetry, which FastAPI itself has: switched on by a setting, and off otherwise."""

from collections.abc import MutableMapping
from typing import Any

from fastapi.telemetry import TelemetryConfig

_NOT_TRACED = ("/healthz", "/readyz", "/metrics")
"""Probes and scrapes, which would be most of what is exported."""


def telemetry_config(*, enabled: bool) -> TelemetryConfig:
    """Spans, request metrics and errors of the application; exported where `OTEL_...` says.

    Off means off, whatever providers another package of the process has set up.
    """
    return TelemetryConfig(
        tracing=enabled,
        metrics=enabled,
        logs=enabled,
        auto_configure=enabled,
        exclude=_is_not_traced,
    )


def _is_not_traced(scope: MutableMapping[str, Any]) -> bool:
    return scope["path"] in _NOT_TRACED
