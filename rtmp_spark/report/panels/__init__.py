"""The panels of the report as HTML fragments, one module per panel. The page and the notebooks show the same panels."""
