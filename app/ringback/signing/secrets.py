"""Webhook secrets (`whsec_…`), API keys (`rbk_…`), and the secrets of browsers that look at the dashboard.

A webhook secret signs, so it is stored (sealed), in the text form of Standard Webhooks. An API key and the secret of a browser
are only compared, so only their hashes are stored. Random bytes are parameters, and no error text contains a secret.
"""

import base64
import hashlib
import string
import zlib
from typing import Final

from ringback.signing import base64_text

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - how such a secret begins, not a secret
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64
"""Both bounds are Standard Webhooks' and MCP Events' (mcp-events §6)."""
SECRET_BYTES: Final = 32
"""The size of a generated secret: the output length of SHA-256. Longer keys add nothing to HMAC (RFC 2104 §3)."""

API_KEY_PREFIX: Final = "rbk_"
API_KEY_RANDOM_BYTES: Final = 24
"""192 bits. From 160 random bits on, a plain hash protects as well as a slow one."""

_SECRET_TEXT_LENGTH_MAX: Final = len(SECRET_PREFIX) + 88  # 64 bytes in padded base64
_BASE62: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_API_KEY_DIGITS: Final = 33  # 24 bytes in base62
_CHECKSUM_DIGITS: Final = 6  # 32 bits in base62
_API_KEY_LENGTH: Final = len(API_KEY_PREFIX) + _API_KEY_DIGITS + _CHECKSUM_DIGITS


BROWSER_SECRET_BYTES: Final = 32
_BROWSER_SECRET_LENGTH: Final = 43  # 32 bytes in unpadded base64url


class InvalidSecret(ValueError):
    """The text is not a webhook secret. The message describes the form and never contains the text."""


def parse_secret(text: str) -> bytes:
    """The key behind a `whsec_…` secret: 24 to 64 bytes, in padded or unpadded standard base64."""
    if not text.startswith(SECRET_PREFIX):
        raise InvalidSecret(f"A webhook secret begins with {SECRET_PREFIX}, followed by base64 of 24 to 64 bytes.")
    if len(text) > _SECRET_TEXT_LENGTH_MAX:
        raise InvalidSecret("This webhook secret is too long: it must be base64 of 24 to 64 bytes.")
    try:
        key = base64_text.decode_base64(text.removeprefix(SECRET_PREFIX))
    except ValueError:
        raise InvalidSecret(
            f"What follows {SECRET_PREFIX} is not standard base64 (letters, digits, + and /, without spaces)."
        ) from None
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise InvalidSecret(f"This webhook secret has {len(key)} bytes; it must have 24 to 64.")
    return key


def generate_secret(random_bytes: bytes) -> str:
    """A `whsec_…` secret from `SECRET_BYTES` random bytes."""
    if len(random_bytes) != SECRET_BYTES:
        raise ValueError(f"A new webhook secret takes {SECRET_BYTES} random bytes.")
    return SECRET_PREFIX + base64_text.encode_base64(random_bytes)


def generate_api_key(random_bytes: bytes) -> str:
    """An API key from `API_KEY_RANDOM_BYTES` random bytes: `rbk_`, 33 characters and a checksum of 6, all base62.

    It has no punctuation, so a double click selects all of it. With the checksum, a scanner recognises a leaked key offline.
    """
    if len(random_bytes) != API_KEY_RANDOM_BYTES:
        raise ValueError(f"A new API key takes {API_KEY_RANDOM_BYTES} random bytes.")
    body = API_KEY_PREFIX + _encode_base62(int.from_bytes(random_bytes), _API_KEY_DIGITS)
    return body + _checksum(body)


def is_well_formed_api_key(text: str) -> bool:
    """Whether the text has the form of an API key. Other texts are never looked up."""
    if len(text) != _API_KEY_LENGTH or not text.startswith(API_KEY_PREFIX):
        return False
    body, checksum = text[:-_CHECKSUM_DIGITS], text[-_CHECKSUM_DIGITS:]
    return body.isascii() and body.removeprefix(API_KEY_PREFIX).isalnum() and checksum == _checksum(body)


def hash_api_key(text: str) -> str:
    """SHA-256 in hex, the only form in which a key is stored.

    Slow, salted hashes protect texts that people choose. The 192 random bits of a key cannot be guessed, and an index finds a
    plain hash.
    """
    return hashlib.sha256(text.encode()).hexdigest()


def generate_browser_secret(random_bytes: bytes) -> str:
    """The secret of a sign-in or a portal link, from `BROWSER_SECRET_BYTES` random bytes: base64url, for cookies and URLs."""
    if len(random_bytes) != BROWSER_SECRET_BYTES:
        raise ValueError(f"A new secret takes {BROWSER_SECRET_BYTES} random bytes.")
    return base64.urlsafe_b64encode(random_bytes).decode().rstrip("=")


def is_well_formed_browser_secret(text: str) -> bool:
    """Whether the text has the form of such a secret. Other texts are never looked up."""
    return len(text) == _BROWSER_SECRET_LENGTH and text.isascii() and text.isprintable()


def hash_browser_secret(text: str) -> str:
    """SHA-256 in hex, the only form in which it is stored; a plain hash for the reason of `hash_api_key`."""
    return hashlib.sha256(text.encode()).hexdigest()


def _checksum(body: str) -> str:
    return _encode_base62(zlib.crc32(body.encode()), _CHECKSUM_DIGITS)


def _encode_base62(value: int, digits: int) -> str:
    text = ""
    for _ in range(digits):
        value, remainder = divmod(value, len(_BASE62))
        text = _BASE62[remainder] + text
    return text
