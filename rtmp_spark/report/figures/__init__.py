"""Figures of the report: the values to draw, and the SVG that draws them."""
