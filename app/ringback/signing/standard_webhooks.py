"""Standard Webhooks: v1, HMAC-SHA256 over `id.timestamp.body`, and v1a, Ed25519 over the same.

Specification: Standard Webhooks 1.0 (standardwebhooks.com), and mcp-events §8 which builds on it. During a rotation every
valid secret signs, and the header contains all signatures; one match is enough. Unknown versions are ignored, as the
specification requires.

The published package `standardwebhooks` reads the clock itself, and some malformed headers raise other exceptions. Here `now`
is a parameter, and every invalid message raises `VerificationError`.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, Protocol, cast

from ringback.signing import base64_text, ed25519
from ringback.signing import secrets as webhook_secrets
from ringback.signing.ed25519 import SigningKey

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"

TOLERANCE_SECONDS: Final = 300
"""The maximum difference between timestamp and now: five minutes, as in the reference libraries of the specification."""

SIGNATURE_HEADER_LENGTH_MAX: Final = 4096
"""About 85 signatures; a rotation needs two. Common HTTP servers accept a header of this size."""

_SIGNATURE_VERSION: Final = "v1"
_FINGERPRINT_DIGITS: Final = 16
"""64 bits: enough to distinguish the keys of one receiver. A secret has at least 192."""
SIGNED_HEADERS: Final = frozenset({ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER})
_MESSAGE_ID_PATTERN: Final = re.compile(r"[!-\-/-~]{1,256}")
"""Visible ASCII without the full stop, which separates the signed parts: with it, two messages could have one signature."""
_DERIVED_ID_DIGITS: Final = 32
"""128 bits: an id of this length does not occur twice."""
_TIMESTAMP_PATTERN: Final = re.compile(r"[0-9]{1,12}")
STARTED_HMACS_MAX: Final = 1024
"""Secrets with callbacks at about the same time, some 2 MB. They stay in memory until others take their places."""


class HeaderItems(Protocol):
    """Headers with a method `items`, as every mapping and the headers of `http.server` have it."""

    def items(self) -> Iterable[tuple[str, str]]: ...


class VerificationError(Exception):
    """The message is not authentic, or too old. The text gives the reason and may be sent to the sender."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedMessage:
    """The signed facts of a message, beside its body."""

    message_id: str
    """Equal in every attempt of one message; identifies duplicates."""
    timestamp: int
    """The time of this attempt, in seconds since the epoch."""
    key_fingerprint: str
    """Of the secret or public key that verified the message: 16 hexadecimal digits of its SHA-256."""


def is_message_id(text: str) -> bool:
    return _MESSAGE_ID_PATTERN.fullmatch(text) is not None


def derive_message_id(subscription_id: str, event_id: str) -> str:
    """An id of the message that brings this event to this subscription."""
    digest = hashlib.sha256(f"{subscription_id}/{event_id}".encode()).hexdigest()
    return f"msg_event_{digest[:_DERIVED_ID_DIGITS]}"


def sign_message(
    secrets: Sequence[str], *, message_id: str, timestamp: int, body: bytes, keys: Sequence[SigningKey] = ()
) -> str:
    """The value of `webhook-signature`: one `v1,…` for each secret and then one `v1a,…` for each key, in their order.

    Raises ValueError for an id that cannot be signed safely, and `InvalidSecret` for an invalid secret.
    """
    if not secrets:
        raise ValueError("A message is signed with at least one secret.")
    if not is_message_id(message_id):
        raise ValueError("A message id is 1 to 256 visible ASCII characters without a full stop.")
    content = _signed_content(message_id, str(timestamp), body)
    return " ".join(
        [*(_compute_signature(secret, content) for secret in secrets), *(key.sign_content(content) for key in keys)]
    )


