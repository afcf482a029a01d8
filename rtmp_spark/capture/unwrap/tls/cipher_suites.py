"""The numbers of TLS: content types, versions, cipher suites, alerts.

This module has names only, so that a connection without keys can be described without the package `cryptography`.
To add a cipher suite, add its code to `_REGISTERED`; record_ciphers.py decrypts its records.
"""

from __future__ import annotations

from typing import NamedTuple

TLS12, TLS13 = 0x0303, 0x0304
CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA = 20, 21, 22, 23
VERSION_NAMES = {
    0x0300: "SSL 3.0", 0x0301: "TLS 1.0", 0x0302: "TLS 1.1", 0x0303: "TLS 1.2", 0x0304: "TLS 1.3",
}  # fmt: skip
CLOSE_NOTIFY = 0
# RFC 8446 6, RFC 5246 7.2, RFC 7301
ALERT_NAMES = {
    0: "close_notify", 10: "unexpected_message", 20: "bad_record_mac", 21: "decryption_failed", 22: "record_overflow",
    30: "decompression_failure", 40: "handshake_failure", 41: "no_certificate", 42: "bad_certificate",
    43: "unsupported_certificate", 44: "certificate_revoked", 45: "certificate_expired", 46: "certificate_unknown",
    47: "illegal_parameter", 48: "unknown_ca", 49: "access_denied", 50: "decode_error", 51: "decrypt_error",
    60: "export_restriction", 70: "protocol_version", 71: "insufficient_security", 80: "internal_error",
    86: "inappropriate_fallback", 90: "user_canceled", 100: "no_renegotiation", 109: "missing_extension",
    110: "unsupported_extension", 111: "certificate_unobtainable", 112: "unrecognized_name",
    113: "bad_certificate_status_response", 114: "bad_certificate_hash_value", 115: "unknown_psk_identity",
    116: "certificate_required", 120: "no_application_protocol",
}  # fmt: skip
ALERT_MEANINGS = {
    10: "a message that is not allowed at this point", 20: "a record failed authentication: it was damaged, or a bug",
    22: "a record longer than allowed", 40: "no cipher, version or parameter that both sides accept",
    42: "the certificate is damaged or its signature is wrong", 43: "a kind of certificate that it does not accept",
    44: "the certificate was revoked", 45: "the certificate expired, or the clock is wrong",
    46: "the certificate was not accepted", 47: "a field with an invalid value",
    48: "the certificate is signed by an authority it does not trust", 49: "access was denied",
    50: "a message that cannot be read", 51: "a signature or a key exchange failed",
    70: "no common TLS version", 71: "the ciphers offered are too weak for it", 80: "an internal error",
    86: "a fallback to an older version was refused", 90: "the handshake was cancelled",
    100: "it does not renegotiate", 109: "an extension is missing", 110: "an extension it did not ask for",
    112: "it does not serve this host name (SNI)", 115: "the shared key is unknown to it",
    116: "it wants a client certificate", 120: "no common application protocol (ALPN)",
}  # fmt: skip
DIGEST_BYTES = {"SHA": 20, "SHA256": 32, "SHA384": 48}


class Suite(NamedTuple):
    """A cipher suite: how its records are protected and which hash derives its keys."""

    name: str
    mode: str  # GCM, CCM, CHACHA, CBC
    key_bytes: int
    tag_bytes: int
    mac: str  # of CBC records
    prf: str

    @property
    def secret_bytes(self) -> int:
        """Length of a TLS 1.3 secret of this suite."""
        return DIGEST_BYTES[self.prf]


