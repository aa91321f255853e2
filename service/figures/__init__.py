"""Every figure as plain Plotly JSON, which pages, reports and clients draw alike."""
