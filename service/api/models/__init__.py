"""Users' trained models: upload, look at, download, delete."""
