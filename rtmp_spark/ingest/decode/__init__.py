"""The second pass: decoding the connections of a bucket and writing their rows; saved connections."""
