"""The first pass: scanning splits, the packet index, and the plan made from it."""
