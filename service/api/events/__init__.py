"""A study's events as they happen."""
