"""Starts the local Spark session: Java, its jars and its class archive."""
