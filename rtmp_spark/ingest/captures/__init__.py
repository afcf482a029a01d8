"""Decides which capture files an ingest reads: listing, known files, files that grew, late files, `--redo`."""
