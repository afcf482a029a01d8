"""Deliberate protocol violations that a client or the relay can send (`--fault CODE`); `fault_catalogue` lists them."""
