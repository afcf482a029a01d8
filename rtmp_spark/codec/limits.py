"""Every bound on what the input may cost in memory, work and time, with its reason, and the thresholds that decide
between two readings of the same packets.

Thresholds of rules are in forensics/thresholds.py. How an ingest divides its work, and how much a screen or a page
shows, is decided beside the code that does it.

Memory follows these numbers, never a length field from the wire. There are two kinds:

- `Limits` holds the bounds that a caller may change (the relay lowers `message_bytes`). Decoders, parsers and capture
  readers take a `Limits` and default to `DEFAULT_LIMITS`.
- The constants below `Limits` are fixed. They are grouped by the package and module that uses them; import the one you
  need by name. A new bound belongs in the section of its package, with a comment that says why it has this value.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Bounds that a caller may change."""

    # RTMP, per direction of a connection
    message_bytes: int = 0xFFFFFF  # the longest message a 24-bit length can announce; the relay sets 10 MiB
    partial_bytes: int = 64 * MIB  # payload bytes kept of all unfinished messages together; allocated as bytes arrive

    # AMF, per message; a count from the wire must also not exceed the number of bytes that remain
    amf_depth: int = 64  # nested containers; real commands nest fewer than 5
    amf_nodes: int = 65_536  # values, including those that references would unfold to

    # Capture files
    pcap_record_bytes: int = 262_144  # libpcap's MAXIMUM_SNAPLEN
    pcapng_block_bytes: int = 16 * MIB  # a longer block is damage or an attack
    decompress_ratio: int = 200  # captures compress far less; a higher ratio is a decompression bomb
    decompress_bytes: int = 1 << 40  # of one file, after decompression

    # TCP: bytes held after a hole, before the hole is declared a gap
    tcp_hold_bytes: int = 10 * MIB  # per direction
    tcp_hold_bytes_total: int = 256 * MIB  # of all directions together
    open_connections: int = 100_000  # that are reassembled at a time
    brief_flow_bytes: int = 96 * MIB  # of flows with a few packets; a SYN flood must not take all memory


DEFAULT_LIMITS = Limits()


# -- codec: AMF (amf.py, amf0.py, amf3.py) ----------------------------------------------------------------------------

MAX_DEPTH = 128  # nesting that is refused even if `Limits.amf_depth` allows it: functions over values are recursive
REFERENCES_WRITTEN_OUT = 4  # arguments of a command that are references; commands have few arguments
EXPANSION_CHARACTERS = 4096  # that AMF3 references to strings and names stand for in a message of any length, ...
EXPANSION_RATIO = 32  # ... and per byte of it; objects with long names that are sent by reference reach 10


# -- codec: handshake (handshake.py) ----------------------------------------------------------------------------------

CACHED_PACKETS = 16  # parsed C1 and S1 packets kept; each is needed several times while its handshake is checked


# -- codec: messages (message.py) -------------------------------------------------------------------------------------

CACHED_CONTROL_BYTES = 64  # longest control body whose parsed form is cached; every legal one is shorter
CACHED_CONTROLS = 1024  # parsed control bodies kept; connections repeat the same few


# -- codec: chunks (chunk/) -------------------------------------------------------------------------------------------

# Timestamps (stream.py)
REPEAT_MS = 1000  # fmt 3 after fmt 0 repeats the fmt 0 timestamp as a delta only up to this; above it adds 0
WRAP31_MS = 60_000  # SRS wraps timestamps at 31 bits: a step of -2^31 plus less than this is that wrap
ABSOLUTE_MS = 10_000  # an extended "delta" this close to the previous timestamp is itself a timestamp

# Deciding whether a header is one (lookahead.py, dechunker.py)
SHORTEST_CONTROL = 2  # bytes of a user control message that holds an event type and nothing else
LONGEST_CONTROL = 64  # a longer control message is taken for noise unless the next header confirms it
CONFIRM_BYTES = 64 * KIB  # a doubtful header whose first chunk is longer than this is not waited for
SHORT_STREAMS = 8  # FFmpeg's one-byte continuation headers are looked for among at most this many csids >= 64

