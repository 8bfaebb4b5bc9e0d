"""How logins to upstreams end: signed out, replaced, erased, expired. Their traces hold no secret."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.login_waits import NO_TOKENS_VERSION
from ringback.domain.ports import Transaction
from ringback.domain.principal import Scope
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.services import erasures
from tests.support import login_flow
from tests.support.builders import make_call
from tests.support.examples import ALICE
from tests.support.login_flow import ACCESS_TOKEN, CODE
from tests.support.rest_logins import (
    build_redirect,
    complete_login,
    note_required_scope,
    read_login_state,
    read_stored_tokens,
    running_login_service,
    start_login,
)
from tests.support.service import CALL_BODY, ServiceUnderTest


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    async with running_login_service(tmp_path) as running:
        yield running


@pytest.fixture
async def operator(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))


async def test_signing_out_deletes_and_revokes_the_callers_tokens_only(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    for client in (alice, bob):
        await complete_login(client, build_redirect(await start_login(client)))

    answers = [await alice.delete("/v1/upstreams/mine/login") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [204, 204]
    assert await read_stored_tokens(service, "mine", "alice") is None
    assert await read_stored_tokens(service, "mine", "bob") is not None
    assert [tokens.owner for tokens in service.login_flow.revoked] == ["alice"]


async def test_a_second_login_replaces_the_tokens_and_outdates_a_refresh_that_is_on_its_way(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await complete_login(alice, build_redirect(await start_login(alice, scope="read")))
    first = await read_stored_tokens(service, "mine", "alice")
    assert first is not None
    await alice.delete("/v1/upstreams/mine/login")
    service.clock.advance(1)
    await complete_login(alice, build_redirect(await start_login(alice, scope="write")))
    second = await read_stored_tokens(service, "mine", "alice")

    assert second is not None
    assert (second.scope, second.version > first.version) == ("write", True)
    assert not await service.store.write(lambda tx: tx.upstream_tokens.save(first, expected_version=first.version))


async def test_a_second_login_revokes_the_grant_of_another_client_and_no_grant_of_its_own(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    for client_id in ("first", "second", "second"):
        service.login_flow.client_id = client_id
        await complete_login(alice, build_redirect(await start_login(alice)))
    await service.login_flow.revocation_began.wait()

    assert [tokens.client.client_id for tokens in service.login_flow.revoked] == ["first"]


async def test_the_erasure_of_a_principal_revokes_its_logins_and_no_others(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    for client in (alice, bob):
        await complete_login(client, build_redirect(await start_login(client)))
    erased = await operator.delete("/v1/principals/alice")
    await service.login_flow.revocation_began.wait()

    assert erased.status_code == 200
    assert [tokens.owner for tokens in service.login_flow.revoked] == ["alice"]


async def test_an_erasure_revokes_logins_also_if_the_store_fails_after_it_has_deleted_them(
    service: ServiceUnderTest, alice: httpx.AsyncClient, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable("The disk is full.")

    await complete_login(alice, build_redirect(await start_login(alice)))
    monkeypatch.setattr(erasures, "erase_batch", fail)
    failed = await operator.delete("/v1/principals/alice")

    assert failed.status_code == 503
    assert await read_stored_tokens(service, "mine", "alice") is None
    async with asyncio.timeout(5):
        await service.login_flow.revocation_began.wait()


async def test_an_erasure_that_waits_for_a_call_leaves_a_login_that_came_after_it(
    service: ServiceUnderTest, alice: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    """The call may wait for days, and the principal goes on meanwhile with a new key."""
    await complete_login(alice, build_redirect(await start_login(alice)))
    started = await alice.post("/v1/calls", json=CALL_BODY)
    await service.mark_dispatched(started.json()["call"]["id"])
    erasing = await operator.delete("/v1/principals/alice?cancel=true")
    service.clock.advance(60)
    again = await service.create_client("alice")
    await complete_login(again, build_redirect(await start_login(again)))
    await service.run_janitor()

    assert erasing.json()["state"] == "waiting"
    assert (await read_login_state(again, "mine"))["state"] == "signed_in"
    repeated = await operator.delete("/v1/principals/alice?cancel=true")
    assert repeated.json()["id"] != erasing.json()["id"]
    assert await read_stored_tokens(service, "mine", "alice") is None


async def test_a_login_asks_for_the_scope_that_the_upstream_asked_for_last(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await complete_login(alice, build_redirect(await start_login(alice, scope="read")))
    await note_required_scope(service, "read write")
    state = await read_login_state(alice, "mine")
    started = await start_login(alice)
    await complete_login(alice, build_redirect(started))

    assert state["state"] == "required"
    assert started["scope"] == "read write"
    assert (await read_login_state(alice, "mine"))["state"] == "signed_in"


async def test_tokens_that_cannot_be_refreshed_are_shown_as_expired(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    service.login_flow.refresh_token = None
    await complete_login(alice, build_redirect(await start_login(alice)))
    service.clock.advance(3600)

    assert (await read_login_state(alice, "mine"))["state"] == "expired"


async def test_the_audit_log_says_who_signed_in_and_out(
    alice: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ringback.audit")
    await complete_login(alice, build_redirect(await start_login(alice)))
    await complete_login(alice, build_redirect(await start_login(alice), error="access_denied"))
    await alice.delete("/v1/upstreams/mine/login")

    said = [record.__dict__ for record in caplog.records if record.name == "ringback.audit"]
    assert [each["msg"] for each in said] == [
        "audit.login_started",
        "audit.login_completed",
        "audit.login_started",
        "audit.login_failed",
        "audit.login_ended",
    ]
    assert {(each["principal"], each["upstream"]) for each in said} == {("alice", "mine")}


async def test_only_a_login_that_there_was_ends_in_the_audit_log(
    alice: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ringback.audit")
    await complete_login(alice, build_redirect(await start_login(alice)))
    answers = [await alice.delete("/v1/upstreams/mine/login") for _ in range(2)]

    entries = (await alice.get("/v1/audit")).json()["entries"]
    assert {answer.status_code for answer in answers} == {204}
    assert [each["operation"] for each in entries if "login" in each["operation"]] == ["end_login", "complete_login"]
    assert [record.msg for record in caplog.records].count("audit.login_ended") == 1


async def test_no_secret_of_a_login_is_in_logs_errors_or_the_database(
    service: ServiceUnderTest, alice: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    started = await start_login(alice)
    open_login = b"".join(path.read_bytes() for path in service.folder.rglob("*") if path.is_file())
    texts = [(await complete_login(alice, build_redirect(started, iss="https://evil.example"))).text]
    texts.append((await complete_login(alice, build_redirect(await start_login(alice)))).text)
    texts.append((await alice.get("/v1/upstreams")).text)
    texts.extend(str(record.__dict__) for record in caplog.records)
    tokens = await read_stored_tokens(service, "mine", "alice")
    texts.append(repr(tokens))
    completed = b"".join(path.read_bytes() for path in service.folder.rglob("*") if path.is_file())

    secrets = (
        CODE,
        login_flow.VERIFIER,
        login_flow.REFRESH_TOKEN,
        login_flow.CLIENT_SECRET,
        ACCESS_TOKEN,
        "canary-state",
    )
    assert tokens is not None
    assert [each for each in secrets if each in "".join(texts)] == []
    assert [each for each in secrets if each.encode() in open_login + completed] == []


async def test_a_reload_resumes_calls_that_wait_for_logins_that_are_not_used_any_more(
    service: ServiceUnderTest, operator: httpx.AsyncClient
) -> None:
    waits = [("ours", ALICE), ("mine", ALICE), ("ours", SHARED_OWNER), ("git", SHARED_OWNER), ("mine", SHARED_OWNER)]

    async def add(tx: Transaction) -> None:
        for upstream, owner in waits:
            call = make_call(upstream=upstream)
            await tx.calls.insert(call)
            await tx.login_waits.add(call.id, upstream, owner, tokens_version=NO_TOKENS_VERSION)

    async def take_resumption(tx: Transaction) -> tuple[str, str] | None:
        if (found := await tx.login_waits.find_next_resumption()) is None:
            return None
        await tx.login_waits.remove_resumption(found)
        return found.upstream, found.owner

    await service.store.write(add)
    assert (await operator.post("/v1/upstreams/reload")).status_code == 200
    resumed = {await service.store.write(take_resumption) for _ in waits}
    assert resumed == {("ours", ALICE), ("mine", SHARED_OWNER), ("git", SHARED_OWNER), None}
