"""Which access tokens are valid, at which resource, and with which scopes."""

import base64
import hmac
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey, Key

from ringback.domain.errors import Unauthenticated
from ringback.domain.principal import PRINCIPAL_LENGTH_MAX, Scope
from ringback.identity.access_tokens import (
    CLOCK_LEEWAY_SECONDS,
    TOKEN_LENGTH_MAX,
    AccessTokenAuthenticator,
    AccessTokenPolicy,
    parse_scopes,
)
from ringback.identity.issuer import IssuerKeys
from tests.support.clock import FakeClock, WallClockSteps
from tests.support.service import PUBLIC_URL
from tests.support.token_issuer import EC_KEY, ED_KEY, LIFETIME_SECONDS, OTHER_KEY, RSA_KEY, FakeTokenIssuer

pytestmark = pytest.mark.requirement("R25")

MCP = f"{PUBLIC_URL}/mcp"


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA_KEY, "RS256"), (RSA_KEY, "PS256"), (EC_KEY, "ES256"), (ED_KEY, "EdDSA"), (ED_KEY, "Ed25519")],
)
async def test_a_token_signed_with_a_published_key_is_its_subject(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, key: Key, algorithm: str
) -> None:
    token = issuer.sign_token(
        key=key, algorithm=algorithm, aud=MCP, scope="openid ringback:calls ringback:read other:admin"
    )

    caller = await tokens.authenticate(token, resource="/mcp")

    assert caller.principal.startswith("oidc:")
    assert caller.principal.endswith(":ada")
    assert caller.scopes == {Scope.CALLS, Scope.READ}
    assert caller.upstreams is None


@pytest.mark.parametrize("key", [RSA_KEY, EC_KEY, OTHER_KEY, ED_KEY])
async def test_a_token_that_names_no_key_is_verified_with_each_key_of_its_type(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, key: Key
) -> None:
    issuer.keys = [ECKey.generate_key("P-384"), RSA_KEY, EC_KEY, OTHER_KEY, ED_KEY]

    caller = await tokens.authenticate(issuer.sign_token(key=key, header={"kid": None}, aud=MCP), resource="/mcp")

    assert caller.principal.endswith(":ada")


async def test_a_token_that_names_no_key_and_has_another_signature_is_refused(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer
) -> None:
    impostor = ECKey.generate_key("P-256")

    await token_error(tokens, issuer.sign_token(key=impostor, header={"kid": None}, aud=MCP))
    await token_error(tokens, issuer.sign_token(key=EC_KEY, header={"kid": ""}, aud=MCP))


async def token_error(tokens: AccessTokenAuthenticator, token: str, *, resource: str = "/mcp") -> str:
    with pytest.raises(Unauthenticated) as caught:
        await tokens.authenticate(token, resource=resource)
    assert token not in caught.value.detail
    return caught.value.detail


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"aud": "https://other.example/mcp"}, "with the resource https://ringback.example/mcp"),
        ({"aud": ["https://other.example/mcp", "account"]}, "resource"),
        ({"aud": None}, "aud"),
        ({"aud": f"{MCP}x"}, "aud"),
        ({"iss": "https://issuer.example/"}, "iss"),
        ({"iss": None}, "iss"),
        ({"exp": None}, "exp"),
        ({"exp": "tomorrow"}, "exp"),
        ({"nbf": 2**40}, "not yet valid"),
        ({"iat": 2**40}, "future"),
        ({"sub": None}, "'sub'"),
        ({"sub": ""}, "'sub'"),
        ({"sub": "a\nb"}, "'sub'"),
        ({"header": {"alg": "ES256", "crit": ["exp2"], "exp2": 1}}, "neither"),
    ],
)
async def test_a_token_with_one_invalid_claim_is_rejected(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, changes: dict[str, Any], why: str
) -> None:
    header = changes.pop("header", None)
    token = _signed(issuer, header, {"aud": MCP, **changes})

    assert why in await token_error(tokens, token)