# Waiting for what follows a message (lookahead.py, size.py)
SETTLE_BYTES = MIB  # longest message that is held back to see which header follows it
SIZE_AHEAD_BYTES = 32 * KIB  # distance within which a second message must confirm an unusual chunk size
STALE_BITS = 20  # evidence required before a header from before a loss is used again


# -- codec: decoding after a gap (decoder.py) -------------------------------------------------------------------------

SEARCH_WINDOWS = (2048, 8192, 32768, 131072, 524288, 2097152)  # tried in turn, so the result never depends on how
# the input was split; a boundary that needs more than the last is given up
SEARCH_KEEP_BYTES = 128 * KIB  # tail of the last window that is searched again together with what follows
BRIDGE_BYTES = 2 * MIB  # longest rest of a message that is waited for after a gap inside this message
# The first bytes of a payload say what the message is. If the gap begins within them, the payload after the gap is
# dropped; otherwise it would be read as this head.
MESSAGE_HEAD_BYTES = 64
FREE_EFFORT = 50_000  # search steps (some microseconds each) that any direction may spend
EFFORT_PER_BYTE = 1 / 8  # further steps per received byte: the cost of a search stays proportional to the input
EFFORT_PER_GAP = 200  # further steps per gap; each gap is at least one packet
MANY_STREAMS = 256  # with more chunk streams than this, a search ignores the headers of csids >= 64


# -- codec: search for a message boundary (resync/) -------------------------------------------------------------------
#
# Evidence is counted in bits: one bit halves the chance that random bytes look the same. The thresholds were chosen so
# that tens of thousands of simulated losses in real streams (bench/resync.py) yield no invented message.

# Evidence that decides (evidence.py, search.py)
PAYLOAD_HEAD_BYTES = 24  # bytes at the start of a payload that are compared with its type
PROOF_BITS = 60  # a chain of messages is proven, while more bytes may follow
PROOF_BITS_AT_END = 36  # the same when no more bytes will follow
HEADERS_ALONE_BITS = 120  # if payloads contradict their type, headers alone must say this: three of fmt 0 or 1 in a row
FIRST_BITS = 16  # credit for a header directly after the loss: senders often start packets with a message
ALONE_BITS = 26  # evidence required from the first header itself if the chain skips bytes to reach the next one
REGULAR_WINDOW_BYTES = 32 * KIB  # window in which messages without any length are searched (regular.py)

# Following a chain of messages (chain.py)
ENOUGH_BITS = 120  # a walk stops here ...
PATIENT_BITS = 1000  # ... or here, while it waits for a message that confirms a guess
UNCUT_BITS = 16  # evidence after a message before it counts as not split into chunks
TRUST_BITS = 28  # evidence after a message whose length is from before the loss
TRUST_BITS_AT_END = 20  # the same when no more bytes will follow; the message's own evidence is added
SHORTEST_BITS = 28  # evidence after a guessed length that makes longer lengths unnecessary to try
GUESS_BITS = 12  # deducted for a guessed length
ORPHAN_BITS = 16  # deducted when the next apparent header is taken for the end of a chunk of unknown length
GUESSES = 6  # lengths guessed along one chain
ENDS_TRIED = 24  # possible ends of one message whose length is guessed
MAX_STEPS = 500  # headers read before an assumption about the chunk size is given up, ...
STEPS_PER_BYTE = 1 / 32  # ... plus this much per byte of the window, ...
MOST_STEPS = 4000  # ... up to this; RTMP never needs more
LEAST_EFFORT = 100  # charged for any search, in steps

