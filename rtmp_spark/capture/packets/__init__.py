"""Packets to TCP segments: link, IP and TCP headers, IP fragments, grouping by connection."""
