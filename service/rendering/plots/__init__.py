"""Plots as plain geometry, which a template writes down as SVG."""