# Going back from a proven boundary (backward.py)
BACK_EFFORT = 20_000  # steps before the messages in front of a boundary are given up
BACK_BYTES = 128 * KIB  # distance before a boundary within which the message that ends there is searched
COMPACT_DELTA_MS = 1024  # largest timestamp delta that an fmt 2 header found backwards may carry
LENGTH_KNOWN_BITS = 16  # evidence required of a message whose length is known, or to leave one alone
LENGTH_UNKNOWN_BITS = 30  # evidence required of a message whose length is only inferred

# Chunk sizes (cuts.py)
MARKS_TRIED = 2000  # continuation headers tried in one message to find an unusual chunk size
SIZES_TRIED = 16  # chunk sizes considered for one message
INTERLEAVE_STEPS = 200  # headers read to find out whether messages interleave

# Messages recognised by their regularity (regular.py)
SHORTEST_ALIKE = 8  # bytes; at smaller distances any data repeats
ALIKE_TIMES = 8  # repetitions required, or half as many if a header of fmt 0 or 1 follows
ROWS_TRIED = 8  # places tried as the first message of a row, ...
SECONDS_TRIED = 16  # ... and for each of them, as its second
MOST_UNRECEIVED = 1 << 28  # bytes between two Acknowledgements of a receiver


# -- codec: audio and video (media/) ----------------------------------------------------------------------------------

RECORD_BYTES = 4096  # bytes read of a configuration record or parameter set; the longest legal ones are far shorter
CACHED_RECORDS = 256  # parsed configuration records kept; encoders repeat the same record on every connection
MAX_TRACKS = 1024  # stream and track ids come from the wire; beyond this the oldest track is forgotten
OBUS_BEFORE_FRAME = 64  # AV1 units read to find the first frame; a delimiter, a sequence header and metadata are usual
MAX_PICTURE_SIDE = 0xFFFF  # pixels; a parameter set that declares a larger picture is damaged


# -- capture/files ----------------------------------------------------------------------------------------------------

READ_WINDOW_BYTES = 8 * MIB  # of a file in memory at a time: large enough that the cost per window does not matter
FIRST_WINDOW_BYTES = 1 << 16  # where only the first packet is wanted
LIKELY_PACKET_BYTES = 64 * KIB  # longer than most records; read along, so that few records need a second read
PACKET_SEARCH_BYTES = 2 * MIB  # to find the first record of a byte range: a chain of the largest records fits
RECORD_CHAIN_LENGTH = 24  # consecutive plausible record headers that prove a record boundary
RECORD_CHAIN_LEAST = 3  # of them where the searched bytes end earlier
RECORD_CHAIN_SECONDS = 86_400  # between two of them; random bytes differ by more
RECORD_PLAUSIBLE_BYTES = 1 << 24  # original length of a packet in such a chain
COMPRESSED_HEAD_BYTES = 1 << 16  # the first read of a compressed file; often only its first packet is wanted
COMPRESSED_READ_BYTES = 1 << 20
GZIP_STEP_BYTES = 1 << 22  # of output; a damaged step is repeated in smaller ones
DECOMPRESS_STEP_BYTES = 1 << 16  # of output of zstd, and of the first step of a gzip member
DECOMPRESS_GRACE_BYTES = 64 * MIB  # silence compresses well: `decompress_ratio` applies to larger output only
ZSTD_WINDOW_BYTES = 1 << 27  # a frame may ask for a window of any size
ZSTD_INPUT_BYTES = 1024  # per step: a block of 128 KiB can come from a few bytes of input
PCAPNG_OPTION_BYTES = 65_000  # of a comment that is written: the length field of an option has 16 bits


# -- capture/packets --------------------------------------------------------------------------------------------------

LAYERS_PER_PACKET = 24  # headers before TCP; tunnels may be nested, loops of them may not
FRAGMENTED_DATAGRAMS = 1024  # incomplete IP datagrams that wait for fragments; the oldest is dropped first
FRAGMENTS_PER_DATAGRAM = 2048
DATAGRAM_BYTES = 65_535  # the largest IPv4 total length


