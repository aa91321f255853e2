"""Where studies are kept: rows in SQLite or PostgreSQL, and bytes in an artifact store."""
