"""Standard Webhooks v1a: Ed25519 over the same content as v1, for receivers that must not hold a secret.

    whsk_ + base64(seed 32 bytes + public key 32 bytes)    signs; the seed alone is accepted as well
    whpk_ + base64(public key 32 bytes)                    verifies

The specification (standardwebhooks.com) names prefixes and signature; the layout of the private key is its reference server's.
One key of a service signs for all its webhooks, so its public half can be published (RFC 8037: a JSON Web Key of type OKP).

`cryptography` is imported with the first key: most receivers, and `ringback listen`, have secrets only.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from ringback.signing import base64_text
from ringback.signing.secrets import InvalidSecret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PRIVATE_KEY_PREFIX: Final = "whsk_"
PUBLIC_KEY_PREFIX: Final = "whpk_"
SIGNATURE_VERSION: Final = "v1a"
SEED_BYTES: Final = 32
_PUBLIC_BYTES: Final = 32
_JWK_COORDINATE_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
"""32 bytes in base64url without padding."""
_KEY_TEXT_LENGTH_MAX: Final = len(PRIVATE_KEY_PREFIX) + 88  # 64 bytes in padded base64


class InvalidSigningKey(ValueError):
    """The text is not a private key. The message describes the form and never contains the text."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key with its public forms."""

    _private_key: Ed25519PrivateKey = field(repr=False)
    public_key: str
    """`whpk_…`, for receivers configured by hand."""
    jwk: Mapping[str, str]
    """The published JSON Web Key. `kid` is the key's thumbprint (RFC 7638), so a key has the same id on every node."""

    def sign_content(self, content: bytes) -> str:
        return f"{SIGNATURE_VERSION},{base64_text.encode_base64(self._private_key.sign(content))}"


def parse_signing_key(text: str) -> SigningKey:
    """The key behind `whsk_…`; raises `InvalidSigningKey`, also when the public half is another key's."""
    refusal = f"A signing key is {PRIVATE_KEY_PREFIX} and base64 of 64 bytes. Make one: ringback keys signing"
    if not text.startswith(PRIVATE_KEY_PREFIX) or len(text) > _KEY_TEXT_LENGTH_MAX:
        raise InvalidSigningKey(refusal)
    try:
        key = base64_text.decode_base64(text.removeprefix(PRIVATE_KEY_PREFIX))
    except ValueError:
        raise InvalidSigningKey(refusal) from None
    if len(key) not in {SEED_BYTES, SEED_BYTES + _PUBLIC_BYTES}:
        raise InvalidSigningKey(refusal)
    private = _load_private_key(key[:SEED_BYTES])
    public = private.public_key().public_bytes_raw()
    if key[SEED_BYTES:] not in {b"", public}:
        raise InvalidSigningKey("The two halves of this signing key do not belong together.")
    return SigningKey(private, PUBLIC_KEY_PREFIX + base64_text.encode_base64(public), _build_jwk(public))


def generate_signing_key(seed: bytes) -> str:
    """A `whsk_…` key from `SEED_BYTES` random bytes."""
    public = _load_private_key(seed).public_key().public_bytes_raw()
    return PRIVATE_KEY_PREFIX + base64_text.encode_base64(seed + public)


def parse_public_key(text: str) -> Ed25519PublicKey:
    """The key behind `whpk_…`; raises `InvalidSecret`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - see the module's docstring

    try:
        key = base64_text.decode_base64(text.removeprefix(PUBLIC_KEY_PREFIX))
        return Ed25519PublicKey.from_public_bytes(key)
    except ValueError:
        raise InvalidSecret(f"A public key is {PUBLIC_KEY_PREFIX} and base64 of {_PUBLIC_BYTES} bytes.") from None


def public_key_from_jwk(key: object) -> str | None:
    """The `whpk_…` form of a JSON Web Key (RFC 8037 §2); None for a key of another type or use, and for an invalid one."""
    if not isinstance(key, Mapping):
        return None
    members = cast("Mapping[str, object]", key)
    x = members.get("x")
    if (members.get("kty"), members.get("crv")) != ("OKP", "Ed25519") or members.get("use", "sig") != "sig":
        return None
    if not isinstance(x, str) or not _JWK_COORDINATE_PATTERN.fullmatch(x):
        return None
    return PUBLIC_KEY_PREFIX + base64_text.encode_base64(urlsafe_b64decode(x + "="))


def is_valid_signature(public_key: Ed25519PublicKey, signature: str, content: bytes) -> bool:
    """Whether `v1a,<base64>` is this key's signature of the content; base64 has one spelling, and no other is accepted."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - as for a key

    version, _, encoded = signature.partition(",")
    if version != SIGNATURE_VERSION:
        return False
    try:
        raw = base64_text.decode_base64(encoded)
        public_key.verify(raw, content)
    except (ValueError, InvalidSignature):
        return False
    return base64_text.encode_base64(raw) == encoded


def _load_private_key(seed: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - see the module's docstring

    return Ed25519PrivateKey.from_private_bytes(seed)


def _build_jwk(public: bytes) -> Mapping[str, str]:
    x = _base64url(public)
    thumbprint = hashlib.sha256(f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'.encode()).digest()
    return {"kty": "OKP", "crv": "Ed25519", "x": x, "kid": _base64url(thumbprint), "use": "sig", "alg": "EdDSA"}


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