# -- capture/tcp ------------------------------------------------------------------------------------------------------

BATCH_SEGMENTS = 1 << 14  # reassembled at a time: they open at most this many connections between two limit checks
TCP_HISTORY_BYTES = 1 << 16  # delivered bytes kept per direction, to compare retransmissions with
TCP_HISTORY_BYTES_TOTAL = 64 * MIB  # of all directions; the least recently active ones lose theirs
DUPLICATE_WITHIN_NS = 1_000_000_000  # copies of a packet in one file are recorded within this time
REMEMBERED_PACKETS = 1 << 20  # of a connection, to recognise copies in later files; part of the history bytes
SAVED_PACKETS = 2048  # of these that are saved with an open connection, 8 bytes each: 3 s of a stream of 5 Mbit/s
UNCONFIRMED_LOSSES = 4096  # retransmissions of a direction that a later DSACK may take back
LOSS_OPEN_SECONDS = 16  # after a retransmission, within which this changes the losses of its second
LOSS_SECOND_BYTES = 20_000  # a share of lost bytes needs so many in the second (TCP_LOSS)
HELD_SEGMENT_COST = 256  # bytes a held segment counts at least: what it costs in memory however short it is
KEPT_CONFLICTS = 1024  # retransmissions with other bytes, per direction, that are reported; the rest is counted
REORDERED_WITHIN_NS = 3_000_000  # a hole filled later than this was retransmitted (Wireshark's threshold)
NEAR_IP_IDS = 4096  # IP ids closer than this tell the order of two packets; others may be random
HOLE_WAIT_NS = 60_000_000_000  # no packet is recorded this long after data that was sent after it
FARTHEST_ACK_BYTES = 1 << 30  # an acknowledgement beyond this is not about data that could be missing
LINGER_NS = 60_000_000_000  # a closed connection still owns packets of its endpoints for so long (TIME_WAIT)
SILENT_NS = 86_400_000_000_000  # so does an open one; connections that are never closed must end at some time
BRIEF_NS = 240_000_000_000  # so does one without any payload (RFC 5382 5, REQ-5: partially open connections)
BRIEF_FLOW_PACKETS = 4  # with more, a flow is reassembled: SYN, SYN-ACK and ACK come before any data
SILENT_FLOW_PACKETS = 8  # the same without any payload: health checks open and close in seven packets
BRIEF_FLOW_PAYLOAD = 1500  # bytes in these packets
BRIEF_FLOW_COST = 256  # bytes that such a flow counts beside its packets
SHARED_OUT_CONNECTIONS = 200_000  # that are shared out evenly to processes; later ones by a hash
BRIEF_FLOWS_AT_ONCE = 1024  # that are ended together, so that few of them become objects at a time
OPENING_PACKETS = 1000  # of a connection, among which its SYN may be recorded in any place
LEAST_RESET_WINDOW = 65_535  # how far from the expected sequence number a RST is accepted at least
ZERO_WINDOW_SECONDS = 600  # of one zero window that get rows of their own: clocks may jump by years
UNACKED_SEGMENTS = 1 << 18  # that wait for their acknowledgement (round trip times), of all connections
ROUND_TRIP_NS = 60_000_000_000  # acknowledgements after a longer time are not a round trip
UNHEARD_BYTES = 1 << 16  # of a direction wait for its first acknowledgement; with more, its receiver was not recorded


# -- capture/service --------------------------------------------------------------------------------------------------

SERVICE_SEARCH_BYTES = 20_000  # searched for a TLS record or an RTMPT request: one whole record and the next header
REQUEST_LINE_BYTES = 256  # of the first HTTP request, within which its path shows whether it is RTMPT


# -- capture/unwrap/tls -----------------------------------------------------------------------------------------------

