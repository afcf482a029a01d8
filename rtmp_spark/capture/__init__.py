"""From capture files to rows: files, packets, directed TCP streams, conversations. No Spark in here."""
