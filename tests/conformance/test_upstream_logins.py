"""Logins to upstreams, their tokens, and registered OAuth clients in the store."""

import os
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from ringback.domain.encryption import SealedColumn
from ringback.domain.ids import KeyId, LoginId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import (
    SHARED_OWNER,
    AuthorizationRequest,
    OAuthClient,
    RegisteredClient,
    UpstreamLogin,
    UpstreamTokens,
)
from ringback.resealing import count_sealed_by_key
from ringback.services.logins.login_tokens import get_readable_tokens
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer
from ringback.storage.open import open_store
from ringback.storage.rows import upstream_logins
from tests.support.builders import make_identity_erasure
from tests.support.clock import START, FakeClock
from tests.support.databases import database_url
from tests.support.examples import ALICE, BOB

CLIENT = OAuthClient(client_id="ringback", client_secret="s3cret", auth_method="client_secret_basic")
REQUEST = AuthorizationRequest(
    issuer="https://login.example",
    token_endpoint="https://login.example/token",
    client=CLIENT,
    redirect_uri="http://127.0.0.1:1234/callback",
    code_verifier="verifier",
    resource="https://mcp.example/mcp",
    scope="read é",
    requires_issuer=True,
)
EXPIRY = START + timedelta(minutes=10)


def make_login(number: int = 1, **over: object) -> UpstreamLogin:
    login = UpstreamLogin(
        id=LoginId(f"login_{number:026}"),
        state_hash=f"{number:064x}",
        upstream="git",
        owner=SHARED_OWNER,
        principal=ALICE,
        key_id=KeyId("key_1"),
        request=REQUEST,
        created_at=START,
        expires_at=EXPIRY,
    )
    return replace(login, **over)


def make_tokens(**over: object) -> UpstreamTokens:
    tokens = UpstreamTokens(
        upstream="git",
        owner=ALICE,
        version=1,
        issuer="https://login.example",
        token_endpoint="https://login.example/token",
        client=CLIENT,
        resource="https://mcp.example/mcp",
        scope="read",
        access_token="access",
        refresh_token=None,
        obtained_at=START,
        expires_at=None,
        logged_in_by=ALICE,
    )
    return replace(tokens, **over)


async def add(store: Store, *logins: UpstreamLogin) -> None:
    for login in logins:
        await store.write(lambda tx, each=login: tx.upstream_logins.add(each))


async def save(store: Store, tokens: UpstreamTokens, *, expected_version: int | None = None) -> bool:
    return await store.write(lambda tx: tx.upstream_tokens.save(tokens, expected_version=expected_version))


async def get(store: Store, upstream: str = "git", owner: Principal = ALICE) -> UpstreamTokens | None:
    return await store.read(lambda tx: get_readable_tokens(tx, upstream, owner))


async def test_a_login_is_found_by_its_id_and_by_the_hash_of_its_state_until_it_expires(store: Store) -> None:
    login = make_login()
    await add(store, login, make_login(2))

    for now, expected in ((EXPIRY - timedelta(milliseconds=1), login), (EXPIRY, None)):
        by_id = await store.write(lambda tx, now=now: tx.upstream_logins.get(login.id, now=now))
        by_state = await store.write(lambda tx, now=now: tx.upstream_logins.find_by_state(login.state_hash, now=now))
        assert by_id == by_state == expected


async def test_a_login_is_deleted_once(store: Store) -> None:
    login = make_login()
    await add(store, login)

    assert await store.write(lambda tx: tx.upstream_logins.delete(login.id))
    assert not await store.write(lambda tx: tx.upstream_logins.delete(login.id))
    assert await store.read(lambda tx: tx.upstream_logins.get(login.id, now=START)) is None


async def test_the_open_logins_of_a_principal_are_counted_up_to_a_limit(store: Store) -> None:
    await add(store, *(make_login(number) for number in range(3)), make_login(7, principal=BOB))

    async def count(*, limit: int = 10, now: object = START) -> int:
        return await store.read(lambda tx: tx.upstream_logins.count(ALICE, now=now, limit=limit))  # pyright: ignore[reportArgumentType]

    assert (await count(), await count(limit=2), await count(now=EXPIRY)) == (3, 2, 0)


async def test_expired_logins_are_removed_in_batches(store: Store) -> None:
    await add(
        store, *(make_login(number) for number in range(3)), make_login(7, expires_at=EXPIRY + timedelta(hours=1))
    )

    removed = [await store.write(lambda tx: tx.upstream_logins.remove_expired(now=EXPIRY, limit=2)) for _ in range(3)]

    assert removed == [2, 1, 0]


