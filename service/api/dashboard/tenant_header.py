"""How the API tells the dashboard's process for whom it asks."""

TENANT_HEADER = "X-Reflectory-Tenant"
"""Believed by whoever listens on a socket that only this user can open; clients' own never pass."""
