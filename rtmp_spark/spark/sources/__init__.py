"""Spark data sources: `format("pcap")` for batch and streaming reads."""
