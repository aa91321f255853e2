"""The pages of `deploy/docs/reference/` that are written from the code."""
