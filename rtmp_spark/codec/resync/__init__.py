"""Find a message boundary in bytes that start anywhere, and infer the chunk size.

A boundary is believed when a chain of messages hangs on it: every header that stands where the one before says it
must, every continuation mark, every tag header or AMF name at the start of a payload is worth some bits
(evidence.py), and enough bits are proof. `search.find` looks for the first header from which a chain (chain.py) is
proven. That is rarely the first header that is there, because fmt 2 and 3 carry no length: backward.py therefore walks
back from it over the messages that end exactly where the next one begins. Audio of which no header says a length at
all is found by its regularity (regular.py). The bits are rough, and chosen so that tens of thousands of losses in real
streams (bench/resync.py) invent nothing: what cannot be proven is skipped.

Nothing here changes any state: `find` says where to start and what to assume there.
"""
