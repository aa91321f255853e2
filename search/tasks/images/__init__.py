"""Tasks on pictures of handwritten digits."""
