"""Rules, measures and fingerprints over the facts of connections. Their state is a value; nothing here reads a file."""
