"""A small live RTMP relay, a client, a capturing proxy and a generator of faulty traffic, for tests and demos.

`relay/` is the server side, `client/` publishes and plays, `tap/` writes traffic to pcap files, `faults/` breaks rules
on purpose, `validation/` runs the analyzer on live traffic, and `simulation` connects clients and a relay in memory.
Protocol logic does no I/O: it takes bytes and times and returns bytes. Only `relay/relay_server`, the client's
`client_socket` and `tap/` use sockets. The relay does not transcode and is not meant for production traffic.
"""
