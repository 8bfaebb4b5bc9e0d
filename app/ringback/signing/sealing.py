"""Encryption at rest: AES-256-GCM with a ring of keys.

    version 1 byte │ length of key id 1 byte │ key id │ nonce 12 bytes │ ciphertext and tag
    └──────────── header ───────────────────────────┘
                     └─ authenticated together with the place

The place names table, row and column. It is not stored: the caller passes it again to unseal, so a ciphertext that was moved
to another row cannot be decrypted there. The key id selects the key of the ring, so keys can be replaced while old rows
exist: add a new key in front, and remove the old key when no value is sealed with it.

Nonces are random, so one key seals at most 2**32 values (NIST SP 800-38D §8.3). Replace the key before.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ringback.signing import base64_text

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
"""The recommended size for GCM (NIST SP 800-38D §5.2.1.1)."""

_VERSION: Final = 1
_KEY_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_FINGERPRINT_DIGITS: Final = 8
_CHECK_PURPOSE: Final = b"ringback key check value 1 "
CHECK_VALUE_BYTES: Final = 16
"""Two different keys have the same check value with a probability of 2**-128."""


class UnsealError(Exception):
    """The ciphertext is damaged, or was sealed for another place or with a key that is not in the ring."""


class InvalidKeyRing(ValueError):
    """The keys cannot be used. The message names the invalid entry and never contains a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """Keys by id, and the id of the key that seals."""

    keys: Mapping[str, bytes] = field(repr=False)
    current_id: str

    @property
    def key_ids_newest_first(self) -> list[str]:
        return [self.current_id, *(key_id for key_id in self.keys if key_id != self.current_id)]

    def compute_check_values(self) -> dict[str, bytes]:
        return compute_check_values(self.keys)


class AesGcmSealer:
    """Seals with one key of the ring and unseals with any; `random(n)` gives n fresh random bytes."""

    def __init__(
        self,
        keys: Mapping[str, bytes],
        *,
        current: str,
        random_bytes: Callable[[int], bytes],
        seals_content: bool = False,
    ) -> None:
        """`seals_content`: the store seals the arguments and results of calls too."""
        for key_id, key in keys.items():
            _check_key(key_id, key)
        if current not in keys:
            raise InvalidKeyRing("The current key is not in the key ring.")
        self._ciphers = {sealed_value_header(key_id): AESGCM(key) for key_id, key in keys.items()}
        self._current = sealed_value_header(current)
        self._check_values = compute_check_values(keys)
        self._random_bytes = random_bytes
        self.seals_content: Final = seals_content
        self.current_key_id: Final = current

    def seal(self, plaintext: bytes, *, associated_data: str) -> bytes:
        nonce = self._random_bytes(NONCE_BYTES)
        sealed = self._ciphers[self._current].encrypt(nonce, plaintext, self._current + associated_data.encode())
        return self._current + nonce + sealed

    def unseal(self, ciphertext: bytes, *, associated_data: str) -> bytes:
        """The plaintext; raises `UnsealError` unless this was sealed for this very place with a key of the ring."""
        end = _header_length(ciphertext)
        header, nonce, sealed = ciphertext[:end], ciphertext[end : end + NONCE_BYTES], ciphertext[end + NONCE_BYTES :]
        cipher = self._ciphers.get(header)
        if cipher is None:
            raise UnsealError("This was sealed with a key that is not in the key ring, or it is no sealed value.")
        try:
            return cipher.decrypt(nonce, sealed, header + associated_data.encode())
        except (InvalidTag, ValueError):  # ValueError: cut off within its nonce
            raise UnsealError("This sealed value is damaged, or it belongs to another place.") from None

    @property
    def check_values(self) -> Mapping[str, bytes]:
        """For each key id the value that distinguishes its key from others."""
        return self._check_values

    def is_sealed_with_newest_key(self, ciphertext: bytes) -> bool:
        """Whether the newest key sealed it."""
        return ciphertext.startswith(self._current)


def compute_check_values(keys: Mapping[str, bytes]) -> dict[str, bytes]:
    """For each key id the value that distinguishes its key from others. It reveals nothing about the key, and may be stored."""
    return {
        key_id: hmac.digest(key, _CHECK_PURPOSE + key_id.encode(), "sha512")[:CHECK_VALUE_BYTES]
        for key_id, key in keys.items()
    }


def format_key_ring(ring: KeyRing) -> str:
    """The text form that `parse_key_ring` reads."""
    return ",".join(f"{key_id}:{base64_text.encode_base64(ring.keys[key_id])}" for key_id in ring.key_ids_newest_first)


def parse_key_ring(text: str) -> KeyRing:
    """The ring behind `id:base64,id2:base64`; the first entry seals, the others only unseal."""
    keys: dict[str, bytes] = {}
    for number, entry in enumerate(text.split(","), start=1):
        key_id, key = _parse_key_ring_entry(entry.strip(), number)
        if key_id in keys:
            raise InvalidKeyRing(f"Entry {number} of the key ring repeats the id of an earlier one.")
        keys[key_id] = key
    return KeyRing(keys=keys, current_id=next(iter(keys)))


def generate_key_ring_entry(random_bytes: bytes) -> str:
    """A key ring's entry, `id:base64`, from `KEY_BYTES` random bytes.

    The id is a fingerprint, so a key has the same id on every node. 32 bits of a hash reveal nothing about a random key.
    """
    key_id = hashlib.sha256(random_bytes).hexdigest()[:_FINGERPRINT_DIGITS]
    _check_key(key_id, random_bytes)
    return f"{key_id}:{base64_text.encode_base64(random_bytes)}"


def _parse_key_ring_entry(entry: str, number: int) -> tuple[str, bytes]:
    key_id, separator, encoded = entry.partition(":")
    if not separator:
        raise InvalidKeyRing(f"Entry {number} of the key ring is not of the form id:base64.")
    try:
        key = base64_text.decode_base64(encoded)
        _check_key(key_id, key)
    except ValueError as error:
        reason = (
            error
            if isinstance(error, InvalidKeyRing)
            else "its key is not standard base64. Commas separate the entries."
        )
        raise InvalidKeyRing(f"Entry {number} of the key ring: {reason}") from None
    return key_id, key


def _check_key(key_id: str, key: bytes) -> None:
    if not _KEY_ID_PATTERN.fullmatch(key_id):
        raise InvalidKeyRing("a key id is 1 to 32 letters, digits, hyphens or underscores")
    if len(key) != KEY_BYTES:
        raise InvalidKeyRing(f"a key is {KEY_BYTES} bytes; this one has {len(key)}")


def sealed_value_header(key_id: str) -> bytes:
    """The first bytes of every value that this key sealed."""
    return bytes((_VERSION, len(key_id))) + key_id.encode()


def _header_length(ciphertext: bytes) -> int:
    return 2 + ciphertext[1] if len(ciphertext) > 1 else 0
