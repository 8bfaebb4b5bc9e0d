"""The configuration is reloaded while calls run: no call is lost, and none starts on a replaced connection."""

import asyncio
import json
import logging
import os
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.errors import InvalidConfiguration, Unavailable
from ringback.domain.upstreams import Reloaded, SkippedUpstream, SkipReason, UpstreamChange
from ringback.upstreams.catalog import tool_catalog as catalog_module
from ringback.upstreams.config import ConfigError, UpstreamConfig
from ringback.upstreams.errors import UpstreamNotConfigured
from ringback.upstreams.registry import UpstreamRegistry, UpstreamReloader
from tests.support.examples import ALICE, CALL
from tests.support.library_upstream import BOOK_URI, ERAS, UPSTREAM_NAME, LibraryUpstream
from tests.support.upstreams import (
    STDIO_SERVER,
    WAIT_SECONDS,
    ControlledUpstream,
    OverriddenResponses,
    Send,
    make_app_of_era,
    make_http_config,
    make_legacy_app,
    make_python_config,
    open_upstreams,
    run_upstream_call,
    send_result,
    serving,
)

CHILD = make_python_config(str(STDIO_SERVER), name="child")
UNREACHABLE_CONFIG = make_http_config("http://127.0.0.1:1/mcp", name="away")


class ClosedConnectionHandler(logging.Handler):
    """Waits for the log event of a closed connection, which is the only sign of it."""

    def __init__(self) -> None:
        super().__init__()
        self._heard = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "upstream.closed":
            self._heard.set()

    async def wait_for_close(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await self._heard.wait()


@pytest.fixture
def closed() -> Generator[ClosedConnectionHandler]:
    handler, logger = ClosedConnectionHandler(), logging.getLogger("ringback.upstreams.connection_tasks")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


async def get_pid(upstreams: UpstreamRegistry) -> int:
    ending = await run_upstream_call(upstreams, "whoami", upstream="child")
    assert ending.result is not None
    return json.loads(json.loads(ending.result)["content"][0]["text"])["pid"]


async def running(stage: ControlledUpstream, upstreams: UpstreamRegistry) -> asyncio.Task[CallCompletion]:
    call = asyncio.create_task(run_upstream_call(upstreams, "hold"))
    async with asyncio.timeout(WAIT_SECONDS):
        await stage.wait_until_held(1)
    return call


@pytest.mark.requirement("R28")
async def test_an_unchanged_configuration_keeps_its_connection() -> None:
    stage = ControlledUpstream()
    async with serving(stage.app()) as server, open_upstreams(make_http_config(server.url), CHILD) as upstreams:
        pid = await get_pid(upstreams)
        call = await running(stage, upstreams)

        same = replace(CHILD, args=(*CHILD.args,), env=dict(CHILD.env))
        assert upstreams.reconfigure([make_http_config(server.url), same, UNREACHABLE_CONFIG]) == Reloaded(
            added=["away"], changed=[], removed=[], unchanged=["child", "stage"]
        )

        assert await get_pid(upstreams) == pid
        stage.release.set()
        assert (await call).outcome is CallOutcome.RESULT
        assert [info.name for info in upstreams.tool_catalog.list_upstreams()] == ["stage", "child", "away"]


@pytest.mark.requirement("R28")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_running_call_ends_on_the_old_connection_and_new_ones_go_over_the_new(
    era: str, closed: ClosedConnectionHandler
) -> None:
    old, new = ControlledUpstream(), ControlledUpstream()
    async with (
        serving(make_app_of_era(old.app(), era)) as before,
        serving(make_app_of_era(new.app(), era)) as after,
        open_upstreams(make_http_config(before.url)) as upstreams,
    ):
        call = await running(old, upstreams)
        assert upstreams.reconfigure([make_http_config(after.url)]).changed == ["stage"]

        assert (await run_upstream_call(upstreams, "echo", {"n": 1})).outcome is CallOutcome.RESULT
        assert [call.arguments for call in new.calls] == [{"n": 1}]
        assert upstreams.tool_catalog.list_upstreams()[0].calls_in_flight == 1, "the one on the old connection"

        old.release.set()
        assert (await call).outcome is CallOutcome.RESULT
        await closed.wait_for_close()
        assert upstreams.tool_catalog.list_upstreams()[0].calls_in_flight == 0


@pytest.mark.requirement("R28")
async def test_a_removed_upstream_lets_its_calls_end_and_takes_no_more() -> None:
    stage = ControlledUpstream()
    async with serving(stage.app()) as server, open_upstreams(make_http_config(server.url), CHILD) as upstreams:
        call = await running(stage, upstreams)
        assert upstreams.reconfigure([CHILD]).removed == ["stage"]

        with pytest.raises(UpstreamNotConfigured, match="Configure it again"):
            await run_upstream_call(upstreams, "echo")
        assert upstreams.get_capacity().keys() == {"child"}
        stage.release.set()
        assert (await call).outcome is CallOutcome.RESULT


async def test_a_child_whose_configuration_changed_is_replaced_and_ends(closed: ClosedConnectionHandler) -> None:
    async with open_upstreams(CHILD) as upstreams:
        before = await get_pid(upstreams)
        upstreams.reconfigure([replace(CHILD, env={"A": "1"})])

        assert await get_pid(upstreams) != before
        await closed.wait_for_close()
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)


