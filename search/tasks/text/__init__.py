"""Language models: the next word or character of a text."""
