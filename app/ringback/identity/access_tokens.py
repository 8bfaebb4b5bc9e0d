"""Access tokens: JWTs that the configured issuer made for this service, and nothing else (RFC 9068, RFC 8725).

Signed with an asymmetric algorithm by a key that the issuer publishes; of this issuer; for the resource at which it is
presented; within its time; and an access token, not an ID token, which says who somebody is but not what may be done in their
name.

The header's `typ` says which of the two a token is, where the issuer follows RFC 9068. Issuers that do not (Keycloak, Entra ID,
Auth0's own profile) type both `JWT`. Their tokens are accepted only where the operator says so, and then told apart by their
claims, which is a guess: so the default is to refuse them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, cast

from joserfc import jwt
from joserfc.errors import (
    ExpiredTokenError,
    InvalidClaimError,
    InvalidKeyIdError,
    JoseError,
    MissingClaimError,
    UnsupportedAlgorithmError,
)
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry
from joserfc.jwt import JWTClaimsRegistry

from ringback.domain.clock import Clock
from ringback.domain.errors import Unauthenticated
from ringback.domain.principal import OIDC_PRINCIPAL_PREFIX, PRINCIPAL_LENGTH_MAX, Caller, Principal, Scope
from ringback.domain.protected_resource import MCP_RESOURCE, SCOPE_PREFIX, enclosing_resources
from ringback.identity.issuer import IssuerKeys

SIGNATURE_ALGORITHMS: Final = frozenset({"RS256", "PS256", "ES256", "EdDSA", "Ed25519"})
"""Asymmetric, and what issuers use. With HS256 the public key would be the secret; `none` needs no key at all."""
TOKEN_LENGTH_MAX: Final = 16 * 1024
"""Tokens that list a hundred groups take 6 KB."""
CLOCK_LEEWAY_SECONDS: Final = 60
"""By which the issuer's clock and ours may differ."""
TOKEN_LIFETIME_SECONDS_MAX: Final = 24 * 3600.0
"""Issuers give access tokens minutes to a day (Entra ID: 60 to 90 minutes, Auth0: a day). Nobody can take one back earlier."""

_ACCESS_TOKEN_TYPES: Final = frozenset({"at+jwt", "application/at+jwt"})  # RFC 9068 §2.1
_UNTYPED_TYPES: Final = frozenset({"jwt", "application/jwt", ""})
_ACCESS_TOKEN_CLAIMS: Final = ("scope", "scp", "client_id")
"""Claims of which an access token has one and an ID token none: issuers older than RFC 9068 call both of them `JWT`."""
_ID_TOKEN_CLAIMS: Final = ("nonce", "at_hash", "c_hash")  # OpenID Connect Core 1.0 §2, §3.3.2.11


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTokenPolicy:
    public_url: str
    audiences: frozenset[str] = frozenset()
    """Audiences that are good at every door; none: the URLs of the resource that is asked, and of those around it."""
    principal_claim: str = "sub"
    granted_scopes: frozenset[Scope] = frozenset()
    """What every token may do, whatever its own scopes are."""
    accepts_untyped: bool = False
    """Whether a token whose header says `JWT`, or nothing, may be an access token too."""
    lifetime_seconds_max: float = TOKEN_LIFETIME_SECONDS_MAX
    """How far in the future a token's end may be."""


