"""The server's data directory: its files, locks, secrets and artifact store."""
