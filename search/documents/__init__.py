"""The JSON of spaces, fronts, data sets and models, as classes without torch, Optuna or SQL."""
