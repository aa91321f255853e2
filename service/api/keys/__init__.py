"""API keys: make, list, rotate, revoke."""