def _suite(name: str) -> Suite:
    words = name.rpartition("_WITH_")[2].removeprefix("TLS_").split("_")
    if words[0] == "CHACHA20":
        return Suite(name, "CHACHA", 32, 16, "", "SHA256")
    digest = words[-1] if words[-1].startswith("SHA") else "SHA256"
    prf = "SHA256" if digest == "SHA" else digest
    tag = 8 if "8" in words[3:] else 16
    return Suite(name, words[2], int(words[1]) // 8, tag, digest if words[2] == "CBC" else "", prf)


_AES = "AES_128_{0},AES_256_{0}"
_CBC_SHA, _CBC_SHA2 = "AES_128_CBC_SHA,AES_256_CBC_SHA", "AES_128_CBC_SHA256,AES_256_CBC_SHA384"
_GCM, _CCM, _CCM_8 = "AES_128_GCM_SHA256,AES_256_GCM_SHA384", _AES.format("CCM"), _AES.format("CCM_8")
# First code, step to the next, key exchange, ciphers (IANA, TLS Cipher Suites).
_REGISTERED = (
    (0x002F, 6, "RSA", _CBC_SHA), (0x0033, 6, "DHE_RSA", _CBC_SHA), (0x0032, 6, "DHE_DSS", _CBC_SHA),
    (0x0034, 6, "DH_anon", _CBC_SHA), (0x003C, 1, "RSA", _AES.format("CBC_SHA256")),
    (0x0067, 4, "DHE_RSA", _AES.format("CBC_SHA256")), (0x0040, 42, "DHE_DSS", _AES.format("CBC_SHA256")),
    (0x006C, 1, "DH_anon", _AES.format("CBC_SHA256")), (0x008C, 1, "PSK", _CBC_SHA), (0x0090, 1, "DHE_PSK", _CBC_SHA),
    (0x0094, 1, "RSA_PSK", _CBC_SHA), (0x009C, 1, "RSA", _GCM), (0x009E, 1, "DHE_RSA", _GCM),
    (0x00A2, 1, "DHE_DSS", _GCM), (0x00A6, 1, "DH_anon", _GCM),
    (0x00A8, 1, "PSK", _GCM), (0x00AA, 1, "DHE_PSK", _GCM), (0x00AC, 1, "RSA_PSK", _GCM),
    (0x00AE, 1, "PSK", _CBC_SHA2), (0x00B2, 1, "DHE_PSK", _CBC_SHA2), (0x00B6, 1, "RSA_PSK", _CBC_SHA2),
    (0xC004, 1, "ECDH_ECDSA", _CBC_SHA), (0xC009, 1, "ECDHE_ECDSA", _CBC_SHA), (0xC00E, 1, "ECDH_RSA", _CBC_SHA),
    (0xC013, 1, "ECDHE_RSA", _CBC_SHA), (0xC018, 1, "ECDH_anon", _CBC_SHA), (0xC023, 1, "ECDHE_ECDSA", _CBC_SHA2),
    (0xC025, 1, "ECDH_ECDSA", _CBC_SHA2), (0xC027, 1, "ECDHE_RSA", _CBC_SHA2), (0xC029, 1, "ECDH_RSA", _CBC_SHA2),
    (0xC02B, 1, "ECDHE_ECDSA", _GCM), (0xC02D, 1, "ECDH_ECDSA", _GCM), (0xC02F, 1, "ECDHE_RSA", _GCM),
    (0xC031, 1, "ECDH_RSA", _GCM), (0xC035, 1, "ECDHE_PSK", _CBC_SHA), (0xC037, 1, "ECDHE_PSK", _CBC_SHA2),
    (0xC09C, 1, "RSA", _CCM), (0xC09E, 1, "DHE_RSA", _CCM), (0xC0A0, 1, "RSA", _CCM_8), (0xC0A2, 1, "DHE_RSA", _CCM_8),
    (0xC0A4, 1, "PSK", _CCM), (0xC0A6, 1, "DHE_PSK", _CCM), (0xC0A8, 1, "PSK", _CCM_8), (0xC0AA, 1, "PSK_DHE", _CCM_8),
    (0xC0AC, 1, "ECDHE_ECDSA", _CCM), (0xC0AE, 1, "ECDHE_ECDSA", _CCM_8),
    (0xCCA8, 1, "ECDHE_RSA", "CHACHA20_POLY1305_SHA256"), (0xCCA9, 1, "ECDHE_ECDSA", "CHACHA20_POLY1305_SHA256"),
    (0xCCAA, 1, "DHE_RSA", "CHACHA20_POLY1305_SHA256"), (0xCCAB, 1, "PSK", "CHACHA20_POLY1305_SHA256"),
    (0xCCAC, 1, "ECDHE_PSK", "CHACHA20_POLY1305_SHA256"), (0xCCAD, 1, "DHE_PSK", "CHACHA20_POLY1305_SHA256"),
    (0xCCAE, 1, "RSA_PSK", "CHACHA20_POLY1305_SHA256"),
)  # fmt: skip
_NAMES = {
    first + step * place: f"TLS_{exchange}_WITH_{cipher}"
    for first, step, exchange, ciphers in _REGISTERED
    for place, cipher in enumerate(ciphers.split(","))
}
_NAMES |= {
    0x1301: "TLS_AES_128_GCM_SHA256",
    0x1302: "TLS_AES_256_GCM_SHA384",
    0x1303: "TLS_CHACHA20_POLY1305_SHA256",
    0x1304: "TLS_AES_128_CCM_SHA256",
    0x1305: "TLS_AES_128_CCM_8_SHA256",
}
SUITES: dict[int, Suite] = {code: _suite(name) for code, name in _NAMES.items()}
SUITES_13 = tuple(range(0x1301, 0x1306))


def suite_name(code: int) -> str:
    return SUITES[code].name if code in SUITES else f"0x{code:04X}"
