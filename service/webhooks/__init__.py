"""Webhooks: a user's own server is told when a study ends, signed and until it was heard."""
