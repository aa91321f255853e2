"""Figures of studies as Plotly JSON: what they are made of, and the routes that give them."""
