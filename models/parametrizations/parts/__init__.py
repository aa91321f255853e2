"""What several parametrizations are made of."""