async def test_an_upstream_that_died_loses_only_its_own_call() -> None:
    old, new = ControlledUpstream(), ControlledUpstream()
    async with (
        serving(old.app()) as before,
        serving(new.app()) as after,
        open_upstreams(make_http_config(before.url)) as upstreams,
    ):
        call = await running(old, upstreams)
        upstreams.reconfigure([make_http_config(after.url)])
        await before.kill_server()

        assert (await call).outcome is CallOutcome.UNKNOWN
        assert (await run_upstream_call(upstreams, "echo")).outcome is CallOutcome.RESULT


async def test_a_call_that_waits_for_a_wrong_address_goes_to_the_right_one() -> None:
    async with (
        serving(ControlledUpstream().app()) as server,
        open_upstreams(replace(UNREACHABLE_CONFIG, name="stage")) as upstreams,
    ):
        call = asyncio.create_task(run_upstream_call(upstreams, "echo"))
        with pytest.raises(Unavailable):
            await upstreams.tool_catalog.list_tools("stage", principal=ALICE)
        assert upstreams.tool_catalog.list_upstreams()[0].state == "failing"
        upstreams.reconfigure([make_http_config(server.url)])

        assert (await call).outcome is CallOutcome.RESULT


async def test_two_of_one_name_change_nothing() -> None:
    async with open_upstreams(CHILD) as upstreams:
        with pytest.raises(ConfigError, match="Two upstreams are named 'away'"):
            upstreams.reconfigure([UNREACHABLE_CONFIG, UNREACHABLE_CONFIG])

        assert upstreams.get_capacity().keys() == {"child"}
        assert await get_pid(upstreams)


async def test_an_invalid_entry_keeps_no_upstream_whose_name_a_valid_entry_has() -> None:
    invalid = SkippedUpstream(
        name="child", configured_name="child", reason=SkipReason.NAME_CONFLICT, advice="Rename one of them."
    )
    async with open_upstreams(CHILD) as upstreams:
        assert upstreams.reconfigure([replace(CHILD, max_concurrent=1), invalid]) == Reloaded(
            added=[], changed=["child"], removed=[], unchanged=[], skipped=(invalid,)
        )
        assert upstreams.reconfigure([invalid, replace(invalid, configured_name="Child")]) == Reloaded(
            added=[],
            changed=[],
            removed=[],
            unchanged=[],
            skipped=(replace(invalid, configured_name="Child"),),
            kept=(invalid,),
        )
        assert upstreams.get_capacity() == {"child": 1}


