"""Resume tokens: signed, expiring texts that name one call and a position in its owner's event log.

A token does not authenticate its holder: the reader passes the authenticated principal. A token of another principal, another
service or another purpose is invalid.

    base64url(JSON {call, version, seq, mark?, expires}) "." base64url(HMAC-SHA-512)
                                                       key = HMAC-SHA-512(configured key, purpose + [audience, principal])

The token contains neither principal nor audience. Both are in the salt of the signing key: a token does not verify for another
principal, and a token in a log reveals no name.

itsdangerous signs and rotates keys. Its `URLSafeTimedSerializer` does not fit for two reasons. It stores the time of issue from
a clock of its own, while these tokens contain their expiry, which is that of the call's result. It also decompresses payloads
without a bound. The plain `Serializer` has neither clock nor compression.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson
from itsdangerous import BadData, Serializer, Signer
from itsdangerous.encoding import base64_decode, base64_encode, want_bytes
from itsdangerous.signer import SigningAlgorithm

TOKEN_LENGTH_MAX: Final = 1024
"""Checked first. Tokens of this service have about 200 characters."""

KEY_BYTES_MIN: Final = 32
"""256 bits. Shorter keys are usually words instead of random bytes."""

SIGNER_CACHE_MAX: Final = 1024
"""Principals with callbacks at about the same time. A new signer with its key costs more than a token."""

_PURPOSE: Final = "ringback.resume-token.1"
_PAYLOAD_FIELDS: Final = {"call": str, "version": int, "seq": int, "expires": int}
_SIGNATURE_PATTERN: Final = re.compile(r"\.[A-Za-z0-9_-]{85}[AQgw]")
_TOKEN_PATTERN: Final = re.compile(rf"[A-Za-z0-9_-]+{_SIGNATURE_PATTERN.pattern}")
"""Payload and signature. The last character of 64 bytes has two significant bits. The pattern requires the other bits to be
zero, so each token has one spelling; itsdangerous accepts several."""


def redact_tokens(text: str) -> str:
    """The text without the signatures of its tokens, for stored excerpts of responses that echo a callback."""
    return _SIGNATURE_PATTERN.sub(".[hidden]", text)


def is_well_formed(token: str) -> bool:
    """Whether the text has the form of a token, whichever key signed it."""
    return len(token) <= TOKEN_LENGTH_MAX and _TOKEN_PATTERN.fullmatch(token) is not None


class InvalidResumeToken(Exception):
    """The token is forged, damaged, malformed, or of another principal or service; callers cannot distinguish these."""


class ExpiredResumeToken(Exception):
    """A valid token of this principal that has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeClaims:
    """The content of a verified token."""

    call_id: str
    principal: str
    token_version: int
    """Lower than the call's version: the token is revoked."""
    cursor_seq: int
    """The position in the principal's event log up to which the holder has received events."""
    cursor_mark: str | None = None
    """Identifies the event at that position, which detects another log. None where the call identifies the log."""
    expires_at: int
    """Seconds since the epoch. The token is invalid from this second on."""


class ResumeTokenCodec:
    """Encodes and decodes the tokens of one service.

    `keys` are ordered oldest first, as in itsdangerous: the last key signs, all keys verify. `audience` names the service:
    services that share a key do not accept each other's tokens.
    """

    def __init__(self, keys: Sequence[bytes | str], *, audience: str) -> None:
        raw_keys = [key.encode() if isinstance(key, str) else key for key in keys]
        if not raw_keys or min(map(len, raw_keys)) < KEY_BYTES_MIN:
            raise ValueError(f"Resume tokens need at least one key, each of at least {KEY_BYTES_MIN} random bytes.")
        self._audience = audience
        self._serializer = Serializer(
            raw_keys,
            serializer=_JsonPayloadSerializer(),
            signer=_CachedKeySigner,
            signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha512, "algorithm": _HmacSha512()},
        )
        self._signers: dict[str, Signer] = {}

    def encode_token(self, claims: ResumeClaims) -> str:
        payload = {
            "call": claims.call_id,
            "version": claims.token_version,
            "seq": claims.cursor_seq,
            **({} if claims.cursor_mark is None else {"mark": claims.cursor_mark}),
            "expires": claims.expires_at,
        }
        return self._get_signer(claims.principal).sign(base64_encode(orjson.dumps(payload))).decode()

    def decode_token(self, token: str, *, principal: str, now: datetime) -> ResumeClaims:
        """The claims of a token. Raises `InvalidResumeToken` or `ExpiredResumeToken`."""
        if not is_well_formed(token):
            raise InvalidResumeToken
        try:
            payload = self._serializer.loads(token, salt=self._salt(principal))
        except BadData:
            raise InvalidResumeToken from None
        claims = _parse_claims(payload, principal)
        if now.timestamp() >= claims.expires_at:
            raise ExpiredResumeToken
        return claims

    def _get_signer(self, principal: str) -> Signer:
        """One cached signer for each principal, because every callback contains a token."""
        if len(self._signers) >= SIGNER_CACHE_MAX:
            self._signers.clear()
        if principal not in self._signers:
            self._signers[principal] = self._serializer.make_signer(self._salt(principal))
        return self._signers[principal]

    def _salt(self, principal: str) -> str:
        return _PURPOSE + json.dumps([self._audience, principal])


def _parse_claims(payload: dict[str, Any], principal: str) -> ResumeClaims:
    if {"mark": str} | {name: type(value) for name, value in payload.items()} != {"mark": str} | _PAYLOAD_FIELDS:
        raise InvalidResumeToken
    return ResumeClaims(
        call_id=payload["call"],
        principal=principal,
        token_version=payload["version"],
        cursor_seq=payload["seq"],
        cursor_mark=payload.get("mark"),
        expires_at=payload["expires"],
    )


class _CachedKeySigner(Signer):
    """Derives the key of each secret once. itsdangerous derives it for every token, which is half of the work.

    The HMAC with the key that signs begins once, too, and each token finishes a copy.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._derived: dict[str | bytes | None, bytes] = {}
        self._started: hmac.HMAC | None = None

    def derive_key(self, secret_key: str | bytes | None = None) -> bytes:
        if secret_key not in self._derived:
            self._derived[secret_key] = super().derive_key(secret_key)
        return self._derived[secret_key]

    def get_signature(self, value: str | bytes) -> bytes:
        if self._started is None:
            self._started = hmac.new(self.derive_key(), digestmod=hashlib.sha512)
        keyed = self._started.copy()
        keyed.update(want_bytes(value))
        return base64_encode(keyed.digest())


class _HmacSha512(SigningAlgorithm):
    """HMAC-SHA-512 in one call of OpenSSL; itsdangerous needs three steps of Python."""

    def get_signature(self, key: bytes, value: bytes) -> bytes:
        return hmac.digest(key, value, "sha512")


class _JsonPayloadSerializer:
    """A JSON object in base64url, as itsdangerous' URL-safe serializers write it, without their compression."""

    def dumps(self, payload: dict[str, Any], /) -> str:
        return base64_encode(orjson.dumps(payload)).decode()

    def loads(self, text: str, /) -> dict[str, Any]:
        return dict(orjson.loads(base64_decode(text)))
