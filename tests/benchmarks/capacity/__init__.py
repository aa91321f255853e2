"""How much a coordinator, an API process and a PostgreSQL carry: a model, and its check."""
