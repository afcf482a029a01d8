"""Measures of one published or played stream, the rules over them, and the verdict on the stream."""
