"""Decrypt TLS 1.2 and 1.3 records with keys derived from secrets, one record at a time.

A record decrypts only if its authentication tag (or MAC) matches the record number, so a decrypted record is proven
to be that record. The primitives come from the package `cryptography`; this module combines them as RFC 5246, 5288,
6655, 7366, 7905 and 8446 say. It does not encrypt, and it does not read certificates.

To add a cipher: name its suite in cipher_suites.py; if its mode is new, add a `RecordKey` here.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC, ECB, GCM
from cryptography.hazmat.primitives.constant_time import bytes_eq
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from rtmp_spark.capture.unwrap.tls.cipher_suites import DIGEST_BYTES, TLS12, Suite

_HASHES: dict[str, type[hashes.HashAlgorithm]] = {
    "SHA": hashes.SHA1,
    "SHA256": hashes.SHA256,
    "SHA384": hashes.SHA384,
}
_BLOCK = 16

Opened = tuple[int, bytes]  # content type, plain bytes


class RecordKey(ABC):
    """The key of one direction in one epoch."""

    overhead: int  # length of a record without padding minus the length of its content

    @abstractmethod
    def open(self, number: int, kind: int, fragment: bytes) -> Opened | None:
        """The content of a record; None if it does not have this number."""

    def number_of(self, kind: int, fragment: bytes, low: int, high: int) -> int | None:
        """The number under which a record decrypts, searched in [low, high)."""
        for number in range(low, high):
            if self.open(number, kind, fragment) is not None:
                return number
        return None

    def searches(self) -> bool:
        """Whether `number_of` has to try each number."""
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
        # In GCM the tag is a hash of the ciphertext, masked with the encrypted counter block, which contains the nonce.
        # The hash does not depend on the nonce: treating the ciphertext as that of number 0 gives it. What remains of
        # the tag decrypts to the true counter block. So the number is computed, not searched.
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
    """TLS 1.2 with AES-CBC and HMAC (RFC 5246 6.2.3.2), MAC then encrypt or, with RFC 7366, encrypt then MAC."""

    def __init__(self, suite: Suite, key: bytes, mac_key: bytes, encrypt_then_mac: bool) -> None:
        self._key = AES(key)
        self._mac_key = mac_key
        self._mac = _HASHES[suite.mac]()
        self._mac_bytes = self._mac.digest_size
        self._mac_last = encrypt_then_mac
        self.overhead = 5 + _BLOCK + self._mac_bytes + _BLOCK // 2  # an average length of padding

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
    return HKDFExpand(_HASHES[suite.prf](), length, info).derive(secret)


def next_secret(suite: Suite, secret: bytes) -> bytes:
    """The traffic secret after a KeyUpdate (RFC 8446 7.2)."""
    return expand_label(suite, secret, b"traffic upd", suite.secret_bytes)


def _expand_12(suite: Suite, secret: bytes, seed: bytes, length: int) -> bytes:
    """P_hash (RFC 5246 5)."""

    def digest(data: bytes) -> bytes:
        code = hmac.HMAC(secret, _HASHES[suite.prf]())
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
    mac = DIGEST_BYTES[suite.mac] if suite.mode == "CBC" else 0
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
