"""How TLS 1.2 and 1.3 records are opened: cipher suites, keys from secrets, one record at a time.

A key opens a record only when its authentication tag (or MAC) fits the record number, so an opened record is proven
to be that record. Every primitive comes from the package `cryptography`; here they are only put together as RFC 5246,
5288, 6655, 7366, 7905 and 8446 say. Nothing is encrypted here, and no certificate is looked at.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC, ECB, GCM
from cryptography.hazmat.primitives.constant_time import bytes_eq
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

TLS12, TLS13 = 0x0303, 0x0304
CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA = 20, 21, 22, 23
_HASHES: dict[str, type[hashes.HashAlgorithm]] = {
    "SHA": hashes.SHA1,
    "SHA256": hashes.SHA256,
    "SHA384": hashes.SHA384,
}
_BLOCK = 16

Opened = tuple[int, bytes]  # content type, plain bytes


class Suite(NamedTuple):
    """A cipher suite: how records are protected and which hash derives its keys."""

    name: str
    mode: str  # GCM, CCM, CHACHA, CBC
    key_bytes: int
    tag_bytes: int
    mac: str  # of CBC records
    prf: str

    @property
    def hash(self) -> hashes.HashAlgorithm:
        return _HASHES[self.prf]()


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
    (0x00A2, 1, "DHE_DSS", _GCM), (0x00A6, 1, "DH_anon", _GCM), (0x00A8, 1, "PSK", _GCM), (0x00AA, 1, "DHE_PSK", _GCM), (0x00AC, 1, "RSA_PSK", _GCM),
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


class RecordKey(ABC):
    """The key of one direction between two changes of keys."""

    overhead: int  # bytes that a record without padding is longer than its content, header included

    @abstractmethod
    def open(self, number: int, kind: int, fragment: bytes) -> Opened | None:
        """The content of a record if it is the one with this number."""

    def number_of(self, kind: int, fragment: bytes, low: int, high: int) -> int | None:
        """The number under which a record opens, searched from `low` up to, not including, `high`."""
        for number in range(low, high):
            if self.open(number, kind, fragment) is not None:
                return number
        return None

    def searches(self) -> bool:
        """Whether `number_of` costs a try for each number."""
        return True


class Aead13(RecordKey):
    """TLS 1.3 (RFC 8446 5.2)."""

    def __init__(self, suite: Suite, secret: bytes) -> None:
        key = expand_label(suite, secret, b"key", suite.key_bytes)
        self._iv = expand_label(suite, secret, b"iv", 12)
        self._mask = int.from_bytes(self._iv, "big")
        self._open = _aead(suite, key).decrypt
        self._key = key if suite.mode == "GCM" else b""
        self.overhead = 5 + suite.tag_bytes + 1

    def open(self, number: int, kind: int, fragment: bytes) -> Opened | None:
        nonce = (self._mask ^ number).to_bytes(12, "big")
        try:
            plain = self._open(nonce, fragment, b"\x17\x03\x03" + len(fragment).to_bytes(2, "big"))
        except (InvalidTag, ValueError):
            return None
        if not plain[-1:] or plain[-1] == 0:
            plain = plain.rstrip(b"\0")  # padding
            if not plain:
                return None
        return plain[-1], plain[:-1]

    def searches(self) -> bool:
        return not self._key

    def number_of(self, kind: int, fragment: bytes, low: int, high: int) -> int | None:
        if not self._key:
            return super().number_of(kind, fragment, low, high)
        # In GCM the tag is a hash of the ciphertext, masked with the encrypted counter block, which holds the nonce.
        # The hash does not depend on the nonce: taking the ciphertext as written under number 0 gives it, and
        # what remains decrypts to the true counter block. So the number is read, not searched.
        if len(fragment) < 17:
            return None
        ciphertext, tag = fragment[:-16], fragment[-16:]
        plain = Cipher(AES(self._key), GCM(self._iv, bytes(16))).decryptor().update(ciphertext)
        again = Cipher(AES(self._key), GCM(self._iv)).encryptor()
        again.authenticate_additional_data(b"\x17\x03\x03" + len(fragment).to_bytes(2, "big"))
        again.update(plain)
        again.finalize()
        block = Cipher(AES(self._key), ECB())
        masked = _xor(_xor(tag, again.tag), block.encryptor().update(self._iv + b"\0\0\0\1"))
        counter = block.decryptor().update(masked)
        number = int.from_bytes(counter[:12], "big") ^ self._mask
        return number if counter[12:] == b"\0\0\0\1" and low <= number < high else None


class Aead12(RecordKey):
    """TLS 1.2 with AES-GCM (RFC 5288), AES-CCM (RFC 6655) or ChaCha20-Poly1305 (RFC 7905)."""

    def __init__(self, suite: Suite, key: bytes, iv: bytes) -> None:
        self._open = _aead(suite, key).decrypt
        self._iv = iv
        self._mask = int.from_bytes(iv, "big")
        self._explicit = 0 if suite.mode == "CHACHA" else 8
        self._extra = self._explicit + suite.tag_bytes
        self.overhead = 5 + self._extra

    def open(self, number: int, kind: int, fragment: bytes) -> Opened | None:
        length = len(fragment) - self._extra
        if length < 0:
            return None
        if self._explicit:
            nonce, fragment = self._iv + fragment[:8], fragment[8:]
        else:
            nonce = (self._mask ^ number).to_bytes(12, "big")
        try:
            return kind, self._open(nonce, fragment, struct.pack(">QBHH", number, kind, TLS12, length))
        except (InvalidTag, ValueError):
            return None


class Cbc12(RecordKey):
    """TLS 1.2 with AES-CBC and HMAC (RFC 5246 6.2.3.2), MAC first or, as RFC 7366 has it, encryption first."""

    def __init__(self, suite: Suite, key: bytes, mac_key: bytes, encrypt_then_mac: bool) -> None:
        self._key = AES(key)
        self._mac_key = mac_key
        self._mac = _HASHES[suite.mac]()
        self._mac_bytes = self._mac.digest_size
        self._mac_last = encrypt_then_mac
        self.overhead = 5 + _BLOCK + self._mac_bytes + _BLOCK // 2  # a middling length of padding

    def open(self, number: int, kind: int, fragment: bytes) -> Opened | None:
        if self._mac_last:
            fragment, mac = fragment[: -self._mac_bytes], fragment[-self._mac_bytes :]
            if not self._fits(number, kind, fragment, mac):
                return None
            plain = self._decrypt(fragment)
            return None if plain is None else (kind, plain)
        plain = self._decrypt(fragment)
        if plain is None or len(plain) < self._mac_bytes:
            return None
        plain, mac = plain[: -self._mac_bytes], plain[-self._mac_bytes :]
        return (kind, plain) if self._fits(number, kind, plain, mac) else None

    def _fits(self, number: int, kind: int, data: bytes, mac: bytes) -> bool:
        code = hmac.HMAC(self._mac_key, self._mac)
        code.update(struct.pack(">QBHH", number, kind, TLS12, len(data)))
        code.update(data)
        return bytes_eq(code.finalize(), mac)

    def _decrypt(self, fragment: bytes) -> bytes | None:
        if len(fragment) < 2 * _BLOCK or len(fragment) % _BLOCK:
            return None
        padded = Cipher(self._key, CBC(fragment[:_BLOCK])).decryptor().update(fragment[_BLOCK:])
        padding = padded[-1] + 1
        if padding > len(padded) or padded[-padding:] != bytes([padded[-1]]) * padding:
            return None
        return padded[:-padding]


def _aead(suite: Suite, key: bytes) -> AESGCM | AESCCM | ChaCha20Poly1305:
    if suite.mode == "GCM":
        return AESGCM(key)
    return AESCCM(key, suite.tag_bytes) if suite.mode == "CCM" else ChaCha20Poly1305(key)


def _xor(a: bytes, b: bytes) -> bytes:
    return (int.from_bytes(a, "big") ^ int.from_bytes(b, "big")).to_bytes(len(a), "big")


def expand_label(suite: Suite, secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label with an empty context (RFC 8446 7.1)."""
    full = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes([len(full)]) + full + b"\0"
    return HKDFExpand(suite.hash, length, info).derive(secret)


