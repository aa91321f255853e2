"""Users' data sets: upload, look at, delete."""