async def test_an_invalid_configuration_changes_nothing_and_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def read() -> list[UpstreamConfig]:
        raise ConfigError("servers.json: not valid JSON.")

    async with open_upstreams(CHILD) as upstreams:
        with pytest.raises(InvalidConfiguration, match=r"Nothing was changed\. servers\.json"):
            UpstreamReloader(upstreams, load_configs=read).reload_configuration()

        assert upstreams.get_capacity().keys() == {"child"}
    assert "configuration.not_reloaded" in [record.getMessage() for record in caplog.records]


async def test_a_late_list_of_a_removed_upstream_is_not_used_for_the_new_one() -> None:
    old, new = ControlledUpstream(), ControlledUpstream()
    new.tools = new.tools[:1]
    async with (
        serving(old.app()) as before,
        serving(new.app()) as after,
        open_upstreams(make_http_config(before.url)) as upstreams,
    ):
        call = await running(old, upstreams)
        upstreams.reconfigure([make_http_config(after.url)])
        await run_upstream_call(upstreams, "echo")
        old.release.set()
        await call

        assert [tool.name for tool in await upstreams.tool_catalog.list_tools("stage", principal=ALICE)] == ["echo"]


async def test_nor_is_what_it_was_still_listing_when_it_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = ControlledUpstream(), ControlledUpstream()
    new.tools = new.tools[:1]
    asked, release = asyncio.Event(), asyncio.Event()
    release.set()

    async def list_late(message: dict[str, Any], send: Send) -> None:
        asked.set()
        await release.wait()
        await send_result(message, {"tools": [{"name": "late", "inputSchema": {"type": "object"}}]}, send)

    async with (
        serving(OverriddenResponses(make_legacy_app(old.app()), {"tools/list": list_late})) as before,
        serving(make_legacy_app(new.app())) as after,
        open_upstreams(make_http_config(before.url)) as upstreams,
        asyncio.timeout(WAIT_SECONDS),
    ):
        call = await running(old, upstreams)
        asked.clear()
        release.clear()
        with monkeypatch.context() as impatient:
            impatient.setattr(catalog_module, "LIST_AGE_SECONDS_MAX", -1.0)
            listing = asyncio.create_task(upstreams.tool_catalog.list_tools("stage", principal=ALICE))
            await asked.wait()
        upstreams.reconfigure([make_http_config(after.url)])
        await run_upstream_call(upstreams, "echo")
        release.set()
        await listing

        assert [tool.name for tool in await upstreams.tool_catalog.list_tools("stage", principal=ALICE)] == ["echo"]
        old.release.set()
        await call


@pytest.mark.parametrize("era", ERAS)
async def test_a_subscription_moves_to_the_new_connection_while_calls_run_on_the_old_one(era: str) -> None:
    old, new = LibraryUpstream(), LibraryUpstream()
    change = UpstreamChange(upstream=UPSTREAM_NAME, uri=BOOK_URI)
    async with (
        serving(old.app(era)) as before,
        serving(new.app(era)) as after,
        open_upstreams(make_http_config(before.url, name=UPSTREAM_NAME)) as upstreams,
        upstreams.open_call_session(replace(CALL, upstream=UPSTREAM_NAME)),
        upstreams.proxy.subscribe_resource(UPSTREAM_NAME, BOOK_URI, principal=ALICE),
    ):
        with upstreams.proxy.subscribe_changes(UPSTREAM_NAME, principal=ALICE) as changes:
            upstreams.reconfigure([make_http_config(after.url, name=UPSTREAM_NAME)])

            assert await asyncio.wait_for(anext(changes), WAIT_SECONDS) == change, "there may have been one in between"
            await new.publish_resource_change(BOOK_URI)
            assert await asyncio.wait_for(anext(changes), WAIT_SECONDS) == change
