"""The issuer's keys: when and how often they are fetched, how long they are valid, and which are ignored."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest
from joserfc.errors import InvalidKeyIdError
from joserfc.jwk import OctKey

from ringback.domain.errors import IssuerUnavailable, Unauthenticated
from ringback.identity.access_tokens import AccessTokenAuthenticator
from ringback.identity.issuer import KEYS_MAX_AGE_SECONDS, REFETCH_INTERVAL_SECONDS, STALE_KEYS_SECONDS_MAX, IssuerKeys
from ringback.identity.issuer_documents import (
    DOCUMENT_BYTES_MAX,
    IssuerDocumentError,
    create_issuer_client,
    fetch_json_object,
    is_trusted_url,
)
from ringback.identity.resolving_transport import ResolvingTransport
from ringback.notifier.configured_hosts import ConfiguredHosts, LookUp
from tests.support.clock import FakeClock
from tests.support.receivers import NO_CONTENT, CertificateAuthority, respond_with, serving_receiver
from tests.support.resolvers import FakeResolver
from tests.support.service import PUBLIC_URL
from tests.support.token_issuer import EC_KEY, OTHER_KEY, RSA_KEY, FakeTokenIssuer

DISCOVERY = "/.well-known/openid-configuration"


async def test_keys_are_fetched_once_and_kept(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, clock: FakeClock
) -> None:
    for _ in range(3):
        await tokens.authenticate(issuer.sign_token(aud=PUBLIC_URL), resource="")
        clock.advance(KEYS_MAX_AGE_SECONDS / 4)

    assert issuer.requested_paths == [DISCOVERY, "/keys"]


async def test_concurrent_waiters_cause_one_fetch(published: IssuerKeys, issuer: FakeTokenIssuer) -> None:
    issuer.may_respond.clear()
    waiting = [asyncio.create_task(published.get_keys()) for _ in range(50)]
    await issuer.request_arrived.wait()
    issuer.may_respond.set()

    assert len({id(keys) for keys in await asyncio.gather(*waiting)}) == 1
    assert issuer.key_set_request_count == 1


async def test_a_caller_that_stops_waiting_affects_no_other(published: IssuerKeys, issuer: FakeTokenIssuer) -> None:
    issuer.may_respond.clear()
    first = asyncio.create_task(published.get_keys())
    second = asyncio.create_task(published.get_keys())
    await issuer.request_arrived.wait()

    first.cancel()
    issuer.may_respond.set()

    assert await second


async def test_a_new_key_is_found_when_a_token_names_it(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, clock: FakeClock
) -> None:
    await tokens.authenticate(issuer.sign_token(aud=PUBLIC_URL), resource="")
    issuer.keys = [OTHER_KEY]
    clock.advance(REFETCH_INTERVAL_SECONDS)

    await tokens.authenticate(issuer.sign_token(key=OTHER_KEY, aud=PUBLIC_URL), resource="")

    with pytest.raises(Unauthenticated):
        await tokens.authenticate(issuer.sign_token(aud=PUBLIC_URL), resource="")


async def test_a_new_key_is_found_for_a_token_that_names_none(
    published: IssuerKeys, tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, clock: FakeClock
) -> None:
    await published.get_keys()
    issuer.keys = [*issuer.keys, OTHER_KEY]
    clock.advance(REFETCH_INTERVAL_SECONDS)

    token = issuer.sign_token(key=OTHER_KEY, header={"kid": None}, aud=PUBLIC_URL)
    assert (await tokens.authenticate(token, resource="")).principal


async def test_unknown_key_ids_do_not_cause_repeated_fetches(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, clock: FakeClock
) -> None:
    for number in range(20):
        with pytest.raises(Unauthenticated):
            await tokens.authenticate(
                issuer.sign_token(header={"kid": f"made-up-{number}"}, aud=PUBLIC_URL), resource=""
            )
    assert issuer.key_set_request_count == 1

    clock.advance(REFETCH_INTERVAL_SECONDS)
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(issuer.sign_token(header={"kid": "made-up"}, aud=PUBLIC_URL), resource="")
    assert issuer.key_set_request_count == 2


async def test_a_withdrawn_key_is_good_no_longer_than_keys_are_fresh(
    tokens: AccessTokenAuthenticator, issuer: FakeTokenIssuer, clock: FakeClock
) -> None:
    await tokens.authenticate(issuer.sign_token(aud=PUBLIC_URL), resource="")
    issuer.keys = [RSA_KEY]
    clock.advance(KEYS_MAX_AGE_SECONDS)

    with pytest.raises(Unauthenticated):
        await tokens.authenticate(issuer.sign_token(aud=PUBLIC_URL), resource="")


async def test_the_last_keys_survive_an_outage_for_a_day(
    published: IssuerKeys, issuer: FakeTokenIssuer, clock: FakeClock
) -> None:
    before = await published.get_keys()
    issuer.unreachable = True

    clock.advance(STALE_KEYS_SECONDS_MAX - 1)
    assert await published.get_keys() is before

    clock.advance(1)
    with pytest.raises(IssuerUnavailable, match="API key"):
        await published.get_keys()

    issuer.unreachable = False
    clock.advance(REFETCH_INTERVAL_SECONDS)
    assert (await published.get_keys()).get_by_kid("ec-1")


async def test_while_one_renews_old_keys_the_others_go_on_with_them(
    published: IssuerKeys, issuer: FakeTokenIssuer, clock: FakeClock
) -> None:
    before = await published.get_keys()
    clock.advance(KEYS_MAX_AGE_SECONDS)
    issuer.may_respond.clear()
    issuer.request_arrived.clear()
    renewing = asyncio.create_task(published.get_keys())
    await issuer.request_arrived.wait()

    assert await published.get_keys() is before

    issuer.may_respond.set()
    assert await renewing is not before


async def test_an_issuer_that_is_down_at_start_is_retried_at_intervals(
    published: IssuerKeys, issuer: FakeTokenIssuer, clock: FakeClock
) -> None:
    issuer.unreachable = True
    for _ in range(5):
        with pytest.raises(IssuerUnavailable):
            await published.get_keys()
    assert len(issuer.requested_paths) == 1

    issuer.unreachable = False
    clock.advance(REFETCH_INTERVAL_SECONDS)
    assert await published.get_keys()


@pytest.mark.parametrize(
    "document",
    [
        (200, b"[]"),
        (200, b"{"),
        (200, b'{"issuer":"https://evil.example","jwks_uri":"https://issuer.example/keys"}'),
        (200, b'{"issuer":"https://issuer.example"}'),
        (200, b'{"issuer":"https://issuer.example","jwks_uri":"http://issuer.example/keys"}'),
        (200, b'{"issuer":"https://issuer.example","jwks_uri":"file:///etc/passwd"}'),
        (200, b'{"issuer":"https://issuer.example","jwks_uri":"https://[bad"}'),
        (200, b'{"issuer":"https://issuer.example","jwks_uri":"https://issuer.example/\\ud800"}'),
        (200, b'{"issuer":"https://issuer.example","jwks_uri":"https://issuer.example/none"}'),
        (302, b""),
        (429, b"{}"),
        (500, b"{}"),
        (200, b" " * (DOCUMENT_BYTES_MAX + 1)),
    ],
)
async def test_a_discovery_document_that_cannot_be_trusted_is_not(
    published: IssuerKeys, issuer: FakeTokenIssuer, document: tuple[int, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    issuer.documents = {DISCOVERY: document}

    with pytest.raises(IssuerUnavailable):
        await published.get_keys()

    assert [record.getMessage() for record in caplog.records] == ["issuer.unavailable"]
    assert issuer.key_set_request_count == 0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405])
async def test_the_metadata_of_an_oauth_server_will_do(clock: FakeClock, status: int) -> None:
    url = "https://issuer.example/realms/one"
    issuer = FakeTokenIssuer(url=url, discovery_path="/.well-known/oauth-authorization-server/realms/one")
    issuer.published = {"jwks_uri": "https://issuer.example/keys"}
    issuer.documents = {"/realms/one/.well-known/openid-configuration": (status, b"{}")}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(issuer)) as http:
        keys = await IssuerKeys(url, http=http, clock=clock).get_keys()

    assert keys.get_by_kid("ec-1")
    assert issuer.requested_paths[0] == "/realms/one/.well-known/openid-configuration"


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "key",
        {},
        {"kty": "EC"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "BP-256", "x": "AA", "y": "AA"},
        {"kty": "OKP", "crv": "Ed25519ph", "x": "AA"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "odd"},
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"},
        {**EC_KEY.as_dict(private=False), "use": "enc", "kid": "odd"},
        OctKey.generate_key(256, {"kid": "odd"}).as_dict(private=True),
    ],
)
async def test_odd_entries_of_a_key_set_are_passed_over(
    published: IssuerKeys, issuer: FakeTokenIssuer, odd: Any
) -> None:
    issuer.documents = {"/keys": (200, _json({"keys": [odd, EC_KEY.as_dict(private=False)]}))}

    keys = await published.get_keys()

    assert [key.kid for key in keys] == ["ec-1"]
    with pytest.raises(InvalidKeyIdError):
        keys.get_by_kid("odd")


@pytest.mark.parametrize("keys", [b"{}", b'{"keys":null}', b'{"keys":[]}', b'{"keys":{"ec-1":{}}}'])
async def test_a_set_without_keys_is_no_set(published: IssuerKeys, issuer: FakeTokenIssuer, keys: bytes) -> None:
    issuer.documents = {"/keys": (200, keys)}

    with pytest.raises(IssuerUnavailable):
        await published.get_keys()


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://issuer.example/keys", True),
        ("http://127.0.0.1:9/keys", True),
        ("http://[::1]/keys", True),
        ("http://localhost/keys", True),
        ("http://issuer.example/keys", False),
        ("http://127.0.0.1.issuer.example/keys", False),
        ("https:///keys", False),
        ("https://[bad/keys", False),
        ("https://issuer.example:99999/keys", False),
        ("ftp://issuer.example", False),
        ("", False),
    ],
)
def test_only_https_and_this_machine_are_trusted(url: str, *, good: bool) -> None:
    assert is_trusted_url(url) is good


async def test_nothing_is_fetched_through_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    async with create_issuer_client(names({})) as http:
        assert http.trust_env is False
        assert http.follow_redirects is False


def names(known: Mapping[str, Sequence[str]]) -> LookUp:
    return ConfiguredHosts(FakeResolver(known)).look_up_for("issuer")


async def answer_with_an_object(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{"is": "it"}')
    await writer.drain()
    writer.close()


async def test_the_lookup_of_the_issuers_host_does_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(host: str, *_: object, **__: object) -> None:
        raise AssertionError(host)

    server = await asyncio.start_server(answer_with_an_object, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    async with server, create_issuer_client(names({"localhost": ["127.0.0.9", "127.0.0.1"]})) as http:
        assert await fetch_json_object(http, f"http://localhost:{port}/keys") == {"is": "it"}


async def test_an_issuer_whose_name_has_no_address_has_no_document() -> None:
    async with create_issuer_client(names({})) as http:
        with pytest.raises(IssuerDocumentError, match="ConnectError"):
            await fetch_json_object(http, "https://issuer.example/keys")


async def test_the_certificate_of_an_issuer_must_be_for_its_name_and_not_for_its_address() -> None:
    certificates, look_up = (
        CertificateAuthority(),
        names({"issuer.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}),
    )
    connections = httpx.AsyncHTTPTransport(
        verify=certificates.client(), trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
    )
    async with (
        serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("issuer.example")) as receiver,
        httpx.AsyncClient(transport=ResolvingTransport(connections, look_up=look_up)) as http,
    ):
        answer = await http.get(receiver.url(host="issuer.example"))
        assert (answer.status_code, answer.request.url.host) == (204, "issuer.example")
        with pytest.raises(httpx.ConnectError, match=r"other\.example"):
            await http.get(receiver.url(host="other.example"))


async def test_a_document_that_is_not_there_is_none(issuer: FakeTokenIssuer) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(issuer)) as http:
        assert await fetch_json_object(http, "https://issuer.example/nothing") is None


def _json(value: Any) -> bytes:
    return httpx.Request("POST", "https://x", json=value).content
