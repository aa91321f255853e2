"""Optuna's dashboard, passed on from its own process."""
