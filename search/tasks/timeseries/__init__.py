"""Data sets of the UCR time series archive."""
