"""One key's calls that never end leave places of their upstream to the calls of others, through the whole service."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import pytest

from ringback.bootstrap import workers
from ringback.client import CallOptions, RingbackClient
from ringback.domain.principal import ALL_SCOPES, DEFAULT_SCOPES, Scope
from ringback.runner.leasing import RunnerConfig
from ringback.runner.runner import Runner
from tests.support.api_server import serving_api
from tests.support.application import RunningApplication, running_application, wait_until_ended
from tests.support.databases import query_rows
from tests.support.engine import wait_until
from tests.support.mcp_wire import ModernClient, legacy_session
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream, make_http_config, make_raw_config, serving

pytestmark = [pytest.mark.requirement("R11"), pytest.mark.usefixtures("never_polling")]

PLACES: Final = 4
SHARE: Final = 3
"""The largest number of places that one principal has."""
ENDLESS: Final[CallOptions] = {"upstream": "stage", "tool": "hold", "arguments": {"text": "endless"}}

SHORT: Final[CallOptions] = {"upstream": "stage", "tool": "echo", "arguments": {"text": "short"}}


@pytest.fixture
def never_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call for which there is a place begins because of a notification, or not at all."""
    monkeypatch.setattr(workers, "RunnerConfig", partial(RunnerConfig, poll_seconds=3600.0))


async def wait_until_known(ringback: RunningApplication, *, are_several: bool) -> None:
    """Until the runner has read whether several principals have keys."""
    workers_of_node = ringback.app.supervisor._workers  # pyright: ignore[reportPrivateUsage] - calls only show it later
    (runner,) = (each for each in workers_of_node if isinstance(each, Runner))
    permits = runner._leasing.permits  # pyright: ignore[reportPrivateUsage]

    async def is_known() -> bool:
        return permits.has_several_principals == are_several

    await wait_until(is_known)


async def create_two_clients(ringback: RunningApplication) -> tuple[RingbackClient, RingbackClient]:
    """The clients of the keys of two principals, once the runner knows both."""
    alice = await ringback.create_agent_client("alice")
    await wait_until_known(ringback, are_several=False)
    bob = await ringback.create_agent_client("bob")
    await wait_until_known(ringback, are_several=True)
    return alice, bob


@asynccontextmanager
async def running_with_places(
    folder: Path, stage: ControlledUpstream
) -> AsyncGenerator[tuple[RunningApplication, RingbackClient]]:
    """A service whose upstream has few places, with the keys of two principals.

    The client is of one of them, which has fifty calls of which none ends.
    """
    async with (
        serving(stage.app()) as server,
        running_application(folder, replace(make_http_config(server.url), max_concurrent=PLACES)) as ringback,
    ):
        alice, _ = await create_two_clients(ringback)
        for _ in range(20):
            await alice.start_call("stage", "hold", {"text": "endless"})
        await alice.start_calls([ENDLESS] * 30)
        await asyncio.wait_for(stage.wait_until_held(SHARE), WAIT_SECONDS)
        yield ringback, alice


async def test_another_keys_calls_end_at_once_beside_fifty_calls_that_never_end(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with running_with_places(tmp_path, stage) as (ringback, _):
        bob = await ringback.create_agent_client("bob")
        alone = [(await bob.start_call("stage", "echo", {"text": "bob"}, wait_seconds=30)).call for _ in range(5)]
        batch = await bob.start_calls([SHORT] * 5)
        ended = [await wait_until_ended(bob, each.call) for each in batch]

        assert {call.outcome for call in (*alone, *ended)} == {"result"}
        assert stage.held_count == SHARE


async def test_another_keys_mcp_clients_get_their_results_at_once(tmp_path: Path) -> None:
    stage, echo = ControlledUpstream(), {"name": "echo", "arguments": {"text": "bob"}}
    async with running_with_places(tmp_path, stage) as (ringback, _), httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        _, key = await ringback.app.services.api_keys.create_key(
            "bob", name="test", scopes=DEFAULT_SCOPES, upstreams=None
        )
        async with (
            serving_api(ringback.app.api) as url,
            legacy_session(http, f"{url}/mcp/stage", key=key) as session,
        ):
            results = [
                await ModernClient(http, f"{url}/mcp/stage", key).request("tools/call", echo),
                await session.request("tools/call", echo),
            ]

    assert [json.loads(result["content"][0]["text"]) for result in results] == [{"text": "bob"}] * 2


async def test_each_call_that_is_cancelled_makes_room_for_the_next_of_its_key(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with running_with_places(tmp_path, stage) as (_, alice):
        calls = sorted([each.id async for each in alice.calls()])
        for begun, call_id in enumerate(calls[: 2 * SHARE], start=SHARE + 1):
            await alice.cancel(call_id)

            async def has_begun(count: int = begun) -> bool:
                return len(stage.calls) == count

            await wait_until(has_begun)
            await asyncio.wait_for(stage.wait_until_held(SHARE), WAIT_SECONDS)

        assert stage.held_count == SHARE


async def test_another_keys_call_ends_at_once_on_a_stdio_server_whose_calls_never_end(tmp_path: Path) -> None:
    raw = replace(make_raw_config(), max_concurrent=PLACES)
    async with running_application(tmp_path, raw) as ringback:
        alice, bob = await create_two_clients(ringback)
        await alice.start_calls([ENDLESS] * 50)

        async def has_share() -> bool:
            running = "SELECT count(*) FROM calls WHERE phase = 'running' AND principal = ?"
            return query_rows(tmp_path, running, "alice") == [(SHARE,)]

        await wait_until(has_share)
        call = (await bob.start_call("stage", "whoami", {}, wait_seconds=30)).call

        assert call.outcome == "result"
        assert await has_share()


async def test_the_only_key_has_both_places_of_an_upstream_until_another_principal_gets_a_key(tmp_path: Path) -> None:
    """It had one of two, although nobody else could start a call."""
    stage = ControlledUpstream()
    async with (
        serving(stage.app()) as server,
        running_application(tmp_path, replace(make_http_config(server.url), max_concurrent=2)) as ringback,
    ):
        alice = await ringback.create_agent_client("alice")
        first, second = [started.call for started in await alice.start_calls([ENDLESS] * 2)]
        await asyncio.wait_for(stage.wait_until_held(2), WAIT_SECONDS)
        (third,) = [started.call for started in await alice.start_calls([ENDLESS])]

        bob = await ringback.create_agent_client("bob")
        await wait_until_known(ringback, are_several=True)
        waiting = (await bob.start_call("stage", "echo", {"text": "short"})).call
        await alice.cancel(first.id)
        assert (await wait_until_ended(bob, waiting)).outcome == "result"
        assert (await alice.call(third.id)).dispatched_at is None

        await alice.cancel(second.id)

        async def has_begun() -> bool:
            return (await alice.call(third.id)).dispatched_at is not None

        await wait_until(has_begun)


async def test_the_keys_of_one_principal_share_all_places_of_an_upstream(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with (
        serving(stage.app()) as server,
        running_application(tmp_path, replace(make_http_config(server.url), max_concurrent=2)) as ringback,
    ):
        for scopes in (DEFAULT_SCOPES, ALL_SCOPES):
            client = await ringback.create_agent_client("alice", scopes=scopes)
            await client.start_calls([ENDLESS])
        await ringback.create_agent_client("prometheus", scopes=frozenset({Scope.METRICS}))

        await asyncio.wait_for(stage.wait_until_held(2), WAIT_SECONDS)
