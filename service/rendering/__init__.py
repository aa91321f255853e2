"""Pages as HTML: templates, assets, forms, and what their pages show."""
