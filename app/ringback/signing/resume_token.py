"""Resume tokens: signed, expiring texts that name one call and a place in its owner's event log.

A token narrows what its holder asks for; it never says who the holder is. So nothing reads one without saying who asks,
and a token of somebody else, of another service or of another purpose is no token here.

    base64url(JSON {call, version, seq, mark?, expires}) "." base64url(HMAC-SHA-512)
                                                       key = HMAC-SHA-512(configured key, purpose + [audience, principal])

The principal and the audience are not in the token. They are in the salt that the signing key is derived from: a token read
for another principal does not verify, and whoever finds one in a log learns no name from it.

itsdangerous signs and rotates. Its `URLSafeTimedSerializer` is not used as it comes, for two reasons. It dates tokens with a
clock of its own and leaves the age to the reader, while these carry their expiry (which is that of the result they lead to).
And it inflates compressed payloads without a bound. The plain `Serializer` below it has neither clock nor zlib.
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
from itsdangerous.encoding import base64_decode, base64_encode
from itsdangerous.signer import SigningAlgorithm

TOKEN_LENGTH_MAX: Final = 1024
"""Judged before anything else is; ours have about 200 characters."""

KEY_BYTES_MIN: Final = 32
"""256 bits: a key is random, and shorter ones are usually words."""

SIGNER_CACHE_MAX: Final = 1024
"""Principals that are being rung at about the same time; making a signer and its key anew costs more than a token."""

_PURPOSE: Final = "ringback.resume-token.1"
_PAYLOAD_FIELDS: Final = {"call": str, "version": int, "seq": int, "expires": int}
_SIGNATURE_PATTERN: Final = re.compile(r"\.[A-Za-z0-9_-]{85}[AQgw]")
_TOKEN_PATTERN: Final = re.compile(rf"[A-Za-z0-9_-]+{_SIGNATURE_PATTERN.pattern}")
"""Payload and signature. 64 bytes end in a character of which only two bits count; asking that the rest be zero leaves each
token one spelling, where itsdangerous would also accept others."""


def redact_tokens(text: str) -> str:
    """The text with every token in it made worthless: what somebody echoes must not be kept where it can be read."""
    return _SIGNATURE_PATTERN.sub(".[hidden]", text)


class InvalidResumeToken(Exception):
    """Not a token of ours for this principal: forged, damaged, foreign or malformed, all alike."""


class ExpiredResumeToken(Exception):
    """A genuine token of this principal, whose time has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeClaims:
    """What a token says, once it has been proven."""

    call_id: str
    principal: str
    token_version: int
    """To be compared with the call's: a lower one was revoked."""
    cursor_seq: int
    """The place in the principal's event log up to which its holder has been told."""
    cursor_mark: str | None = None
    """Which event stands at that place, so that another log is recognised; None where the call itself says which log it is."""
    expires_at: int
    """Seconds since the epoch; from this second on the token is worth nothing."""


class ResumeTokenCodec:
    """Issues and reads the tokens of one service.

    `keys` are ordered oldest first, as itsdangerous has it: the last one signs, all of them verify. `audience` names the
    service, so that two that share a key do not accept each other's tokens.
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
        return self._get_signer(claims.principal).sign(_JsonPayloadSerializer().dumps(payload)).decode()

    def decode_token(self, token: str, *, principal: str, now: datetime) -> ResumeClaims:
        """The claims of a token that this principal may use now; raises `BadToken`, or `ExpiredToken` if it once could."""
        if len(token) > TOKEN_LENGTH_MAX or not _TOKEN_PATTERN.fullmatch(token):
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
        """Made once for each principal: every callback carries a token."""
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
    """Derives the key of each secret once; itsdangerous' own derives it for every token, which is half of the work."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._derived: dict[str | bytes | None, bytes] = {}

    def derive_key(self, secret_key: str | bytes | None = None) -> bytes:
        if secret_key not in self._derived:
            self._derived[secret_key] = super().derive_key(secret_key)
        return self._derived[secret_key]


class _HmacSha512(SigningAlgorithm):
    """HMAC-SHA-512 in one call of OpenSSL; itsdangerous' own does the same in three steps of Python."""

    def get_signature(self, key: bytes, value: bytes) -> bytes:
        return hmac.digest(key, value, "sha512")


class _JsonPayloadSerializer:
    """A JSON object in base64url, which is what itsdangerous' URL-safe serializers write, without their compression."""

    def dumps(self, payload: dict[str, Any], /) -> str:
        return base64_encode(orjson.dumps(payload)).decode()

    def loads(self, text: str, /) -> dict[str, Any]:
        return dict(orjson.loads(base64_decode(text)))
