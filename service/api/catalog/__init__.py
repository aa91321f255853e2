"""What a study can name."""
