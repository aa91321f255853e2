"""What the server tells Prometheus of itself."""
