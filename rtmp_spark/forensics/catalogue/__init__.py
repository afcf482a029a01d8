"""The catalogue: the texts of every rule, one module per layer, and the lookup over all of them."""
