"""Access tokens: JWTs that the configured issuer made for this service (RFC 9068, RFC 8725).

An accepted token is signed with an asymmetric algorithm and a published key of the issuer. It names this issuer and the
requested resource, has not expired, and is an access token. An ID token identifies a user but grants nothing.

Issuers that follow RFC 9068 mark access tokens in the header's `typ`. Others (Keycloak, Entra ID, Auth0's own profile) type
both kinds `JWT`. Their tokens are accepted only if the operator allows it, and are then distinguished by their claims. That
is a guess, so it is off by default.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, cast

from joserfc import jwt
from joserfc.errors import (
    BadSignatureError,
    ExpiredTokenError,
    InvalidClaimError,
    InvalidKeyCurveError,
    InvalidKeyIdError,
    JoseError,
    MissingClaimError,
    UnsupportedAlgorithmError,
    UnsupportedKeyAlgorithmError,
)
from joserfc.jwk import Key, KeySet
from joserfc.jws import JWSRegistry, extract_compact
from joserfc.jwt import JWTClaimsRegistry

from ringback.domain.clock import Clock
from ringback.domain.errors import Unauthenticated
from ringback.domain.principal import OIDC_PRINCIPAL_PREFIX, PRINCIPAL_LENGTH_MAX, Caller, Principal, Scope
from ringback.domain.protected_resource import MCP_RESOURCE, SCOPE_PREFIX, enclosing_resources
from ringback.identity.issuer import IssuerKeys

SIGNATURE_ALGORITHMS: Final = frozenset({"RS256", "PS256", "ES256", "EdDSA", "Ed25519"})
"""The asymmetric algorithms that issuers use. With HS256 the public key would be the secret; `none` has no key."""
TOKEN_LENGTH_MAX: Final = 16 * 1024
"""A token that lists a hundred groups has 6 KB."""
CLOCK_LEEWAY_SECONDS: Final = 60
"""How far the issuer's clock and this one may differ."""
TOKEN_LIFETIME_SECONDS_MAX: Final = 24 * 3600.0
"""Issuers' access tokens live for minutes to a day (Entra ID: 60 to 90 minutes, Auth0: a day). They cannot be revoked."""

UNNAMED_KEYS_MAX: Final = 8
"""Keys that are tried for a token that names none: a verification takes some 50 µs. Issuers publish two to five."""

_KEY_TYPES: Final = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP", "Ed25519": "OKP"}
_ACCESS_TOKEN_TYPES: Final = frozenset({"at+jwt", "application/at+jwt"})  # RFC 9068 §2.1
_UNTYPED_TYPES: Final = frozenset({"jwt", "application/jwt", ""})
_ACCESS_TOKEN_CLAIMS: Final = ("scope", "scp", "client_id")
"""Every access token has one of these claims and no ID token does."""
_ID_TOKEN_CLAIMS: Final = ("nonce", "at_hash", "c_hash")  # OpenID Connect Core 1.0 §2, §3.3.2.11


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTokenPolicy:
    public_url: str
    audiences: frozenset[str] = frozenset()
    """Audiences accepted at every entry point. Empty: the URLs of the requested resource and of those that contain it."""
    principal_claim: str = "sub"
    granted_scopes: frozenset[Scope] = frozenset()
    """Scopes of every token, in addition to its own."""
    accepts_untyped: bool = False
    """Whether a token whose `typ` is `JWT` or missing may be an access token."""
    lifetime_seconds_max: float = TOKEN_LIFETIME_SECONDS_MAX
    """The longest remaining lifetime of a token."""


