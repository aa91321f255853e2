"""Webhooks: a user's own server is notified when a study ends, signed, until it has answered."""
