"""What completes an ingest: rules across connections, deliveries, rows about files, replaced rows."""
