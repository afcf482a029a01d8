"""RTMP, AMF and FLV as bytes in, events out.

Standard library only; no I/O, no clock, no threads, no randomness.
"""
