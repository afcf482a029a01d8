"""CAPTURE_*, TCP_*, TLS_*, RTMPT_*: what the recording and the transport did."""

from __future__ import annotations

from rtmp_spark.forensics.texts.entry import Entry

ENTRIES = (
    Entry(
        "CAPTURE_TRUNCATED",
        "The capture file ends inside a record",
        None,
        "The last record of the file is announced longer than the bytes that are left.",
        "The recorder was stopped hard or the disk was full. Everything before the cut is decoded.",
        "Stop the recorder with SIGINT and wait for it, or copy the file after the recorder has closed it.",
    ),
    Entry(
        "CAPTURE_BAD_RECORD",
        "What a record of the capture file says cannot be true",
        None,
        "A record or block header names a length that no packet can have, or contradicts itself. A warning for packets "
        "whose IPv4 header has a checksum that is neither right nor 0.",
        "After a bad record header nothing can be found reliably: reading stops there, earlier packets are kept. "
        "Packets with a bad checksum are read as they are; a receiver drops them.",
        "Copy or record the file again; `capinfos` and `pcapfix` show where it is damaged.",
        wireshark='ip.checksum.status == "Bad"',
        also=("warning",),
    ),
    Entry(
        "CAPTURE_SNAPLEN",
        "Packets were cut when they were recorded",
        None,
        "Records hold fewer bytes than their packets had.",
        "The bytes beyond the snapshot length are lost: messages have holes, media cannot be rebuilt.",
        "Record again with `tcpdump -s 0` (or without -s; 262144 is the default).",
        wireshark="frame.len > frame.cap_len",
    ),
    Entry(
        "CAPTURE_LINK_TYPE",
        "Packets of a link type that is not decoded",
        None,
        "The file, or an interface in it, has a link type without a reader here; its packets are counted.",
        "RTMP may be in them unseen.",
        "Record on the Ethernet or `any` interface, or convert the file with `tcprewrite` or `editcap -T`.",
    ),
    Entry(
        "CAPTURE_TIME_BACKWARDS",
        "Packet times go back",
        None,
        "A packet is older than the one before it in the file.",
        "Several network queues or a clock that was set. Streams are ordered by sequence numbers, so only "
        "times suffer.",
        "Sort the file with `reordercap`, and keep the clock of the recording machine in step.",
        wireshark="frame.time_delta < 0",
    ),
    Entry(
        "CAPTURE_LIMIT",
        "A limit of this program acted",
        None,
        "A bound that keeps memory finite was reached: how much is held, how deep, how many.",
        "What lay beyond it was counted, not decoded.",
        "Cut the capture (`editcap`, `rtmp-spark slice`), or give it in smaller pieces.",
    ),
    Entry(
        "TCP_GAP",
        "Bytes of a stream are in no packet",
        None,
        "The sequence numbers go on and the bytes between were never seen. When the receiver acknowledged them the "
        "recorder lost them (at fault: capture), otherwise it is taken for the network's doing.",
        "Messages over the hole are lost and decoding has to find its feet again; rules that need what was lost are "
        "silent behind it.",
        "Record with a larger buffer (`tcpdump -B 65536`), at a less loaded place, or without a mirror port.",
        "A mirror port that is busier than its own line drops packets that both peers received.",
        wireshark="tcp.analysis.lost_segment",
    ),
    Entry(
        "TCP_CONFLICT",
        "Two packets carry different bytes for the same place",
        None,
        "A retransmission repeats a range of the stream with other content; the first bytes are used.",
        "The receiver may have read other bytes than this decoder did. With a wrong TCP checksum the later packet was "
        "damaged on the way or by the recorder; with a right one the first packet was, or a middlebox is broken, or "
        "somebody injects.",
        "Compare the two packets; record on both sides to see which one arrived.",
        wireshark="tcp.analysis.retransmission",
    ),
    Entry(
        "TCP_MIDSTREAM",
        "The recording starts inside the connection",
        None,
        "No SYN was recorded.",
        "Handshake, connect and chunk size were not seen: they are inferred or unknown, and rules that need them are "
        "silent.",
        "Start the recorder before the encoder, or give the earlier files of the recording as well.",
        wireshark="!(tcp.completeness & 1)",
    ),
    Entry(
        "TCP_ONE_DIRECTION",
        "Only one side of the connection was recorded",
        None,
        "All packets of the connection go the same way.",
        "Answers, acknowledgements and close reasons of the other side cannot be known.",
        "Record where both directions pass: asymmetric routing and one-way mirror ports are the usual causes.",
    ),
    Entry(
        "TCP_RESET",
        "The connection was reset without a goodbye",
        "RFC 9293 3.10.7",
        "It ends with RST, and nobody had sent FIN, deleteStream, FCUnpublish, Stream EOF or Play.Stop before. Not "
        "told where a refusal explains it, or where bytes or a whole side are missing that may have held a goodbye.",
        "Data on its way is thrown away. A crashed program, a killed container, a firewall that forgot the connection.",
        "Look at who sent the RST and at the log of that machine at this time; behind NAT raise the idle timeout.",
        wireshark="tcp.flags.reset == 1",
    ),
    Entry(
        "TCP_ZERO_WINDOW",
        "The receiver closed its window",
        "RFC 9293 3.8.6",
        "The receiver announced a window of 0: it could not take more bytes, and the sender waited.",
        "The receiver, not the network, is too slow: a blocked disk, a busy event loop, a player that paused.",
        "Look at the load of the receiver; raise its receive buffer only after that.",
        wireshark="tcp.analysis.zero_window",
    ),
    Entry(
        "TLS_NO_KEY",
        "RTMPS, and no key to look inside",
        None,
        "The connection is TLS, and no secret that was given opens it: none was, none is for this connection, they do "
        "not fit, or the handshake (which TLS 1.2 needs) was not recorded. The detail says which.",
        "Only sizes and times, the TLS version, the cipher and the host name can be seen.",
        "Give `--keylog FILE` (what SSLKEYLOGFILE wrote), or inject it with `editcap --inject-secrets tls,FILE`. "
        "ffmpeg with GnuTLS, curl and browsers write it when SSLKEYLOGFILE names a file; Node with --tls-keylog; nginx "
        "under LD_PRELOAD=libsslkeylog.so; OBS writes none: log at its server, or use `rtmp-spark relay --keylog`.",
    ),
    Entry(
        "TLS_ALERT",
        "TLS ended with an alert",
        "RFC 8446 6",
        "One side sent an alert other than close_notify.",
        "The handshake or the connection failed inside TLS: certificate, protocol version, or a damaged record.",
        "Read the alert: unknown_ca and bad_certificate are about certificates, handshake_failure about ciphers.",
        wireshark="tls.alert_message",
    ),
    Entry(
        "TLS_RECORD_LOST",
        "A TLS record could not be decrypted",
        "RFC 8446 5",
        "Bytes of a record are missing, or it does not verify under the keys given; the records after it are found "
        "again by their headers and proven by their tags.",
        "The bytes inside it are lost to the analysis as if packets were missing.",
        "Record without loss; check that the key log belongs to this connection.",
    ),
    Entry(
        "RTMPT_SEQUENCE",
        "RTMPT requests out of order",
        None,
        "The number at the end of a tunnel's path does not count up by one, and no missing packet explains it.",
        "The server may apply the bodies in another order than the client made them.",
        "Look for a proxy that retries POST requests; let the client keep one connection.",
        wireshark="http.request.method == POST",
    ),
    Entry(
        "RTMPT_HTTP_STATUS",
        "A tunnel request was answered with an HTTP error",
        None,
        "The server or a proxy answered a request of the tunnel with a status other than 200, or bytes between the "
        "requests or answers are no HTTP (a body longer than announced).",
        "The tunnel lost what the request carried, and usually ends.",
        "Read the status: 404 is an unknown session, 502 and 504 come from a proxy.",
        wireshark="http.response.code >= 400",
    ),
)