def _signed(issuer: FakeTokenIssuer, header: dict[str, Any] | None, claims: dict[str, Any]) -> str:
    """Builds a header with an unknown `crit` by hand, because joserfc does not sign it."""
    token = issuer.sign_token(**claims)
    return token if header is None else f"{_part({'kid': EC_KEY.kid, **header})}.{token.partition('.')[2]}"


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("seconds", "good"),
    [(LIFETIME_SECONDS + CLOCK_LEEWAY_SECONDS - 1, True), (LIFETIME_SECONDS + CLOCK_LEEWAY_SECONDS, False)],
)
async def test_a_token_expires_at_its_exp_within_a_minute(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, clock: FakeClock, seconds: int, *, good: bool
) -> None:
    token = issuer.sign_token(aud=MCP)
    clock.advance(seconds)

    if good:
        await tokens.authenticate(token, resource="/mcp")
    else:
        assert "expired" in await token_error(tokens, token)


@pytest.mark.parametrize(
    "header",
    [b'"alg"', b'"xalgx"', b'["alg"]', b"null", b"1", b"", b"\xff", b'{"alg": []}', b'{"alg": "RS256", "kid": {}}'],
)
async def test_a_token_whose_header_is_no_object_of_this_kind_is_refused(
    tokens: AccessTokenAuthenticator, header: bytes
) -> None:
    encoded = base64.urlsafe_b64encode(header).decode().rstrip("=")

    assert "neither" in await token_error(tokens, f"{encoded}.e30.AAAA")


async def test_no_symmetric_and_no_missing_signature_is_taken(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer
) -> None:
    claims = issuer.sign_token(aud=MCP).split(".")[1]
    signed = f"{_part({'alg': 'HS256', 'kid': 'rsa-1', 'typ': 'at+jwt'})}.{claims}"
    forged = hmac.digest(RSA_KEY.as_pem(private=False), signed.encode(), "sha256")

    await token_error(tokens, f"{signed}.{base64.urlsafe_b64encode(forged).decode().rstrip('=')}")
    await token_error(tokens, f"{_part({'alg': 'none', 'kid': 'ec-1'})}.{claims}.")
    await token_error(tokens, f"{_part({'alg': 'ES384', 'kid': 'ec-1'})}.{claims}.AAAA")


async def test_a_signature_by_another_key_of_the_same_name_is_none(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer
) -> None:
    impostor = ECKey.generate_key("P-256", {"kid": EC_KEY.kid or ""})

    await token_error(tokens, issuer.sign_token(key=impostor, aud=MCP))
    await token_error(tokens, issuer.sign_token(key=EC_KEY, header={"kid": "rsa-1"}, aud=MCP))
    await token_error(tokens, issuer.sign_token(key=OTHER_KEY, aud=MCP))


OTHER_TOKENS: Final[Sequence[tuple[str, dict[str, Any], bool]]] = (
    ("JWT", {}, False),
    ("JWT", {"scope": "openid", "nonce": "n"}, False),
    ("JWT", {"scope": "openid", "at_hash": "h"}, False),
    ("JWT", {"client_id": "agent", "token_use": "id"}, False),
    ("logout+jwt", {"scope": "openid"}, False),
    ("dpop+jwt", {"scope": "openid"}, False),
)
"""ID tokens, and tokens for other purposes."""


@pytest.mark.parametrize(
    ("typ", "claims", "good"),
    [
        ("at+jwt", {}, True),
        ("application/AT+JWT", {}, True),
        ("JWT", {"scope": "openid"}, False),
        (None, {"scp": ["ringback:read"]}, False),
        *OTHER_TOKENS,
    ],
)
async def test_id_tokens_and_others_are_no_access_tokens(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, typ: str | None, claims: dict[str, Any], *, good: bool
) -> None:
    said: dict[str, Any] = {"aud": MCP, "client_id": None, **claims}
    token = issuer.sign_token(header={"typ": typ}, **said)

    if good:
        await tokens.authenticate(token, resource="/mcp")
    else:
        assert "not an access token" in await token_error(tokens, token)


