"""The conformance suite for RTMP servers and clients (`rtmp-spark probe`)."""