def next_secret(suite: Suite, secret: bytes) -> bytes:
    """The traffic secret after a KeyUpdate (RFC 8446 7.2)."""
    return expand_label(suite, secret, b"traffic upd", suite.hash.digest_size)


def _expand_12(suite: Suite, secret: bytes, seed: bytes, length: int) -> bytes:
    """P_hash (RFC 5246 5)."""

    def digest(data: bytes) -> bytes:
        code = hmac.HMAC(secret, suite.hash)
        code.update(data)
        return code.finalize()

    out, a = b"", seed
    while len(out) < length:
        a = digest(a)
        out += digest(a + seed)
    return out[:length]


def keys_12(
    suite: Suite, master: bytes, client_random: bytes, server_random: bytes, encrypt_then_mac: bool
) -> tuple[RecordKey, RecordKey]:
    """The client's and the server's key (RFC 5246 6.3)."""
    mac = _HASHES[suite.mac]().digest_size if suite.mode == "CBC" else 0
    iv = {"GCM": 4, "CCM": 4, "CHACHA": 12, "CBC": 0}[suite.mode]
    sizes = (mac, mac, suite.key_bytes, suite.key_bytes, iv, iv)
    block = _expand_12(suite, master, b"key expansion" + server_random + client_random, sum(sizes))
    parts, at = [], 0
    for size in sizes:
        parts.append(block[at : at + size])
        at += size
    made: list[RecordKey] = []
    for side in (0, 1):
        if suite.mode == "CBC":
            made.append(Cbc12(suite, parts[2 + side], parts[side], encrypt_then_mac))
        else:
            made.append(Aead12(suite, parts[2 + side], parts[4 + side]))
    return made[0], made[1]