class AccessTokenAuthenticator:
    def __init__(self, *, issuer: IssuerKeys, policy: AccessTokenPolicy, clock: Clock) -> None:
        self._issuer = issuer
        self._policy = policy
        self._clock = clock

    @property
    def issuer_url(self) -> str:
        return self._issuer.url

    async def authenticate(self, token: str, *, resource: str) -> Caller:
        """The caller that this token identifies. Raises `Unauthenticated`, or `IssuerUnavailable` if no keys are known."""
        if len(token) > TOKEN_LENGTH_MAX:
            raise Unauthenticated(f"This access token is longer than {TOKEN_LENGTH_MAX} characters.")
        checked = await self._verify_signature(token)
        accepted = self._accepted_audiences(resource)
        self._check_claims(checked.claims, accepted, resource)
        self._check_token_type(checked)
        return Caller(
            principal=self._build_principal(checked.claims),
            scopes=parse_scopes(checked.claims) | self._policy.granted_scopes,
            upstreams=self._visible_upstreams(checked.claims),
        )

    async def _verify_signature(self, token: str) -> jwt.Token:
        try:
            try:
                return _decode_token(token, await self._issuer.get_keys())
            except InvalidKeyIdError:
                return _decode_token(token, await self._issuer.refetch_keys())
        except (JoseError, ValueError, TypeError, RecursionError):
            raise Unauthenticated(
                f"This is neither a Ringback API key nor a token that {self.issuer_url} signed with an accepted algorithm "
                f"({', '.join(sorted(SIGNATURE_ALGORITHMS))})."
            ) from None

    def _check_claims(self, claims: dict[str, Any], accepted: Collection[str], resource: str) -> None:
        registry = JWTClaimsRegistry(
            now=int(self._clock.wall_time().timestamp()),
            leeway=CLOCK_LEEWAY_SECONDS,
            iss={"essential": True, "value": self.issuer_url},
            aud={"essential": True, "values": sorted(accepted)},
            exp={"essential": True},
        )
        try:
            registry.validate(claims)
        except ExpiredTokenError:
            raise Unauthenticated("This access token has expired. Get a new one.") from None
        except (InvalidClaimError, MissingClaimError) as problem:
            raise Unauthenticated(
                f"This access token is not valid here ({problem.description or problem.error}). Request one from "
                f"{self.issuer_url} with the resource {self._policy.public_url}{resource}."
            ) from None

        self._check_expiry(claims["exp"])

    def _check_expiry(self, expires_at: float) -> None:
        latest = self._clock.wall_time().timestamp() + self._policy.lifetime_seconds_max + CLOCK_LEEWAY_SECONDS
        if not expires_at <= latest:  # rejects NaN, too
            raise Unauthenticated(
                f"This access token lives too long: its exp may be at most {self._policy.lifetime_seconds_max:.0f} s ahead. "
                "Shorten it at the issuer, or ask the operator to raise RINGBACK_OIDC_TOKEN_SECONDS_MAX."
            )

    def _check_token_type(self, token: jwt.Token) -> None:
        kind = str(token.header.get("typ", "")).lower()
        if kind in _ACCESS_TOKEN_TYPES:
            return
        if kind not in _UNTYPED_TYPES or not _looks_like_access_token(token.claims):
            raise Unauthenticated("This is not an access token. Send the access token that was issued with it.")
        if not self._policy.accepts_untyped:
            raise Unauthenticated(
                "This is not an access token: its typ is not at+jwt (RFC 9068). If the issuer types all its tokens JWT, ask "
                "the operator to set RINGBACK_OIDC_UNTYPED_TOKENS."
            )

    def _accepted_audiences(self, resource: str) -> frozenset[str]:
        """The accepted values of `aud`, each with and without a final slash: most URL libraries add one to a bare origin."""
        if self._policy.audiences:
            return self._policy.audiences
        urls = {self._policy.public_url + path for path in enclosing_resources(resource)}
        return frozenset(urls | {f"{url}/" for url in urls})

    def _build_principal(self, claims: Mapping[str, Any]) -> Principal:
        """The name contains the issuer, so it differs from another issuer's subjects and from API keys' principals."""
        subject = claims.get(self._policy.principal_claim)
        if not isinstance(subject, str) or not subject or not subject.isprintable():
            raise Unauthenticated(
                f"This access token names no principal: it has no claim '{self._policy.principal_claim}'."
            )
        bound = f"{OIDC_PRINCIPAL_PREFIX}{_sha256_hex(self.issuer_url)[:8]}"
        name = f"{bound}:{subject}"
        return Principal(name if len(name) <= PRINCIPAL_LENGTH_MAX else f"{bound}#{_sha256_hex(subject)}")

    def _visible_upstreams(self, claims: Mapping[str, Any]) -> frozenset[str] | None:
        """The upstreams whose own endpoints the token names; None, which is all, if its audience contains all of them."""
        named = set(_string_values(claims["aud"]))
        if self._policy.audiences or named & self._accepted_audiences(MCP_RESOURCE):
            return None
        below = f"{self._policy.public_url}{MCP_RESOURCE}/"
        return frozenset(url.removeprefix(below).rstrip("/") for url in named if url.startswith(below))


