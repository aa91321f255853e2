"""What somebody without a right key can send to a real server: `python -m tests.hostile --help`."""
