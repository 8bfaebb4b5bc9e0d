"""An upstream with `credentials: principal`: each principal has a connection of its own, and sees nothing of another one."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.domain.call_outcome import CallCompletion
from ringback.domain.clock import SystemClock
from ringback.domain.errors import QuotaExceeded, SignInRequired, Unavailable, UnknownTool
from ringback.domain.ports import Store
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import CredentialsScope
from ringback.domain.upstreams import Listing, UpstreamChange, UpstreamErrorResponse
from ringback.runner.drivers.selection import predict_driver_name
from ringback.upstreams.config import Isolation, UpstreamConfig
from ringback.upstreams.registry import UpstreamRegistry
from ringback.upstreams.subscriptions.resource_subscriptions import SUBSCRIPTIONS_PER_OWNER_MAX
from scripts.ports import free_port
from tests.support.engine import wait_until
from tests.support.examples import ALICE, BOB, CALL
from tests.support.library_upstream import ERAS
from tests.support.owned_upstream import OwnedUpstream, ScriptedTokenSources
from tests.support.proxies import list_when_connected, next_change
from tests.support.recording_call_context import RecordingCallContext
from tests.support.stores import open_test_store
from tests.support.upstreams import WAIT_SECONDS, make_http_config, open_bound_driver, serving, wait_until_true

UPSTREAM = "library"
OWNERS = (ALICE, BOB)


def make_owned_config(url: str, name: str = UPSTREAM) -> UpstreamConfig:
    return replace(make_http_config(url, name=name), credentials=CredentialsScope.PRINCIPAL)


@asynccontextmanager
async def open_owned(
    *configs: UpstreamConfig, store: Store | None = None, patience_seconds: float = WAIT_SECONDS
) -> AsyncGenerator[UpstreamRegistry]:
    async with UpstreamRegistry(
        configs,
        clock=SystemClock(),
        random_fraction=lambda: 0.5,
        predict_driver_name=predict_driver_name,
        connect_timeout_seconds=patience_seconds,
        store=store,
        token_sources=ScriptedTokenSources(),
    ) as upstreams:
        yield upstreams


@asynccontextmanager
async def serving_owned(era: str) -> AsyncGenerator[tuple[UpstreamRegistry, OwnedUpstream]]:
    worlds = OwnedUpstream(OWNERS)
    async with serving(worlds.app(era)) as server, open_owned(make_owned_config(server.url)) as upstreams:
        yield upstreams, worlds


async def wait_until_stored(store: Store, upstream: str, owner: Principal, part: str) -> None:
    async def is_stored() -> bool:
        parts = await store.read(lambda tx: tx.owned_catalog.list_parts(upstream, owner))
        return part in {each.part for each in parts}

    await wait_until(is_stored)


async def call_tool(upstreams: UpstreamRegistry, principal: Principal, tool: str) -> str:
    call = replace(CALL, principal=principal, upstream=UPSTREAM, tool=tool, arguments={})
    async with asyncio.timeout(WAIT_SECONDS), open_bound_driver(upstreams, call) as session:
        completion = await session.run_call(RecordingCallContext(call))
    assert isinstance(completion, CallCompletion)
    assert completion.result is not None
    return completion.result.decode()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("listing", [each for each in Listing if each is not Listing.EVENTS])
async def test_a_list_has_only_the_entries_of_its_principal(era: str, listing: Listing) -> None:
    async with serving_owned(era) as (upstreams, _):
        for principal, other in (OWNERS, OWNERS[::-1]):
            listed = str(await upstreams.proxy.list_entries(UPSTREAM, listing, principal=principal))

            assert principal in listed
            assert other not in listed


MakeParams = Callable[[str], Mapping[str, Any]]
PROXIED_REQUESTS: Final[list[tuple[str, MakeParams]]] = [
    ("resources/read", lambda owner: {"uri": f"book://{owner}"}),
    ("prompts/get", lambda owner: {"name": f"{owner}-prompt"}),
    (
        "completion/complete",
        lambda owner: {
            "ref": {"type": "ref/prompt", "name": f"{owner}-prompt"},
            "argument": {"name": "any", "value": ""},
        },
    ),
]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("method", "make_params"), PROXIED_REQUESTS)
async def test_a_request_is_answered_by_the_world_of_its_principal(
    era: str, method: str, make_params: MakeParams
) -> None:
    async with serving_owned(era) as (upstreams, _):
        for principal, other in (OWNERS, OWNERS[::-1]):
            params = make_params(principal)
            result = str(await upstreams.proxy.send_request(UPSTREAM, method, params, principal=principal))

            assert principal in result
            assert other not in result


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_runs_with_the_credentials_of_its_principal(era: str) -> None:
    async with serving_owned(era) as (upstreams, _):
        results = await asyncio.gather(*(call_tool(upstreams, each, f"{each}-tool") for each in OWNERS))

    assert ["a result of alice" in results[0], "a result of bob" in results[1]] == [True, True]
    assert ["bob" in results[0], "alice" in results[1]] == [False, False]


async def test_a_resource_of_another_principal_is_unknown() -> None:
    async with serving_owned("modern") as (upstreams, _):
        with pytest.raises(UpstreamErrorResponse) as error_info:
            await upstreams.proxy.send_request(UPSTREAM, "resources/read", {"uri": "book://bob"}, principal=ALICE)

    assert error_info.value.error["message"] == "alice has no such book."


async def test_a_tool_of_another_principal_is_refused_without_its_names_or_schema() -> None:
    async with serving_owned("modern") as (upstreams, _):
        catalog = upstreams.tool_catalog
        await catalog.check_call(UPSTREAM, "bob-tool", {}, principal=BOB, visible_upstreams=None)
        with pytest.raises(UnknownTool) as error_info:
            await catalog.check_call(UPSTREAM, "bob-tol", {}, principal=ALICE, visible_upstreams=None)

        assert "bob-tool" not in error_info.value.detail
        assert catalog.find_tool(UPSTREAM, "bob-tool", principal=ALICE) is None
        assert "bob-argument" in str(catalog.find_tool(UPSTREAM, "bob-tool", principal=BOB))


@pytest.mark.parametrize("era", ERAS)
async def test_changes_of_lists_and_resources_reach_only_their_principal(era: str) -> None:
    async with serving_owned(era) as (upstreams, worlds):
        proxy = upstreams.proxy
        with (
            proxy.subscribe_changes(UPSTREAM, principal=ALICE) as of_alice,
            proxy.subscribe_changes(None, principal=BOB) as of_bob,
            upstreams.change_notifications.subscribe_changes(principal=None) as of_all,
        ):
            async with (
                proxy.subscribe_resource(UPSTREAM, "book://alice", principal=ALICE),
                proxy.subscribe_resource(UPSTREAM, "book://bob", principal=BOB),
            ):
                await worlds["alice"].publish_resource_change("book://alice")
                await worlds["alice"].publish_list_changes()
                assert await next_change(of_alice) == UpstreamChange(upstream=UPSTREAM, uri="book://alice", owner=ALICE)
                while (await next_change(of_alice)).listing is not Listing.PROMPTS:
                    pass  # resources are reported first
                await worlds["bob"].publish_resource_change("book://bob")

                assert await next_change(of_bob) == UpstreamChange(upstream=UPSTREAM, uri="book://bob", owner=BOB)
                assert {change.owner for change in of_all.drain()} == {ALICE, BOB}


async def test_a_principal_watches_no_more_than_its_part_of_the_resources() -> None:
    async with serving_owned("modern") as (upstreams, worlds), AsyncExitStack() as stack:
        worlds["alice"].books = [f"book://{number}" for number in range(SUBSCRIPTIONS_PER_OWNER_MAX + 1)]
        subscriptions = [
            upstreams.proxy.subscribe_resource(UPSTREAM, uri, principal=ALICE) for uri in worlds["alice"].books
        ]
        *accepted, refused = subscriptions
        await asyncio.gather(*(stack.enter_async_context(each) for each in accepted))

        with pytest.raises(QuotaExceeded, match="subscriptions of yours"):
            await refused.__aenter__()
        async with upstreams.proxy.subscribe_resource(UPSTREAM, "book://bob", principal=BOB):
            pass


async def test_stored_lists_are_there_after_a_restart_for_their_principal_only(tmp_path: Path) -> None:
    port = free_port()
    config = make_owned_config(f"http://127.0.0.1:{port}/mcp")
    async with open_test_store(tmp_path, SystemClock()) as store:
        async with (
            serving(OwnedUpstream(OWNERS).app("modern"), port=port),
            open_owned(config, store=store) as upstreams,
        ):
            before = await list_when_connected(upstreams.proxy, UPSTREAM, Listing.TOOLS, principal=ALICE)
            await wait_until_stored(store, UPSTREAM, ALICE, Listing.TOOLS)

        async with open_owned(config, store=store, patience_seconds=0.1) as upstreams:
            assert await list_when_connected(upstreams.proxy, UPSTREAM, Listing.TOOLS, principal=ALICE) == before
            with pytest.raises(Unavailable):
                await upstreams.proxy.list_entries(UPSTREAM, Listing.TOOLS, principal=BOB)


async def test_a_principal_without_a_token_is_refused_and_the_others_go_on() -> None:
    async with serving_owned("modern") as (upstreams, worlds):
        for _ in range(3):
            with pytest.raises((SignInRequired, Unavailable)):
                await upstreams.tool_catalog.list_tools(UPSTREAM, principal=Principal("mallory"))

        assert "alice" in await call_tool(upstreams, ALICE, "alice-tool")
        assert {info.connections for info in upstreams.tool_catalog.list_upstreams()} == {1}
        assert worlds.refused_count > 0
        assert worlds["bob"].request_count == 0


async def test_a_reload_closes_the_connections_of_all_principals_after_their_calls() -> None:
    async with serving_owned("modern") as (upstreams, worlds):
        worlds["alice"].is_holding = True
        running = asyncio.create_task(call_tool(upstreams, ALICE, "alice-tool"))
        await wait_until_true(lambda: upstreams.tool_catalog.list_upstreams(ALICE)[0].calls_in_flight == 1)
        (config,) = upstreams.get_configs()
        upstreams.reconfigure([replace(config, max_concurrent=2)])

        assert [upstreams.tool_catalog.list_upstreams(each)[0].calls_in_flight for each in (ALICE, BOB, None)] == [
            1,
            0,
            1,
        ]
        worlds["alice"].is_holding = False
        assert "alice" in await call_tool(upstreams, ALICE, "alice-tool")
        worlds["alice"].released.set()
        assert "a result of alice" in await running
        await wait_until_true(lambda: upstreams.tool_catalog.list_upstreams(ALICE)[0].calls_in_flight == 0)
        assert upstreams.get_capacity() == {UPSTREAM: 2}


@pytest.mark.parametrize("isolation", list(Isolation))
@pytest.mark.parametrize("era", ERAS)
async def test_calls_are_isolated_within_the_connection_of_their_principal(era: str, isolation: Isolation) -> None:
    worlds = OwnedUpstream(OWNERS)
    async with serving(worlds.app(era)) as server:
        config = replace(make_owned_config(server.url), isolation=isolation)
        async with open_owned(config) as upstreams:
            results = await asyncio.gather(*(call_tool(upstreams, each, f"{each}-tool") for each in OWNERS * 2))

    assert [f"a result of {owner}" in result for owner, result in zip(OWNERS * 2, results, strict=True)] == [True] * 4


async def test_its_events_are_not_offered_because_one_following_serves_all_principals() -> None:
    async with serving_owned("modern") as (upstreams, _):
        await upstreams.proxy.list_entries(UPSTREAM, Listing.TOOLS, principal=ALICE)
        await upstreams.event_catalog.refresh_event_types(None)

        assert upstreams.event_catalog.list_event_types(None) == []


async def test_while_all_places_are_taken_calls_wait_and_other_requests_say_that_the_upstream_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving_owned("modern") as (upstreams, worlds):
        monkeypatch.setattr(upstreams.connections.owned[UPSTREAM], "_connections_max", 1)
        worlds["alice"].is_holding = True
        running = asyncio.create_task(call_tool(upstreams, ALICE, "alice-tool"))
        await wait_until_true(lambda: upstreams.tool_catalog.list_upstreams(ALICE)[0].calls_in_flight == 1)
        waiting = asyncio.create_task(call_tool(upstreams, BOB, "bob-tool"))

        assert await upstreams.proxy.get_profile(UPSTREAM, principal=BOB) is None
        with pytest.raises(Unavailable):
            await upstreams.proxy.list_entries(UPSTREAM, Listing.TOOLS, principal=BOB)
        with pytest.raises(Unavailable):
            await upstreams.tool_catalog.list_tools(UPSTREAM, principal=BOB)
        await upstreams.tool_catalog.check_call(UPSTREAM, "any", {}, principal=BOB, visible_upstreams=None)
        assert not waiting.done()
        worlds["alice"].released.set()

        assert "a result of alice" in await running
        assert "a result of bob" in await waiting
