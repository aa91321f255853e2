"""One claimed study: its trials' dispatch, its measurements, and its end."""
