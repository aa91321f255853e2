"""How far a study's webhooks are, and the secret that verifies them."""