TLS_WAITING_BYTES = 4 * MIB  # of one direction that wait for the hello of the other
TLS_HANDSHAKES = 64  # of one connection, by renegotiation
TLS_NOTES = 64  # findings about one TLS connection between two windows
TLS_HELLO_BYTES = 1 << 16  # of a hello message; post-quantum key shares make some 2 KB
TLS_FRAGMENT_BYTES = (1 << 14) + 2048  # of a legal record (RFC 5246 6.2.3)
TLS_LEAST_FRAGMENT_BYTES = 17  # of a protected record: its tag and one byte
TLS_NUMBERS_TRIED = 1 << 16  # record numbers tried for one record, where the cipher does not reveal the number
TLS_NUMBERS_FOR_UPDATES = 1 << 12  # with more candidates, only one lost KeyUpdate is considered
TLS_GUESSES_TRIED = 1 << 18  # tries in all to find the record number of a direction that starts midstream
TLS_SEARCHED_BYTES = 256 << 10  # without a record that opens: there is no key for this direction
TLS_FAILED_RECORDS = 8  # in a row, and none ever opened: there is no key for this direction
TLS_LOST_KEY_UPDATES = 8  # that one gap may hide
TLS_EARLY_RECORDS = 64  # of 0-RTT data held; servers allow 16 KB or little more
KEYLOG_BYTES = 256 * MIB  # of one key log: over a million connections
KEYLOG_SNIFFED_BYTES = 4096  # of a file in a directory, to see whether it is a key log


# -- capture/unwrap/rtmpt ---------------------------------------------------------------------------------------------

HTTP_HEAD_BYTES = 1 << 16
HTTP_LINE_BYTES = 5000  # of a request or status line
RTMPT_OTHER_REQUESTS = 16  # on a connection before its first RTMPT request: it is not RTMPT after that
RTMPT_OTHER_BYTES = 128 << 10  # of requests, and of responses to requests that are not RTMPT, likewise
RTMPT_RESPONSES_AHEAD_BYTES = 16 * MIB  # of responses whose requests are read later: more than one window of a file
RTMPT_REQUESTS_PER_WINDOW = 1 << 16  # whose responses are read later
RTMPT_UNANSWERED = 1024  # requests that wait for a response after their window was read
RTMPT_PIPELINED = 64  # requests that may wait for their responses at a time, where packets are missing
RTMPT_RESPONSES_COUNTED = 4096  # waiting events that are searched for the start of a response
RTMPT_SESSION_ID_BYTES = 256
RTMPT_HELD_BODIES = 1 << 14  # that wait for an earlier one, which TCP may hold back while a packet is missing
RTMPT_HELD_BYTES = 12 * MIB  # of such bodies
RTMPT_CHECKSUMS = 64  # of recent bodies, to recognise repeated ones
RTMPT_NOTES = 64  # findings about one connection or session between two windows


# -- redact -----------------------------------------------------------------------------------------------------------

REDACT_CACHE_TEXTS = 4096  # hashes that are kept for texts that occur again
REDACT_CACHE_CHARACTERS = 1024  # of such a text
REDACT_CACHE_LENGTHS = 4  # of known secrets, for each of which the hashes of such a text are kept
REDACT_CACHE_SECRETS = 16  # known secrets of a connection; commands of connections with more are not kept
REDACT_LENGTHS = 16  # of known secrets; if a connection has so many, texts are searched for REDACT_WORDS instead
REDACT_WORDS = 6  # of one known secret
REDACT_CACHE_HASHES = 1 << 18  # of parts of texts


# -- conversation -----------------------------------------------------------------------------------------------------

