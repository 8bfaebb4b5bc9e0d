"""Verification with this machine's clock, and the public keys of a published JSON Web Key Set."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from ringback.signing import ed25519, standard_webhooks
from ringback.signing.standard_webhooks import TOLERANCE_SECONDS, HeaderItems, VerifiedMessage, check_secret

SecretSource = str | Sequence[str] | Callable[[str | None], Sequence[str] | Awaitable[Sequence[str]]]
"""The accepted secrets (`whsec_…`) or public keys (`whpk_…`): fixed ones, or a function of the subscription id that returns
none for an unknown id."""

JWKS_KEYS_MAX: Final = 32
"""A service publishes one key, and two while it rotates them."""


def verify(
    headers: HeaderItems | Iterable[tuple[str, str]],
    body: bytes,
    secrets: str | Sequence[str],
    *,
    now: datetime | None = None,
    tolerance_seconds: float = TOLERANCE_SECONDS,
) -> VerifiedMessage:
    """Verify that one of `secrets` signed exactly this message within the last five minutes. Raises `VerificationError`.

    `headers` match in any case. `body` is the raw body, not the parsed one. A secret is the webhook's `whsec_…`, or a public
    key `whpk_…`; see `public_keys_from_jwks`. Several secrets are accepted during a rotation. `now` defaults to this machine's
    time.

    Use the returned `message_id`, and not the header, to recognise a repeated message. Raises `InvalidSecret` for a text that
    is not a secret, and TypeError if the body is not bytes.
    """
    if not isinstance(body, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without types
        raise TypeError("verify needs the raw body as bytes, before anything has decoded or parsed it.")
    return standard_webhooks.verify(
        headers,
        bytes(body),
        [secrets] if isinstance(secrets, str) else secrets,
        now=current_time() if now is None else now,
        tolerance_seconds=tolerance_seconds,
    )


def public_keys_from_jwks(document: bytes | str | Mapping[str, Any]) -> list[str]:
    """The `whpk_…` keys of a JSON Web Key Set, such as `/.well-known/mcp-webhook-jwks.json`, for `verify` and `ReceiverApp`.

    Keys of other types are ignored (RFC 7517 §5). Raises ValueError if the document is no key set or has no Ed25519 key.
    """
    parsed = json.loads(document) if isinstance(document, bytes | str) else document
    keys = cast("Mapping[str, Any]", parsed).get("keys") if isinstance(parsed, Mapping) else None
    if not isinstance(keys, Sequence) or isinstance(keys, str):
        raise ValueError("This is not a JSON Web Key Set: it has no list `keys`.")  # noqa: TRY004 - documents are values
    found = [ed25519.public_key_from_jwk(key) for key in cast("Sequence[Any]", keys)[:JWKS_KEYS_MAX]]
    public_keys = [key for key in found if key is not None]
    if not public_keys:
        raise ValueError("This key set has no Ed25519 key (kty OKP, crv Ed25519).")
    return public_keys


def current_time() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the library's default clock; parameters replace it


def fixed_secrets(secrets: str | Sequence[str]) -> Callable[[str | None], Sequence[str]]:
    """Fixed secrets, checked now, so that an invalid one fails at the start and not at the first callback."""
    fixed = [secrets] if isinstance(secrets, str) else list(secrets)
    if not fixed:
        raise ValueError("A receiver needs at least one webhook secret.")
    for secret in fixed:
        check_secret(secret)
    return lambda _: fixed
