"""Searches on tables that others trained: NAS-Bench-201, HPOLib and HPOBench."""
