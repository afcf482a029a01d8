"""Chunks -> messages: one direction of a connection after its handshake (RTMP 1.0 5.3).

dechunker.py has the loop and everything that happens to a chunk. Where the bytes alone do not tell how to read one it
asks lookahead.py, and size.py where they do not tell the chunk size. What is remembered from chunk to chunk is in
state.py, and for each csid, with its clock, in stream.py.

Nothing here searches: when a header cannot be true, the dechunker stops, and resync/ finds the next message.
"""
