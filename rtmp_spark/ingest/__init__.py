"""The distributed pipeline without pyspark: lists captures, indexes packets, plans and decodes buckets, publishes."""