class AccessTokenAuthenticator:
    def __init__(self, *, issuer: IssuerKeys, policy: AccessTokenPolicy, clock: Clock) -> None:
        self._issuer = issuer
        self._policy = policy
        self._clock = clock

    @property
    def issuer_url(self) -> str:
        return self._issuer.url

    async def authenticate(self, token: str, *, resource: str) -> Caller:
        """Who presents this token there; raises `Unauthenticated`, and `IssuerUnavailable` when it cannot be checked."""
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
                f"This is neither an API key of ours nor a token that {self.issuer_url} signed as we accept it "
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
                f"This access token is not good here ({problem.description or problem.error}). Ask {self.issuer_url} for one "
                f"whose resource is {self._policy.public_url}{resource}."
            ) from None

        self._check_expiry(claims["exp"])

    def _check_expiry(self, expires_at: float) -> None:
        latest = self._clock.wall_time().timestamp() + self._policy.lifetime_seconds_max + CLOCK_LEEWAY_SECONDS
        if not expires_at <= latest:  # so written, a NaN is refused too
            raise Unauthenticated(
                f"This access token lives for too long: its exp may be at most {self._policy.lifetime_seconds_max:.0f} s ahead. Have the "
                "issuer shorten it, or the operator set RINGBACK_OIDC_TOKEN_SECONDS_MAX."
            )

    def _check_token_type(self, token: jwt.Token) -> None:
        kind = str(token.header.get("typ", "")).lower()
        if kind in _ACCESS_TOKEN_TYPES:
            return
        if kind not in _UNTYPED_TYPES or not _looks_like_access_token(token.claims):
            raise Unauthenticated("This is not an access token. Send the access token that came with it.")
        if not self._policy.accepts_untyped:
            raise Unauthenticated(
                "This is not an access token by its type: its header's typ must be at+jwt (RFC 9068). If the issuer types all "
                "its tokens JWT, have the operator set RINGBACK_OIDC_UNTYPED_TOKENS."
            )

    def _accepted_audiences(self, resource: str) -> frozenset[str]:
        """What may be in `aud`. The root is spelt with a slash or without; most URL libraries put one there."""
        if self._policy.audiences:
            return self._policy.audiences
        urls = {self._policy.public_url + path for path in enclosing_resources(resource)}
        return frozenset(urls | {f"{url}/" for url in urls})

    def _build_principal(self, claims: Mapping[str, Any]) -> Principal:
        """Bound to the issuer: the same subject at another issuer is somebody else, and so is whoever holds an API key."""
        subject = claims.get(self._policy.principal_claim)
        if not isinstance(subject, str) or not subject or not subject.isprintable():
            raise Unauthenticated(
                f"This access token does not say whose it is: it has no claim '{self._policy.principal_claim}'."
            )
        bound = f"{OIDC_PRINCIPAL_PREFIX}{_sha256_hex(self.issuer_url)[:8]}"
        name = f"{bound}:{subject}"
        return Principal(name if len(name) <= PRINCIPAL_LENGTH_MAX else f"{bound}#{_sha256_hex(subject)}")

    def _visible_upstreams(self, claims: Mapping[str, Any]) -> frozenset[str] | None:
        """A token for the endpoints of single upstreams shows no other upstream there either."""
        named = set(_string_values(claims["aud"]))
        if self._policy.audiences or named & self._accepted_audiences(MCP_RESOURCE):
            return None
        below = f"{self._policy.public_url}{MCP_RESOURCE}/"
        return frozenset(url.removeprefix(below).rstrip("/") for url in named if url.startswith(below))


class _AllowedAlgorithms(JWSRegistry):
    """joserfc warns at every use of `EdDSA`, the name that issuers give to Ed25519 until they have read RFC 9864."""

    def get_alg(self, name: str) -> Any:
        if name not in SIGNATURE_ALGORITHMS:
            raise UnsupportedAlgorithmError(name)
        return self.algorithms[name]


_JWS_REGISTRY: Final = _AllowedAlgorithms(algorithms=SIGNATURE_ALGORITHMS, strict_check_header=False)
"""Header parameters that nobody knows are passed over (RFC 7515 §4), but for those named in `crit`."""


def _decode_token(token: str, keys: KeySet) -> jwt.Token:
    return jwt.decode(token, keys, registry=_JWS_REGISTRY)


def _looks_like_access_token(claims: Mapping[str, Any]) -> bool:
    """By what only one kind of token carries."""
    is_identity = any(name in claims for name in _ID_TOKEN_CLAIMS) or claims.get("token_use") == "id"
    return not is_identity and any(name in claims for name in _ACCESS_TOKEN_CLAIMS)


def parse_scopes(claims: Mapping[str, Any]) -> frozenset[Scope]:
    """Our scopes among those of a token: `scope`, one text (RFC 9068 §2.2.3), or `scp`, a text or a list, as others have it."""
    words = {word for name in ("scope", "scp") for text in _string_values(claims.get(name)) for word in text.split()}
    return frozenset(scope for scope in Scope if f"{SCOPE_PREFIX}{scope}" in words)


def _string_values(value: Any) -> list[str]:
    listed = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [text for text in listed if isinstance(text, str)]


def _sha256_hex(text: str) -> str:
    return sha256(text.encode()).hexdigest()
