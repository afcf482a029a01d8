"""Layers that can wrap RTMP: TLS (RTMPS) and HTTP (RTMPT)."""