@pytest.mark.parametrize(
    ("typ", "claims", "good"),
    [
        ("at+jwt", {}, True),
        ("JWT", {"scope": "openid"}, True),
        (None, {"scp": ["ringback:read"]}, True),
        *OTHER_TOKENS,
    ],
)
async def test_an_issuer_without_types_is_believed_by_its_claims_where_it_is_configured_so(
    published: IssuerKeys,
    issuer: FakeTokenIssuer,
    clock: FakeClock,
    typ: str | None,
    claims: dict[str, Any],
    *,
    good: bool,
) -> None:
    rules = AccessTokenPolicy(public_url=PUBLIC_URL, accepts_untyped=True)
    tokens = AccessTokenAuthenticator(issuer=published, policy=rules, clock=clock)
    said: dict[str, Any] = {"aud": MCP, "client_id": None, **claims}
    token = issuer.sign_token(header={"typ": typ}, **said)

    assert await is_valid(tokens, token, "/mcp") is good


async def test_the_rejection_of_an_untyped_access_token_names_the_setting(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer
) -> None:
    assert "RINGBACK_OIDC_UNTYPED_TOKENS" in await token_error(
        tokens, issuer.sign_token(header={"typ": "JWT"}, aud=MCP)
    )


@pytest.mark.parametrize(
    ("ahead", "good"),
    [(86_400 + CLOCK_LEEWAY_SECONDS, True), (86_401 + CLOCK_LEEWAY_SECONDS, False), (10**400, False)],
)
async def test_a_token_with_a_lifetime_over_a_day_is_rejected(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, clock: FakeClock, ahead: float, *, good: bool
) -> None:
    token = issuer.sign_token(aud=MCP, exp=int(clock.now().timestamp()) + ahead)

    if good:
        await tokens.authenticate(token, resource="/mcp")
    else:
        assert "RINGBACK_OIDC_TOKEN_SECONDS_MAX" in await token_error(tokens, token)


@pytest.mark.parametrize("end", [float("nan"), float("inf")])
async def test_an_infinite_or_nan_exp_is_rejected(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, end: float
) -> None:
    await token_error(tokens, issuer.sign_token(aud=MCP, exp=end))


@pytest.mark.parametrize("claim", ["nbf", "iat"])
@pytest.mark.parametrize(("ahead", "good"), [(CLOCK_LEEWAY_SECONDS, True), (CLOCK_LEEWAY_SECONDS + 1, False)])
async def test_a_token_from_the_future_is_good_within_the_leeway_only(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, clock: FakeClock, claim: str, ahead: int, *, good: bool
) -> None:
    said: dict[str, Any] = {claim: int(clock.now().timestamp()) + ahead}

    assert await is_valid(tokens, issuer.sign_token(aud=MCP, **said), "/mcp") is good


@pytest.mark.parametrize(
    ("audience", "rest", "joined", "git", "time"),
    [
        (PUBLIC_URL, True, True, True, True),
        (f"{PUBLIC_URL}/", True, True, True, True),
        (MCP, False, True, True, True),
        (f"{MCP}/git", False, False, True, False),
        ([f"{MCP}/git", "https://other.example"], False, False, True, False),
    ],
)
async def test_a_token_is_valid_for_its_resource_and_those_below(
    tokens: AccessTokenAuthenticator,
    issuer: FakeTokenIssuer,
    audience: Any,
    *,
    rest: bool,
    joined: bool,
    git: bool,
    time: bool,
) -> None:
    token = issuer.sign_token(aud=audience)
    audiences = {"": rest, "/mcp": joined, "/mcp/git": git, "/mcp/time": time}

    assert {audience: await is_valid(tokens, token, audience) for audience in audiences} == audiences


async def is_valid(tokens: AccessTokenAuthenticator, token: str, resource: str) -> bool:
    try:
        await tokens.authenticate(token, resource=resource)
    except Unauthenticated:
        return False
    return True


async def test_a_token_for_one_upstream_shows_no_other(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer
) -> None:
    one = await tokens.authenticate(issuer.sign_token(aud=f"{MCP}/git"), resource="/mcp/git")
    both = await tokens.authenticate(issuer.sign_token(aud=[f"{MCP}/git", f"{MCP}/time/"]), resource="/mcp/git")
    every = await tokens.authenticate(issuer.sign_token(aud=[f"{MCP}/git", MCP]), resource="/mcp/git")

    assert (one.upstreams, both.upstreams, every.upstreams) == ({"git"}, {"git", "time"}, None)