@pytest.mark.parametrize(
    "tokens",
    [
        make_tokens(),
        make_tokens(owner=SHARED_OWNER, refresh_token="r", expires_at=EXPIRY, required_scope="write", scope=None),
        make_tokens(access_token=None, client=OAuthClient(client_id="public")),
        make_tokens(login_id=LoginId("login_1")),
    ],
)
async def test_tokens_are_read_back_as_they_were_saved(store: Store, tokens: UpstreamTokens) -> None:
    assert await save(store, tokens)

    assert await get(store, owner=tokens.owner) == tokens


async def test_tokens_are_replaced_only_if_the_stored_version_is_the_expected_one(store: Store) -> None:
    assert await save(store, make_tokens())

    assert not await save(store, make_tokens(access_token="other"))
    assert not await save(store, make_tokens(version=3, access_token="stale"), expected_version=2)
    assert await save(store, make_tokens(version=2, access_token="second"), expected_version=1)
    assert not await save(store, make_tokens(version=2, access_token="lost"), expected_version=1)
    assert await get(store) == make_tokens(version=2, access_token="second")


async def test_tokens_that_do_not_exist_are_not_replaced(store: Store) -> None:
    assert not await save(store, make_tokens(), expected_version=1)
    assert await get(store) is None


async def test_the_tokens_of_one_owner_are_no_tokens_of_another_owner_or_upstream(store: Store) -> None:
    await save(store, make_tokens(owner=Principal("a/b")))

    assert await get(store, "git", Principal("a")) is None
    assert await get(store, "git", SHARED_OWNER) is None


async def test_tokens_are_listed_for_upstreams_and_owners(store: Store) -> None:
    shared, own = make_tokens(owner=SHARED_OWNER), make_tokens(upstream="db")
    for each in (shared, own, make_tokens(owner=BOB), make_tokens(upstream="other")):
        await save(store, each)

    found = await store.read(lambda tx: tx.upstream_tokens.list_owned(["git", "db"], [SHARED_OWNER, ALICE]))

    assert sorted(found, key=lambda each: each.owner) == [shared, own]
    assert await store.read(lambda tx: tx.upstream_tokens.list_owned([], [ALICE])) == []


async def test_tokens_are_deleted_alone_and_the_others_of_their_owner_are_listed(store: Store) -> None:
    for each in (make_tokens(), make_tokens(upstream="db"), make_tokens(owner=BOB), make_tokens(upstream="x")):
        await save(store, each)

    assert await store.write(lambda tx: tx.upstream_tokens.delete("x", ALICE))
    assert not await store.write(lambda tx: tx.upstream_tokens.delete("x", ALICE))
    listed = await store.read(lambda tx: tx.upstream_tokens.list_all_owned(ALICE, limit=9))
    assert {(tokens.upstream, tokens.owner) for tokens in listed} == {("git", ALICE), ("db", ALICE)}
    assert len(await store.read(lambda tx: tx.upstream_tokens.list_all_owned(ALICE, limit=1))) == 1


async def test_a_registered_client_is_read_until_it_expires_and_is_replaced(store: Store) -> None:
    client = RegisteredClient(
        issuer="https://login.example",
        redirect_uri="https://us.example",
        client=CLIENT,
        created_at=START,
        expires_at=EXPIRY,
    )
    other = replace(client, client=OAuthClient(client_id="other"), expires_at=None)

    async def find(now: object = START, redirect_uri: str = "https://us.example") -> RegisteredClient | None:
        return await store.read(lambda tx: tx.oauth_clients.get(client.issuer, redirect_uri, now=now))  # pyright: ignore[reportArgumentType]

    await store.write(lambda tx: tx.oauth_clients.save(client))
    assert (await find(), await find(EXPIRY), await find(redirect_uri="https://b.example")) == (client, None, None)

    await store.write(lambda tx: tx.oauth_clients.save(other))
    assert await find(EXPIRY) == other


async def test_the_oldest_clients_make_room_for_new_ones(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_logins, "CLIENTS_MAX", 2)
    for number in range(4):
        client = RegisteredClient(
            issuer=f"https://{number}.example",
            redirect_uri="r",
            client=CLIENT,
            created_at=START + timedelta(seconds=number),
            expires_at=None,
        )
        await store.write(lambda tx, each=client: tx.oauth_clients.save(each))

    kept = [
        await store.read(lambda tx, each=number: tx.oauth_clients.get(f"https://{each}.example", "r", now=START))
        for number in range(4)
    ]

    assert [client is not None for client in kept] == [False, False, True, True]