def build_signed_headers(secrets: Sequence[str], *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of one attempt."""
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: sign_message(secrets, message_id=message_id, timestamp=timestamp, body=body),
    }


def verify(
    headers: HeaderItems | Iterable[tuple[str, str]],
    body: bytes,
    secrets: Sequence[str],
    *,
    now: datetime,
    tolerance_seconds: float = TOLERANCE_SECONDS,
) -> VerifiedMessage:
    """Verify that one of `secrets` signed exactly this message recently. Raises `VerificationError`.

    A secret is a `whsec_…` that is shared with the sender, or a `whpk_…`, the public key of one that signs with Ed25519.
    `body` is the unchanged raw body. Header names match in any case.
    """
    by_name = _collect_headers(headers)
    message_id = _get_matching_header(by_name, ID_HEADER, _MESSAGE_ID_PATTERN)
    timestamp = _get_matching_header(by_name, TIMESTAMP_HEADER, _TIMESTAMP_PATTERN)
    signatures = _parse_signatures(by_name)
    _check_age(now.timestamp() - int(timestamp), tolerance_seconds)
    content = _signed_content(message_id, timestamp, body)
    for secret in secrets:
        if _has_valid_signature(secret, signatures, content):
            return VerifiedMessage(
                message_id=message_id, timestamp=int(timestamp), key_fingerprint=compute_fingerprint(secret)
            )
    raise VerificationError(_explain_mismatch(secrets, signatures))


def check_secret(text: str) -> None:
    """Raise `InvalidSecret` unless the text is a `whsec_…` secret or a `whpk_…` public key."""
    if text.startswith(ed25519.PUBLIC_KEY_PREFIX):
        ed25519.parse_public_key(text)
    else:
        webhook_secrets.parse_secret(text)


def compute_fingerprint(secret: str) -> str:
    """The `key_fingerprint` of messages that this secret or public key verifies."""
    return hashlib.sha256(secret.encode()).hexdigest()[:_FINGERPRINT_DIGITS]


def _has_valid_signature(secret: str, signatures: Sequence[str], content: bytes) -> bool:
    """Hashes the content once, however many signatures a forged message has. An Ed25519 signature needs a hash of its own."""
    if secret.startswith(ed25519.PUBLIC_KEY_PREFIX):
        key = ed25519.parse_public_key(secret)
        return any(ed25519.is_valid_signature(key, signature, content) for signature in signatures)
    expected = _compute_signature(secret, content)
    return any(hmac.compare_digest(expected, signature) for signature in signatures)


def _collect_headers(headers: HeaderItems | Iterable[tuple[str, str]]) -> dict[str, str]:
    """The signature's headers by lower-case name.

    A repeated one is rejected: the caller might read the other value, and take a replayed message for a new one.
    """
    collected: dict[str, str] = {}
    items = cast("HeaderItems", headers).items() if hasattr(headers, "items") else headers
    for name, value in cast("Iterable[tuple[str, str]]", items):
        known = name.lower()
        if known in collected:
            raise VerificationError(f"The header {known} is repeated.")
        if known in SIGNED_HEADERS:
            collected[known] = value
    return collected


def _explain_mismatch(secrets: Sequence[str], signatures: Sequence[str]) -> str:
    """Why no signature matches, as far as it can be seen without a secret."""
    versions = {signature.partition(",")[0] for signature in signatures}
    if secrets and all(secret.startswith(ed25519.PUBLIC_KEY_PREFIX) for secret in secrets):
        needed = ed25519.SIGNATURE_VERSION
    else:
        needed = _SIGNATURE_VERSION
    if needed not in versions and ed25519.SIGNATURE_VERSION in versions | {needed}:
        return (
            f"No signature matches: the message has no {needed} signature, the only kind that this receiver can verify."
        )
    return "No signature matches: the secret differs, or the message was changed."


def _signed_content(message_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{message_id}.{timestamp}.".encode() + body


def _compute_signature(secret: str, content: bytes) -> str:
    keyed = _start_hmac(secret).copy()
    keyed.update(content)
    return f"{_SIGNATURE_VERSION},{base64_text.encode_base64(keyed.digest())}"


@lru_cache(maxsize=STARTED_HMACS_MAX)
def _start_hmac(secret: str) -> hmac.HMAC:
    """HMAC-SHA-256 with this key, for copies. To decode and to set the key takes two thirds of the time of a signature."""
    return hmac.new(webhook_secrets.parse_secret(secret), digestmod=hashlib.sha256)


def _get_required_header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if not value:
        raise VerificationError(f"The header {name} is missing.")
    return value


def _get_matching_header(headers: Mapping[str, str], name: str, pattern: re.Pattern[str]) -> str:
    value = _get_required_header(headers, name)
    if not pattern.fullmatch(value):
        raise VerificationError(f"The header {name} is malformed.")
    return value


def _parse_signatures(headers: Mapping[str, str]) -> list[str]:
    """The signatures of the header as text. Only the canonical base64 spelling is accepted."""
    text = _get_required_header(headers, SIGNATURE_HEADER)
    if len(text) > SIGNATURE_HEADER_LENGTH_MAX or not text.isascii():
        raise VerificationError(f"The header {SIGNATURE_HEADER} is malformed.")
    return text.split(" ")


def _check_age(age_seconds: float, tolerance_seconds: float) -> None:
    if age_seconds > tolerance_seconds:
        raise VerificationError("The message is too old: its timestamp is past the tolerance. Is this clock right?")
    if age_seconds < -tolerance_seconds:
        raise VerificationError("The message is too new: its timestamp lies in the future. Is this clock right?")
