"""The pictures of the documentation, drawn from what they show."""
