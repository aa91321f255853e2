"""One trial: what it is trained from, its job, and the training itself."""