async def test_everything_secret_gets_the_newest_key_and_stays_readable(tmp_path: Path, clock: FakeClock) -> None:
    login, tokens = make_login(), make_tokens()
    client = RegisteredClient(issuer="i", redirect_uri="r", client=CLIENT, created_at=START, expires_at=None)
    old, new = {"old": b"o" * KEY_BYTES}, {"new": b"n" * KEY_BYTES}

    async def insert(tx: Transaction) -> None:
        await tx.upstream_logins.add(login)
        await tx.upstream_tokens.save(tokens, expected_version=None)
        await tx.oauth_clients.save(client)

    async def reseal(tx: Transaction) -> list[int]:
        columns = (SealedColumn.LOGINS, SealedColumn.TOKENS, SealedColumn.CLIENTS)
        return [(await tx.sealed_values.reseal(column, after="", limit=10)).resealed for column in columns]

    async def read(tx: Transaction) -> tuple[object, ...]:
        return (
            await tx.upstream_logins.get(login.id, now=START),
            await tx.upstream_tokens.get("git", ALICE),
            await tx.oauth_clients.get("i", "r", now=START),
        )

    async with open_with_keys(tmp_path, clock, old, "old") as store:
        await store.write(insert)
    async with open_with_keys(tmp_path, clock, {**new, **old}, "new") as store:
        assert await store.write(reseal) == [1, 1, 1]
        assert await count_sealed_by_key(store) == {"new": 1}
    async with open_with_keys(tmp_path, clock, new, "new") as store:
        assert await store.read(read) == (login, tokens, client)
    async with open_with_keys(tmp_path, clock, old, "old") as store:
        assert await store.read(read) == (None, None, None)


def open_with_keys(
    folder: Path, clock: FakeClock, keys: dict[str, bytes], current: str
) -> AbstractAsyncContextManager[Store]:
    sealer = AesGcmSealer(keys, current=current, random_bytes=os.urandom)
    return open_store(database_url(folder), clock=clock, sealer=sealer, exclusive=True)


async def test_a_client_is_forgotten_only_if_it_is_the_stored_one(store: Store) -> None:
    client = RegisteredClient(issuer="i", redirect_uri="r", client=CLIENT, created_at=START, expires_at=None)
    await store.write(lambda tx: tx.oauth_clients.save(client))

    assert not await store.write(lambda tx: tx.oauth_clients.delete("i", "r", "another"))
    assert await store.write(lambda tx: tx.oauth_clients.delete("i", "r", CLIENT.client_id))
    assert not await store.write(lambda tx: tx.oauth_clients.delete("i", "r", CLIENT.client_id))


async def test_principals_with_tokens_for_an_upstream_are_counted_up_to_a_limit(store: Store) -> None:
    owners = [SHARED_OWNER, ALICE, BOB, Principal("carol/git")]
    for each in [make_tokens(owner=owner) for owner in owners] + [
        make_tokens(upstream="git-2"),
        make_tokens(upstream="gi"),
    ]:
        await save(store, each)

    assert await store.read(lambda tx: tx.upstream_tokens.count_owners("git", limit=10)) == 3
    assert await store.read(lambda tx: tx.upstream_tokens.count_owners("git", limit=2)) == 2
    assert await store.read(lambda tx: tx.upstream_tokens.count_owners("none", limit=2)) == 0


async def test_an_erased_principal_has_no_logins_and_no_tokens_and_shared_tokens_forget_it(store: Store) -> None:
    await add(store, make_login(), make_login(2, principal=BOB))
    for each in (make_tokens(), make_tokens(owner=BOB, logged_in_by=BOB), make_tokens(owner=SHARED_OWNER)):
        await save(store, each)
    erasure = make_identity_erasure(ALICE)

    assert await store.write(lambda tx: tx.erased_deliveries.delete_identity(erasure, limit=10)) == 1
    assert await store.write(lambda tx: tx.erased_deliveries.delete_identity(erasure, limit=10)) == 0

    assert await get(store) is None
    assert await get(store, owner=BOB) is not None
    assert await get(store, owner=SHARED_OWNER) == make_tokens(owner=SHARED_OWNER, logged_in_by=Principal(""))
    assert await store.read(lambda tx: tx.upstream_logins.get(make_login().id, now=START)) is None
    assert await store.read(lambda tx: tx.upstream_logins.get(make_login(2).id, now=START)) is not None
