"""Alembic's environment and the migrations, which `storage.schema` runs."""
