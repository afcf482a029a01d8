"""Chunks -> messages: one direction of a connection after its handshake (RTMP 1.0 5.3).

dechunker.py has the loop and the fast path. Every chunk that the fast path does not take is read by one_chunk.py;
assembly.py collects payloads and reports messages. If the bytes of a chunk allow two readings, lookahead.py decides;
if they do not show the chunk size, size.py does. header.py is the parser of chunk headers. state.py holds what is
remembered from chunk to chunk, stream.py the same for each csid, with its clock.

Nothing here searches: at a header that cannot be valid the dechunker stops, and resync/ finds the next message.
"""
