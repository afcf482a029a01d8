"""RTMPT: extracts RTMP from the bodies of HTTP requests and responses."""