BRIEF_PAYLOADS_CACHED = 1024  # payloads of connections of one packet whose protocol is remembered
UNDECIDED_BYTES = 512 << 10  # of one direction, before a connection without any sign of RTMP is dropped
AWAITED_US = 120_000_000  # facts of one direction wait this long for bytes of the other that are not decoded yet
ROLE_MESSAGES = 64  # messages of a direction that may show who is the client, before the ports decide
REPEATED_COMMAND_BYTES = 4096  # longest command whose parsed form is cached; commands that repeat are short
CACHED_COMMANDS = 1024  # parsed commands kept
KEPT_SEGMENTS = 1 << 18  # segments remembered to find the packet of a message that is not complete yet
MAX_LAGGING = 1024  # csids, and stream ids of each, whose lagging timestamps are followed
MAX_WAITING_VIOLATIONS = 1024  # violations kept until their message is complete
MAX_PENDING_REQUESTS = 1024  # requests of one direction, or of one stream, that wait for an answer
MAX_KNOWN_REQUESTS = 4096  # subjects of requests remembered to recognise answers that were recorded too early
MAX_STREAMS = 4096  # streams of one connection that get a row
MAX_GUESSED_STREAMS = 64  # open streams among which the one that media on an unknown stream id belongs to is searched
SETTLED_PER_WINDOW = 16  # connections that are shown while a capture is still being written; more cannot be read
LONG_RUN_BYTES = 1 << 20  # shortest run that is worth sending to a helper process
SHARED_MEMORY_BYTES = 16 << 20  # of one helper process; a longer run is sent through the pipe
NEARBY_US = 2_000_000  # a request recorded this much later than an answer is not the request that it answers

# How a connection ended (ending.py)
IDLE_US = 5_000_000  # a close after silence this long is taken for a timeout
IDLE_PUBLISHER_US = 3_000_000  # so is a close of the server after this long without media of its publisher
TEARDOWN_US = 10_000_000  # media this long after a teardown belongs to something else
RETRANSMITTED_US = 3_000_000  # a peer is gone if nothing new was sent to it, only retransmitted, for this long
REFUSAL_US = 5_000_000  # a close this soon after a refusal belongs to it
TURNED_AWAY_US = 1_000_000  # a close this soon after a request is its answer


# -- forensics --------------------------------------------------------------------------------------------------------
#
# What bounds memory is here; what decides whether a rule applies is in forensics/thresholds.py.

# Per stream
MEASURED_TRACKS = 64  # track ids come from the wire; the tracks beyond this are measured as one
TRACK_VARIANTS = 8  # resolutions and sample rates remembered per track, to compare with onMetaData
HISTOGRAM_VALUES = 4096  # distinct values; a sender that produces more only blurs its own median
DRIFT_STRETCHES = 512  # averages of the audio/video offset; neighbours are merged beyond this
KEPT_STALLS = 256  # stalls that become findings; later ones are only counted
KEPT_PAUSES = 16  # latest pauses of the whole stream, subtracted from the silence of one track
KEPT_PACES = 16  # latest parts of a track that came too fast or too slowly, and its latest stalls
PACE_FRAMES = 256  # latest frames of a track whose offsets are averaged to tell how late it is
IGNORED_TIMESTAMPS = 256  # latest messages whose timestamp is known to be wrong

# Per connection
WAITING_PINGS = 256  # Ping Requests of one direction without a response
WAITING_ACKNOWLEDGEMENTS = 256  # Acknowledgements compared when the message in flight is complete
ACKNOWLEDGEMENT_WAITS = 256  # times in which a direction waited for an Acknowledgement
TRANSACTION_IDS = 4096  # of one direction; with more, responses are no longer checked
HELD_COMMAND_FINDINGS = 64  # findings of one direction held until no late gap can explain them
TRAIT_CHARS = 120  # of one trait; fingerprints compare the start of a text only
TRAIT_FIRST_MESSAGES = 8  # messages of a direction whose order is a trait
REDACTED_NAMES = 64  # stream names whose redacted form is recognised in a resumed connection

# Per recording
COMPARED_MESSAGES = 2_000_000  # held to compare the recordings of several sensors, 75 bytes each
MATCHED_FRAMES = 2_000_000  # media messages held to match played with published streams, 25 bytes each