class _AllowedAlgorithms(JWSRegistry):
    """The accepted algorithms, without joserfc's warning about `EdDSA`, the name of Ed25519 before RFC 9864."""

    def get_alg(self, name: str) -> Any:
        if name not in SIGNATURE_ALGORITHMS:
            raise UnsupportedAlgorithmError(name)
        return self.algorithms[name]


_JWS_REGISTRY: Final = _AllowedAlgorithms(algorithms=SIGNATURE_ALGORITHMS, strict_check_header=False)
"""Ignores unknown header parameters (RFC 7515 §4), except those named in `crit`."""


def _decode_token(token: str, keys: KeySet) -> jwt.Token:
    header: Any = extract_compact(token.encode()).headers()
    if not isinstance(header, dict):  # joserfc accepts each JSON value that contains "alg"
        raise TypeError
    if "kid" in header:
        return jwt.decode(token, keys, registry=_JWS_REGISTRY)
    return _decode_with_any(token, _list_possible_keys(keys, cast("dict[str, Any]", header).get("alg")))


def _decode_with_any(token: str, keys: Sequence[Key]) -> jwt.Token:
    """Decode with the key that has signed the token. Raises `InvalidKeyIdError`, as for the name of an unknown key."""
    for key in keys:
        try:
            return jwt.decode(token, key, registry=_JWS_REGISTRY)
        except (BadSignatureError, InvalidKeyCurveError, UnsupportedKeyAlgorithmError):
            continue
    raise InvalidKeyIdError("No key of the issuer has signed this token.")


def _list_possible_keys(keys: KeySet, algorithm: Any) -> Sequence[Key]:
    """The keys that may have signed a token without `kid`, which is optional (RFC 7515 §4.1.4)."""
    wanted = _KEY_TYPES.get(algorithm) if isinstance(algorithm, str) else None
    return [key for key in keys if key.key_type == wanted][:UNNAMED_KEYS_MAX]


def _looks_like_access_token(claims: Mapping[str, Any]) -> bool:
    """Whether the token has an access token's claims and none of an ID token's."""
    is_identity = any(name in claims for name in _ID_TOKEN_CLAIMS) or claims.get("token_use") == "id"
    return not is_identity and any(name in claims for name in _ACCESS_TOKEN_CLAIMS)


def parse_scopes(claims: Mapping[str, Any]) -> frozenset[Scope]:
    """The token's Ringback scopes, from `scope` (a string, RFC 9068 §2.2.3) or `scp` (a string or a list, other issuers)."""
    words = {word for name in ("scope", "scp") for text in _string_values(claims.get(name)) for word in text.split()}
    return frozenset(scope for scope in Scope if f"{SCOPE_PREFIX}{scope}" in words)


def _string_values(value: Any) -> list[str]:
    listed = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [text for text in listed if isinstance(text, str)]


def _sha256_hex(text: str) -> str:
    return sha256(text.encode()).hexdigest()
