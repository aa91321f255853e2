"""Requests that nobody would think of, against a real server: `python -m tests.fuzz --help`."""
