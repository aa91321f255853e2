"""torch's own layers: read into our networks, written from them, and replaced in any module."""
