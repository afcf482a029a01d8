"""TLS 1.2 and 1.3: decrypts both directions of a connection with secrets from a key log."""
