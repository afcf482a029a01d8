"""Which played stream is which published one: the rows of `deliveries`."""