async def test_configured_audiences_take_the_place_of_resources(
    published: IssuerKeys, issuer: FakeTokenIssuer, clock: FakeClock
) -> None:
    rules = AccessTokenPolicy(
        public_url=PUBLIC_URL, audiences=frozenset({"ringback-api"}), granted_scopes=frozenset({Scope.READ})
    )
    tokens = AccessTokenAuthenticator(issuer=published, policy=rules, clock=clock)

    caller = await tokens.authenticate(
        issuer.sign_token(aud="ringback-api", scope="ringback:calls"), resource="/mcp/git"
    )

    assert caller.scopes == {Scope.READ, Scope.CALLS}
    assert caller.upstreams is None
    await token_error(tokens, issuer.sign_token(aud=MCP))


async def test_principals_of_two_issuers_differ_and_so_do_long_subjects(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, clock: FakeClock
) -> None:
    async def principal_of(subject: str) -> str:
        return (await tokens.authenticate(issuer.sign_token(aud=MCP, sub=subject), resource="/mcp")).principal

    long, longer = await principal_of("x" * 200), await principal_of("x" * 201)

    assert len({long, longer, await principal_of(long.rpartition("#")[2])}) == 3
    assert max(len(long), len(longer)) <= PRINCIPAL_LENGTH_MAX
    assert await principal_of("ada") == await principal_of("ada")


async def test_another_claim_may_name_the_principal(
    published: IssuerKeys, issuer: FakeTokenIssuer, clock: FakeClock
) -> None:
    rules = AccessTokenPolicy(public_url=PUBLIC_URL, principal_claim="oid")
    tokens = AccessTokenAuthenticator(issuer=published, policy=rules, clock=clock)

    caller = await tokens.authenticate(issuer.sign_token(aud=MCP, oid="0007"), resource="/mcp")

    assert caller.principal.endswith(":0007")
    assert "'oid'" in await token_error(tokens, issuer.sign_token(aud=MCP))


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({}, set[Scope]()),
        ({"scope": "calls read admin"}, set[Scope]()),
        ({"scope": "ringback:calls  ringback:admin"}, {Scope.CALLS, Scope.ADMIN}),
        ({"scp": "ringback:read"}, {Scope.READ}),
        ({"scp": ["ringback:read", 7, "ringback:webhooks"]}, {Scope.READ, Scope.WEBHOOKS}),
        ({"scope": {"ringback:admin": True}}, set[Scope]()),
    ],
)
def test_only_scopes_with_our_prefix_are_ours(claims: dict[str, Any], scopes: set[Scope]) -> None:
    assert parse_scopes(claims) == scopes


@pytest.mark.parametrize(
    "token", ["", ".", "..", "a.b.c", "not-a-key", "x" * (TOKEN_LENGTH_MAX + 1), "é.é.é", "e30.e30.e30"]
)
async def test_an_invalid_token_is_rejected_and_not_quoted(tokens: AccessTokenAuthenticator, token: str) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(token, resource="/mcp")


_JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), st.lists, max_leaves=8)


@given(
    header=_JSON | st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk"]), _JSON), claims=_JSON
)
async def test_no_unverified_input_raises_an_unexpected_error(
    tokens: AccessTokenAuthenticator, header: Any, claims: Any
) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(f"{_part(header)}.{_part(claims)}.AAAA", resource="/mcp")


async def test_a_clock_set_forward_by_days_does_not_extend_a_tokens_lifetime(
    published: IssuerKeys, issuer: FakeTokenIssuer
) -> None:
    clock = WallClockSteps()
    tokens = AccessTokenAuthenticator(issuer=published, policy=AccessTokenPolicy(public_url=PUBLIC_URL), clock=clock)

    clock.step(30 * 24 * 3600.0)
    token = issuer.sign_token(aud=MCP, exp=int(clock.wall_time().timestamp()) + 60)

    assert (await tokens.authenticate(token, resource="/mcp")).principal.endswith(":ada")
