"""What decoded rows mean: rules, measures and fingerprints, as folds whose state is a value. Reads no file."""
