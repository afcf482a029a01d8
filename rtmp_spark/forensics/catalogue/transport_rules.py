"""CAPTURE_*, TCP_*, TLS_*, RTMPT_*: rules about the capture file and the transport below RTMP."""

from __future__ import annotations

from rtmp_spark.forensics.catalogue.entry import Entry

ENTRIES = (
    Entry(
        "CAPTURE_TRUNCATED",
        "Capture file ends inside a record",
        None,
        when="The last record of the file announces more bytes than the file has left.",
        why="The capture tool was killed or the disk was full. Everything before the cut is decoded.",
        remedy="Stop the capture tool with SIGINT and wait until it has exited before you copy the file.",
    ),
    Entry(
        "CAPTURE_BAD_RECORD",
        "Invalid record in the capture file",
        None,
        when="A record or block header has an impossible length or contradicts itself. A packet whose IPv4 header "
        "checksum is neither correct nor 0, or whose TCP data offset is impossible, is reported as a warning.",
        why="After an invalid record header the next record cannot be found, so reading stops there; earlier packets "
        "are kept. Packets with a wrong checksum are decoded as they are, although a receiver drops them. Packets "
        "with an impossible data offset are skipped.",
        remedy="Copy or capture the file again. `capinfos` and `pcapfix` show where it is damaged.",
        wireshark='ip.checksum.status == "Bad"',
        also=("warning",),
    ),
    Entry(
        "CAPTURE_SNAPLEN",
        "Packets truncated by the snapshot length",
        None,
        when="Records hold fewer bytes than their packets had on the wire.",
        why="The bytes beyond the snapshot length are lost: messages are incomplete and media cannot be rebuilt.",
        remedy="Capture again with `tcpdump -s 0`, or without `-s` (the default of 262144 bytes is enough).",
        wireshark="frame.len > frame.cap_len",
    ),
    Entry(
        "CAPTURE_LINK_TYPE",
        "Unsupported link type",
        None,
        when="The file, or one of its interfaces, has a link type that this program does not decode. Its packets are "
        "counted only.",
        why="These packets may contain RTMP that is missing from the results.",
        remedy="Capture on an Ethernet interface or on `any`, or convert the file with `tcprewrite` or `editcap -T`.",
    ),
    Entry(
        "CAPTURE_TIME_BACKWARDS",
        "Packet timestamps go backwards",
        None,
        when="A packet has an earlier timestamp than the packet before it in the file.",
        why="Several receive queues or a clock adjustment cause this. Streams are ordered by TCP sequence number, so "
        "only measured times are affected.",
        remedy="Sort the file with `reordercap`, and keep the clock of the capturing machine synchronised.",
        wireshark="frame.time_delta < 0",
    ),
    Entry(
        "CAPTURE_LIMIT",
        "Analysis limit reached",
        None,
        when="The analysis reached a limit that bounds its memory or time, or an ingest could not compare connections "
        "with each other. The detail says which one.",
        why="Data beyond the limit is counted but not decoded. A played stream whose frames are in very many published "
        "streams is compared with the most similar ones only.",
        remedy="Split the capture (`editcap`, `rtmp-spark slice`) and analyze the parts.",
    ),
    Entry(
        "CAPTURE_DUPLICATES",
        "Duplicate packets",
        None,
        when="The same packet was recorded more than once: IP id, TCP header with its timestamp option, and length are "
        "equal, within 1 s in one file or at any distance between two files. Where the IP id is 0 and there is no "
        "timestamp option, the capture times must be equal too.",
        why="Copies are counted in duplicate_bytes. They are not retransmissions, and no rate includes them.",
        remedy="Capture on one interface only, mirror only one direction of each port, and do not pass overlapping "
        "files together. A network that duplicates packets looks the same.",
        cases="Overlapping rotated files, two capture tools, mirror ports that copy both ingress and egress, and "
        "`tcpdump -i any` on a machine that forwards packets.",
    ),
    Entry(
        "TCP_GAP",
        "TCP data missing from the capture",
        None,
        when="Sequence numbers continue after bytes that no packet in the capture contains. If the receiver "
        "acknowledged these bytes, the capture tool dropped them (at fault: capture); otherwise the network is "
        "assumed to have lost them.",
        why="Messages that contain the missing bytes are lost, and the decoder has to resynchronise. Rules that need "
        "the missing data are not applied after it.",
        remedy="Capture with a larger buffer (`tcpdump -B 65536`), on a less loaded machine, or without a mirror port.",
        cases="A mirror port that carries more traffic than its own line rate drops packets that both peers received.",
        wireshark="tcp.analysis.lost_segment",
    ),
    Entry(
        "TCP_CONFLICT",
        "Retransmission with different data",
        None,
        when="Two packets carry different bytes for the same sequence numbers. The first bytes are used.",
        why="The receiver may have read other bytes than this decoder. If the TCP checksum of the second packet is "
        "wrong, the network or the capture tool damaged that packet. If it is right, the first packet was damaged, a "
        "middlebox is broken, or packets are being injected.",
        remedy="Compare the two packets, and capture on both sides to see which of them arrived.",
        wireshark="tcp.analysis.retransmission",
    ),
    Entry(
        "TCP_MIDSTREAM",
        "Capture starts inside the connection",
        None,
        when="The capture does not contain the SYN of the connection.",
        why="The handshake, connect and the chunk size are missing: they are inferred or unknown, and rules that need "
        "them are not applied.",
        remedy="Start the capture before the encoder connects, or add the earlier files of the recording.",
        wireshark="!(tcp.completeness & 1)",
    ),
    Entry(
        "TCP_ONE_DIRECTION",
        "Only one direction captured",
        None,
        when="All packets of the connection have the same direction.",
        why="Responses, acknowledgements and close reasons of the other side are unknown.",
        remedy="Capture where both directions pass. Asymmetric routing and one-way mirror ports are the usual causes.",
    ),
    Entry(
        "TCP_RESET",
        "Connection reset without a teardown",
        "RFC 9293 3.10.7",
        when="The connection ends with RST, and neither side sent FIN, deleteStream, FCUnpublish, Stream EOF or "
        "Play.Stop before it. It is not reported if a refusal explains the reset, or if the teardown may be in data "
        "or in a direction that was not captured. It is an info if the client was a player: players leave when they "
        "like.",
        why="Data in flight is discarded. Typical causes are a crashed program, a killed container, or a firewall that "
        "expired the connection.",
        remedy="Read the log of the machine that sent the RST, at this time. Behind NAT, raise the idle timeout.",
        wireshark="tcp.flags.reset == 1",
        also=("info",),
    ),
    Entry(
        "TCP_ZERO_WINDOW",
        "Zero window: the receiver is full",
        "RFC 9293 3.8.6",
        when="The receiver announced a TCP window of 0: its buffer was full, and the sender had to wait. It is a "
        "warning from 200 ms in total on, otherwise an info. It is an info for players of files too: they read at the "
        "speed of playback and let the server wait.",
        why="The receiver is too slow, not the network: a blocked disk, a busy event loop, or a paused player.",
        remedy="Check the load of the receiver first. Raise its receive buffer only after that.",
        wireshark="tcp.analysis.zero_window",
        also=("info",),
    ),
    Entry(
        "TCP_LOSS",
        "Packet loss",
        "RFC 9293 3.8.1",
        when="At least 3 segments of a direction with at least 100 data packets were lost and retransmitted, and these "
        "are at least 2 % of its bytes, or more than 10 % in a second with at least 20 kB; info from 0.5 %. "
        "Retransmissions are not counted if the receiver reports that it had the data (DSACK; most tail-loss probes), "
        "if they were sent into a closed window, or if they repeat the IP id.",
        why="TCP repairs the loss, but each repair delays all later data by at least a round trip, and the sender "
        "reduces its rate. A live stream falls behind when that rate is below its bitrate.",
        remedy="Look for the bad link on the path of this direction: Wi-Fi, a mobile network, a full uplink. Reduce "
        "the bitrate. A capture at the other end shows between which points the packets are lost.",
        wireshark="tcp.analysis.retransmission && !tcp.analysis.spurious_retransmission",
        also=("info",),
    ),
    Entry(
        "TLS_NO_KEY",
        "RTMPS without a decryption key",
        None,
        when="The connection uses TLS and cannot be decrypted: no secrets were given, none of them belongs to this "
        "connection, they do not match, or the handshake (required for TLS 1.2) was not captured. The detail says "
        "which.",
        why="Only sizes, times, the TLS version, the cipher and the host name are visible.",
        remedy="Pass a key log (the file that SSLKEYLOGFILE names) with `--keylog FILE`, or embed it with `editcap "
        "--inject-secrets tls,FILE`. ffmpeg with GnuTLS, curl and browsers write one when SSLKEYLOGFILE is "
        "set; Node needs --tls-keylog, nginx needs LD_PRELOAD=libsslkeylog.so. OBS cannot write one: log the "
        "keys at its server, or use `rtmp-spark relay --keylog`.",
    ),
    Entry(
        "TLS_ALERT",
        "TLS alert",
        "RFC 8446 6",
        when="One side sent an alert other than close_notify.",
        why="The TLS handshake or the connection failed because of a certificate, a protocol version or a damaged "
        "record.",
        remedy="Read the alert: unknown_ca and bad_certificate are about certificates, handshake_failure is about "
        "ciphers.",
        wireshark="tls.alert_message",
    ),
    Entry(
        "TLS_RECORD_LOST",
        "Undecryptable TLS record",
        "RFC 8446 5",
        when="Bytes of a TLS record are missing, or the record does not verify with the given keys. The decoder finds "
        "the next record by its header and verifies it by its tag.",
        why="The analysis treats the content of the record like missing packets.",
        remedy="Capture without packet loss, and check that the key log belongs to this connection.",
    ),
    Entry(
        "RTMPT_SEQUENCE",
        "RTMPT requests out of order",
        None,
        when="The sequence number at the end of the request path does not increase by one, and no missing packet "
        "explains it.",
        why="The server may process the request bodies in another order than the client sent them.",
        remedy="Look for a proxy that retries POST requests, and make the client use one connection.",
        wireshark="http.request.method == POST",
    ),
    Entry(
        "RTMPT_HTTP_STATUS",
        "HTTP error in an RTMPT tunnel",
        None,
        when="The server or a proxy answered a tunnel request with a status other than 200, or the bytes between two "
        "requests or responses are not HTTP (for example a body longer than announced).",
        why="The tunnel lost the content of the request, and usually ends.",
        remedy="Read the status: 404 means an unknown session; 502 and 504 come from a proxy.",
        wireshark="http.response.code >= 400",
    ),
)
