"""Turns capture files into table rows, sequentially, on one machine."""
