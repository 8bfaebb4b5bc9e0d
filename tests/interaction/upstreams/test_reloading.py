"""The upstreams are configured anew while calls run: none is dropped, and none is begun where it should not be."""

import asyncio
import json
import logging
import os
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call import CallCompletion, CallOutcome
from ringback.domain.errors import InvalidConfiguration, Unavailable
from ringback.domain.upstreams import UpstreamChange, Reloaded
from ringback.runner import catalog as catalog_module
from ringback.runner.config import ConfigError, UpstreamConfig
from ringback.runner.drive import UpstreamNotConfigured
from ringback.runner.reloading import UpstreamReloader
from ringback.runner.upstreams import UpstreamRegistry
from tests.support.examples import CALL
from tests.support.library import BOOK, ERAS, NAME, Library
from tests.support.upstreams import (
    STDIO_SERVER,
    WAIT_SECONDS,
    App,
    Send,
    Spoiled,
    Stage,
    drive,
    http_config,
    legacy_only,
    opened,
    python_config,
    respond,
    serving,
)

CHILD = python_config(str(STDIO_SERVER), name="child")
AWAY = http_config("http://127.0.0.1:1/mcp", name="away")


class Closed(logging.Handler):
    """Hears that a connection which was given up has been closed: nothing but the log tells."""

    def __init__(self) -> None:
        super().__init__()
        self._heard = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "upstream.closed":
            self._heard.set()

    async def wait(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await self._heard.wait()


@pytest.fixture
def closed() -> Generator[Closed]:
    handler, logger = Closed(), logging.getLogger("ringback.runner.upstreams")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def _same(app: App) -> App:
    return app


async def pid_of(upstreams: UpstreamRegistry) -> int:
    ending = await drive(upstreams, "whoami", upstream="child")
    assert ending.result is not None
    return json.loads(json.loads(ending.result)["content"][0]["text"])["pid"]


async def running(stage: Stage, upstreams: UpstreamRegistry) -> asyncio.Task[CallCompletion]:
    call = asyncio.create_task(drive(upstreams, "hold"))
    async with asyncio.timeout(WAIT_SECONDS):
        await stage.until_inside(1)
    return call


@pytest.mark.requirement("R28")
async def test_what_is_configured_as_before_is_not_touched() -> None:
    stage = Stage()
    async with serving(stage.app()) as server, opened(http_config(server.url), CHILD) as upstreams:
        pid = await pid_of(upstreams)
        call = await running(stage, upstreams)

        same = replace(CHILD, args=(*CHILD.args,), env=dict(CHILD.env))
        assert upstreams.reconfigure([http_config(server.url), same, AWAY]) == Reloaded(
            added=["away"], changed=[], removed=[], unchanged=["child", "stage"]
        )

        assert await pid_of(upstreams) == pid
        stage.release.set()
        assert (await call).outcome is CallOutcome.RESULT
        assert [info.name for info in upstreams.tool_catalog.list_upstreams()] == ["stage", "child", "away"]


@pytest.mark.requirement("R28")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_running_call_ends_on_the_old_connection_and_new_ones_go_over_the_new(era: str, closed: Closed) -> None:
    old, new = Stage(), Stage()
    wrap = legacy_only if era == "legacy" else _same
    async with (
        serving(wrap(old.app())) as before,
        serving(wrap(new.app())) as after,
        opened(http_config(before.url)) as upstreams,
    ):
        call = await running(old, upstreams)
        assert upstreams.reconfigure([http_config(after.url)]).changed == ["stage"]

        assert (await drive(upstreams, "echo", {"n": 1})).outcome is CallOutcome.RESULT
        assert [call.arguments for call in new.calls] == [{"n": 1}]
        assert upstreams.tool_catalog.list_upstreams()[0].calls_in_flight == 1, "the one on the old connection"

        old.release.set()
        assert (await call).outcome is CallOutcome.RESULT
        await closed.wait()
        assert upstreams.tool_catalog.list_upstreams()[0].calls_in_flight == 0


@pytest.mark.requirement("R28")
async def test_a_removed_upstream_lets_its_calls_end_and_takes_no_more() -> None:
    stage = Stage()
    async with serving(stage.app()) as server, opened(http_config(server.url), CHILD) as upstreams:
        call = await running(stage, upstreams)
        assert upstreams.reconfigure([CHILD]).removed == ["stage"]

        with pytest.raises(UpstreamNotConfigured, match="Configure it again"):
            await drive(upstreams, "echo")
        assert upstreams.get_capacity().keys() == {"child"}
        stage.release.set()
        assert (await call).outcome is CallOutcome.RESULT


async def test_a_child_whose_configuration_changed_is_replaced_and_ends(closed: Closed) -> None:
    async with opened(CHILD) as upstreams:
        before = await pid_of(upstreams)
        upstreams.reconfigure([replace(CHILD, env={"A": "1"})])

        assert await pid_of(upstreams) != before
        await closed.wait()
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)


