"""Our own pages: templates, assets and the plot of a front."""
