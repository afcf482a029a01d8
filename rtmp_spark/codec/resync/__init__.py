"""Find a message boundary in bytes that start anywhere, and infer the chunk size.

A boundary is accepted if a chain of messages follows from it: every header that is where the previous one puts it,
every continuation header, every tag header or AMF name at the start of a payload is worth some bits (evidence.py), and
enough bits are proof. `search.find` looks for the first header from which a chain (chain.py) is proven. That is rarely
the first header in the bytes, because fmt 2 and 3 carry no length: backward.py therefore goes back over the messages
that end exactly where the next one begins. Audio without any header that carries a length is recognised by its
regularity (regular.py). The bits are rough, and chosen so that tens of thousands of losses in real streams
(bench/resync.py) yield no invented message: what cannot be proven is skipped.

Nothing here changes any state: `find` says where decoding can continue and what to assume there. All thresholds are in
limits.py.
"""