async def test_an_upstream_that_died_meanwhile_loses_only_its_own_call() -> None:
    old, new = Stage(), Stage()
    async with (
        serving(old.app()) as before,
        serving(new.app()) as after,
        opened(http_config(before.url)) as upstreams,
    ):
        call = await running(old, upstreams)
        upstreams.reconfigure([http_config(after.url)])
        await before.kill()

        assert (await call).outcome is CallOutcome.UNKNOWN
        assert (await drive(upstreams, "echo")).outcome is CallOutcome.RESULT


async def test_a_call_that_waits_for_a_wrong_address_goes_to_the_right_one() -> None:
    async with serving(Stage().app()) as server, opened(replace(AWAY, name="stage")) as upstreams:
        call = asyncio.create_task(drive(upstreams, "echo"))
        with pytest.raises(Unavailable):
            await upstreams.tool_catalog.list_tools("stage")
        assert upstreams.tool_catalog.list_upstreams()[0].state == "failing"
        upstreams.reconfigure([http_config(server.url)])

        assert (await call).outcome is CallOutcome.RESULT


async def test_two_of_one_name_change_nothing() -> None:
    async with opened(CHILD) as upstreams:
        with pytest.raises(ConfigError, match="Two upstreams are named 'away'"):
            upstreams.reconfigure([AWAY, AWAY])

        assert upstreams.get_capacity().keys() == {"child"}
        assert await pid_of(upstreams)


async def test_a_configuration_that_cannot_be_read_changes_nothing_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def read() -> list[UpstreamConfig]:
        raise ConfigError("servers.json: not valid JSON.")

    async with opened(CHILD) as upstreams:
        with pytest.raises(InvalidConfiguration, match=r"Nothing was changed\. servers\.json"):
            UpstreamReloader(upstreams, load_configs=read).reload_configuration()

        assert upstreams.get_capacity().keys() == {"child"}
    assert "upstreams.not_reloaded" in [record.getMessage() for record in caplog.records]


async def test_what_an_upstream_that_was_given_up_lists_is_not_taken_for_the_new_ones() -> None:
    old, new = Stage(), Stage()
    new.tools = new.tools[:1]
    async with (
        serving(old.app()) as before,
        serving(new.app()) as after,
        opened(http_config(before.url)) as upstreams,
    ):
        call = await running(old, upstreams)
        upstreams.reconfigure([http_config(after.url)])
        await drive(upstreams, "echo")
        old.release.set()
        await call

        assert [tool.name for tool in await upstreams.tool_catalog.list_tools("stage")] == ["echo"]


async def test_nor_is_what_it_was_still_listing_when_it_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = Stage(), Stage()
    new.tools = new.tools[:1]
    asked, release = asyncio.Event(), asyncio.Event()
    release.set()

    async def list_late(message: dict[str, Any], send: Send) -> None:
        asked.set()
        await release.wait()
        await respond(message, {"tools": [{"name": "late", "inputSchema": {"type": "object"}}]}, send)

    async with (
        serving(Spoiled(legacy_only(old.app()), {"tools/list": list_late})) as before,
        serving(legacy_only(new.app())) as after,
        opened(http_config(before.url)) as upstreams,
        asyncio.timeout(WAIT_SECONDS),
    ):
        call = await running(old, upstreams)
        asked.clear()
        release.clear()
        with monkeypatch.context() as impatient:
            impatient.setattr(catalog_module, "AGE_SECONDS_MAX", -1.0)
            listing = asyncio.create_task(upstreams.tool_catalog.list_tools("stage"))
            await asked.wait()
        upstreams.reconfigure([http_config(after.url)])
        await drive(upstreams, "echo")
        release.set()
        await listing

        assert [tool.name for tool in await upstreams.tool_catalog.list_tools("stage")] == ["echo"]
        old.release.set()
        await call


@pytest.mark.parametrize("era", ERAS)
async def test_a_watch_moves_to_the_new_connection_although_calls_still_run_on_the_old(era: str) -> None:
    old, new = Library(), Library()
    change = UpstreamChange(upstream=NAME, uri=BOOK)
    async with (
        serving(old.app(era)) as before,
        serving(new.app(era)) as after,
        opened(http_config(before.url, name=NAME)) as upstreams,
        upstreams.open_call_session(replace(CALL, upstream=NAME)),
        upstreams.proxy.subscribe_resource(NAME, BOOK),
    ):
        with upstreams.proxy.subscribe_changes(NAME) as changes:
            upstreams.reconfigure([http_config(after.url, name=NAME)])

            assert await asyncio.wait_for(anext(changes), WAIT_SECONDS) == change, "there may have been one in between"
            await new.change(BOOK)
            assert await asyncio.wait_for(anext(changes), WAIT_SECONDS) == change
