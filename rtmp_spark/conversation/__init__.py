"""Both directions of one connection: decoded into facts in one order of time."""
