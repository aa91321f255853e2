"""C files under every compiler here: `python -m tests.c_check`, which `make c-check` runs."""