# Per played stream: what the same content in very many published streams may cost
COMPARED_STREAMS = 16  # published streams compared; a match needs a fifth of the played frames, so 5 are plausible
SHARED_FRAMES = 100_000  # frames of a play found in published streams, before the search for more streams ends, ...
SHARED_FRAMES_EACH = 64  # ... plus this many per distinct frame of the play
INDEXED_FRAMES = 1_000_000  # of published streams in one index, 20 bytes each


# -- forensics: connection rules and findings -------------------------------------------------------------------------

MAX_TROUBLED_SECONDS = 100_000  # seconds of one direction with retransmissions or a zero window (a day has 86,400)
LISTED_DETAILS = 5  # distinct details that one row of `findings` lists
DETAIL_CHARACTERS = 2000  # of one row of `findings`
MAX_FINDING_KINDS = 1024  # of one connection; beyond this, findings of different streams are counted together
MAX_FINDING_STREAMS = 4096  # streams remembered per kind of finding; as many as can have rows


# -- analysis ---------------------------------------------------------------------------------------------------------

ANALYZED_BYTES = 16 * MIB  # of payload; after so many, rows are taken from the analysis
BATCH_ROWS = 8192
BATCH_BYTES = 16 * MIB  # of the columns whose length the sender decides; a batch has at least one group of rows
HELD_BYTES = 32 * MIB  # of rows that wait for their capture id in memory; more are held in a temporary file
SEPARATED_BYTES = 64 * MIB  # of captures; smaller ones are decoded before another process would be of use
KEPT_RUN_BYTES = 32 * KIB  # of one connection; with more, it is not closed before it is over
KEPT_RUN_BYTES_TOTAL = 32 * MIB  # of all open connections
RUN_FILE_BYTES = 64 * MIB  # of closed connections; later ones go into another file, so that this one can be deleted
RUN_WRITE_BYTES = MIB  # of them, written at a time
SPREAD_WINDOW_BYTES = 2 * MIB  # read to see whether they are worth dividing among processes: all others wait for it
UNDIVIDED_SHARE = 0.8  # of the bytes of a capture; a connection with more leaves little to other processes
SETTLED_SECONDS = 300  # a second this much older than all packets of a window is final
OPEN_SECONDS = 4096  # of one direction that are not final; with more, the oldest become final
FIRST_COMMANDS = 24  # commands kept for display if the table `commands` is not wanted
EXTRACT_SEARCHED_BYTES = 1 << 16  # of the data tags of an extracted stream, for secrets
EXTRACT_STARTS = 1000  # on one stream id; later starts do not begin another stream


# -- rtmp_relay: bounds on what one peer can make the live programs hold ----------------------------------------------

# A live peer gets less than an archived capture: 10 MiB is far more than a keyframe of a live stream.
RELAY_LIMITS = Limits(message_bytes=10 * MIB, partial_bytes=16 * MIB)
SEND_QUEUE_MESSAGES = 512  # waiting for one peer: 7 seconds of video at 25 frames/s with AAC audio
SEND_QUEUE_BYTES = 8 * MIB
STREAMS_PER_CONNECTION = 64  # createStream; real clients use one or two
STREAM_NAME_BYTES = 255  # of an app or stream name; most file systems allow no longer file name
CACHED_HEADER_BYTES = 1 << 16  # of one configuration or onMetaData that is kept for late joiners
CACHED_HEADERS = 128  # configurations per stream; a publisher could invent track numbers without end
# The GOP cache enters a send queue at once, after headers and replies, so it must be smaller than the queue.
GOP_CACHE_MESSAGES = SEND_QUEUE_MESSAGES - 64
GOP_CACHE_BYTES = SEND_QUEUE_BYTES // 2
# How long a player waits for a keyframe before it gets frames anyway: not every keyframe can be recognised, and video
# may stop while the audio continues. 10 s is the longest common keyframe interval.
KEY_WAIT_MS = 10_000  # of media time
KEY_WAIT_FRAMES = 2_000  # if timestamps do not advance
RELAY_CONNECTIONS = 1000
