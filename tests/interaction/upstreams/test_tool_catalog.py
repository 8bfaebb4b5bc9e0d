"""The tool catalog: its lists follow the upstreams, and it rejects invalid calls before they are stored."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import mcp_types as types
import pytest

from ringback.domain.call import RerunPolicy
from ringback.domain.clock import SystemClock
from ringback.domain.errors import InvalidArguments, Unavailable, UnknownTool, UnknownUpstream
from ringback.domain.upstreams import DisconnectAction, Listing, PendingForm, ToolCatalog, ToolConfig
from ringback.runner.drivers.selection import predict_driver_name
from ringback.upstreams.catalog import tool_catalog as catalog_module
from ringback.upstreams.catalog.catalog_refresher import CatalogRefresher
from ringback.upstreams.catalog.upstream_lists import FAILED_LIST_AGE_SECONDS_MAX
from ringback.upstreams.config import ConfigError
from ringback.upstreams.registry import UpstreamRegistry
from ringback.upstreams.session import UpstreamSession
from tests.support.clock import StoppedDurations
from tests.support.examples import ALICE
from tests.support.upstreams import (
    WAIT_SECONDS,
    ControlledUpstream,
    OverriddenResponses,
    ResponseOverride,
    Send,
    make_app_of_era,
    make_http_config,
    make_legacy_app,
    open_upstreams,
    respond_with,
    run_upstream_call,
    send_json,
    send_result,
    serving,
    wait_for_state,
    wait_until_true,
)

UNREACHABLE_CONFIG = make_http_config("http://127.0.0.1:1/mcp", name="away")


async def list_tool_names(catalog: ToolCatalog, upstream: str = "stage") -> list[str]:
    async with asyncio.timeout(WAIT_SECONDS):
        return [tool.name for tool in await catalog.list_tools(upstream, principal=ALICE)]


async def check_arguments(
    catalog: ToolCatalog, tool: str, arguments: dict[str, Any] | None = None, **where: Any
) -> None:
    await catalog.check_call(
        where.pop("upstream", "stage"),
        tool,
        arguments or {},
        visible_upstreams=where.pop("visible", None),
        accepts_input=where.pop("accepts_input", False),
        principal=ALICE,
    )


@asynccontextmanager
async def opened_git() -> AsyncGenerator[UpstreamRegistry]:
    """A server with two tools of mcp-server-git, whose list was read."""
    stage, log = ControlledUpstream(), {"repo_path": {"type": "string"}, "max_count": {"type": "integer"}}
    stage.tools = [
        types.Tool(name="git_status", input_schema={"type": "object"}),
        types.Tool(name="git_log", input_schema={"type": "object", "properties": log, "required": ["repo_path"]}),
    ]
    async with (
        serving(stage.app()) as server,
        open_upstreams(make_http_config(server.url, name="git")) as upstreams,
    ):
        await list_tool_names(upstreams.tool_catalog, "git")
        yield upstreams


async def test_a_call_of_a_listed_tool_is_checked_without_a_turn_of_the_event_loop() -> None:
    """However many calls start at once, none of them waits behind the checks of others."""
    app = make_legacy_app(
        ControlledUpstream().app()
    )  # lists its tools once: a modern server does so again in the background
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await list_tool_names(upstreams.tool_catalog)

        checking = upstreams.tool_catalog.check_call(
            "stage", "echo", {"text": "hello"}, visible_upstreams=None, principal=ALICE
        )
        with pytest.raises(StopIteration):
            checking.send(None)


@pytest.mark.requirement("R11")
async def test_a_call_of_a_listed_tool_waits_for_no_list_that_another_request_fetches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One client that called unknown tools of a server that lists slowly held up the calls of all others, five seconds each."""
    monkeypatch.setattr(catalog_module, "REJECTING_LIST_AGE_SECONDS_MAX", -1.0)
    overrides: dict[str, ResponseOverride] = {}
    is_listing, may_list = asyncio.Event(), asyncio.Event()

    async def list_slowly(message: dict[str, Any], send: Send) -> None:
        is_listing.set()
        await may_list.wait()
        await send_result(message, {"tools": []}, send)

    app = make_legacy_app(ControlledUpstream().app())
    async with (
        serving(OverriddenResponses(app, overrides)) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        catalog = upstreams.tool_catalog
        await check_arguments(catalog, "echo")
        overrides["tools/list"] = list_slowly
        unknown = asyncio.create_task(check_arguments(catalog, "ecco"))
        await asyncio.wait_for(is_listing.wait(), WAIT_SECONDS)

        await check_arguments(catalog, "echo")
        assert not unknown.done()
        may_list.set()
        with pytest.raises(UnknownTool):
            await unknown


async def test_tools_are_listed_without_what_strict_clients_cannot_read() -> None:
    """The list of all upstreams would have been refused for it."""
    wrong = {"name": "draw", "inputSchema": {}, "title": None, "description": 7, "annotations": {"readOnlyHint": "yes"}}

    async def listing(message: dict[str, Any], send: Send) -> None:
        page = {"tools": [wrong], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
        await send_result(message, page, send)

    async with (
        serving(OverriddenResponses(ControlledUpstream().app(), {"tools/list": listing})) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        (tool,) = await upstreams.tool_catalog.list_tools("stage", principal=ALICE)

    assert tool.raw == {"name": "draw", "inputSchema": {"type": "object"}}


async def test_tools_are_listed_with_all_that_their_upstream_says_of_them() -> None:
    raw: dict[str, Any] = {
        "name": "draw",
        "inputSchema": {"type": "object"},
        "outputSchema": {"x-new": 1},
        "_meta": {"ui": {}},
        "new": None,
    }

    async def listing(message: dict[str, Any], send: Send) -> None:
        result: dict[str, Any] = {
            "tools": [raw, {"name": "no schema"}, "nothing"],
            "ttlMs": 0,
            "cacheScope": "private",
            "resultType": "complete",
        }
        await send_result(message, result, send)

    async with (
        serving(OverriddenResponses(ControlledUpstream().app(), {"tools/list": listing})) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        (tool,) = await upstreams.tool_catalog.list_tools("stage", principal=ALICE)

    assert (tool.name, tool.description, tool.input_schema, tool.raw) == ("draw", None, {"type": "object"}, raw)


async def test_the_pages_of_a_list_are_joined_and_an_endless_list_ends() -> None:
    asked: list[str | None] = []

    async def paging(message: dict[str, Any], send: Send) -> None:
        asked.append(message.get("params", {}).get("cursor"))
        tool = {"name": f"tool-{len(asked)}", "inputSchema": {"type": "object"}}
        await send_result(message, {"tools": [tool], "nextCursor": f"page-{len(asked)}"}, send)

    async with (
        serving(OverriddenResponses(make_legacy_app(ControlledUpstream().app()), {"tools/list": paging})) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        listed = await list_tool_names(upstreams.tool_catalog)

    assert asked[:3] == [None, "page-1", "page-2"]
    assert len(listed) == 100
    assert len(asked) == 2 * 100, "once for clients that can elicit, and once for all others"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_new_tool_is_known_after_the_list_changed_notification(era: str) -> None:
    stage = ControlledUpstream()
    app = make_app_of_era(stage.app(), era)
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        assert "learned" not in await list_tool_names(upstreams.tool_catalog)
        await run_upstream_call(upstreams, "learn")
        async with asyncio.timeout(WAIT_SECONDS):
            while "learned" not in await list_tool_names(upstreams.tool_catalog):  # noqa: ASYNC110 - nothing announces of it
                await asyncio.sleep(0)  # the answer to `learn` may overtake the notification


async def test_a_first_list_that_failed_is_fetched_again_soon() -> None:
    """Many servers load what they list. Clients got an error for five minutes, although the upstream was there."""
    clock, is_loading = StoppedDurations(), True

    async def list_late(message: dict[str, Any], send: Send) -> None:
        if is_loading:
            error = {"code": -32603, "message": "still loading"}
            await send_json(send, {"jsonrpc": "2.0", "id": message["id"], "error": error})
        else:
            await send_result(message, {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}, send)

    app = OverriddenResponses(make_legacy_app(ControlledUpstream().app()), {"tools/list": list_late})
    async with serving(app) as server, open_upstreams(make_http_config(server.url), clock=clock) as upstreams:
        await wait_for_state(upstreams, "ready")
        with pytest.raises(Unavailable):
            await upstreams.proxy.list_entries("stage", Listing.TOOLS, principal=ALICE)
        is_loading = False
        clock.pass_time(FAILED_LIST_AGE_SECONDS_MAX + 1)
        listed = await upstreams.proxy.list_entries("stage", Listing.TOOLS, principal=ALICE)

    assert [tool["name"] for tool in listed] == ["echo"]


async def test_a_list_is_cached_and_read_again_only_when_old_before_a_rejection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = ControlledUpstream()
    app = make_legacy_app(stage.app())
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await list_tool_names(upstreams.tool_catalog)
        stage.tools = [*stage.tools, types.Tool(name="silent", input_schema={"type": "object"})]

        with pytest.raises(UnknownTool):
            await check_arguments(upstreams.tool_catalog, "silent")
        monkeypatch.setattr(catalog_module, "REJECTING_LIST_AGE_SECONDS_MAX", -1.0)
        await check_arguments(upstreams.tool_catalog, "silent")


async def test_concurrent_readers_cause_one_list_request() -> None:
    asked: list[bool] = []
    """Whether each request declared elicitation."""

    async def record_request(message: dict[str, Any], send: Send) -> None:
        asked.append("elicitation" in message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"])
        await send_result(message, {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}, send)

    app = OverriddenResponses(ControlledUpstream().app(), {"tools/list": record_request})
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await asyncio.gather(*(list_tool_names(upstreams.tool_catalog) for _ in range(20)))

    assert asked.count(True) == 1


async def test_an_unknown_tool_is_refused_with_a_suggestion() -> None:
    async with opened_git() as upstreams:
        with pytest.raises(UnknownTool) as caught:
            await check_arguments(upstreams.tool_catalog, "git_lgo", upstream="git")

    assert caught.value.detail == (
        "Upstream 'git' has no tool 'git_lgo'. Did you mean 'git_log'? List them: GET /v1/upstreams/git/tools"
    )
    assert caught.value.extra == {"tool": "git_lgo"}


async def test_an_unknown_tool_is_refused_while_the_first_connection_has_listed_the_tools_and_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call that accepts input was started, because the list for clients that can elicit could not be fetched yet."""
    listed, may_become_ready, fetch_tools = asyncio.Event(), asyncio.Event(), CatalogRefresher.fetch_tools

    async def fetch_and_wait(self: CatalogRefresher, session: UpstreamSession) -> None:
        await fetch_tools(self, session)
        listed.set()
        await may_become_ready.wait()

    monkeypatch.setattr(CatalogRefresher, "fetch_tools", fetch_and_wait)
    async with (
        serving(ControlledUpstream().app()) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
        asyncio.timeout(WAIT_SECONDS),
    ):
        await listed.wait()
        checking = asyncio.create_task(check_arguments(upstreams.tool_catalog, "missing", accepts_input=True))
        for _ in range(100):
            await asyncio.sleep(0)
        may_become_ready.set()
        with pytest.raises(UnknownTool):
            await checking


async def test_settings_of_tools_that_an_upstream_does_not_list_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A misspelt name was accepted without a word, so that its `rerun_policy` never applied."""

    def list_logged(event: str) -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.getMessage() == event]

    caplog.set_level(logging.INFO)
    upstream = ControlledUpstream()
    policies = {"echo": RerunPolicy.ALWAYS, "ehco": RerunPolicy.ALWAYS}
    async with serving(upstream.app()) as server:
        config = replace(make_http_config(server.url), tool_rerun_policy=policies)
        async with open_upstreams(config) as upstreams:
            await wait_until_true(lambda: len(list_logged("upstream.ready")) == 1)
            upstreams.restart_connections("stage")
            await wait_until_true(lambda: len(list_logged("upstream.ready")) == 2)

    assert [record.__dict__["tools"] for record in list_logged("upstream.tools_not_listed")] == [["ehco"]]


async def test_arguments_that_do_not_fit_are_refused_with_the_place_and_the_rule() -> None:
    async with opened_git() as upstreams:
        await check_arguments(upstreams.tool_catalog, "git_log", {"repo_path": "/srv"}, upstream="git")
        with pytest.raises(InvalidArguments) as caught:
            await check_arguments(
                upstreams.tool_catalog, "git_log", {"repo_path": "/srv", "max_count": "ten"}, upstream="git"
            )

    assert "#/arguments/max_count: \"ten\" is not of type 'integer'" in caught.value.detail
    assert caught.value.extra["tool"] == "git_log"


async def test_unknown_and_invisible_upstreams_get_the_same_error() -> None:
    async with (
        serving(ControlledUpstream().app()) as server,
        open_upstreams(make_http_config(server.url), UNREACHABLE_CONFIG) as upstreams,
    ):
        with pytest.raises(UnknownUpstream) as unknown:
            await check_arguments(upstreams.tool_catalog, "echo", upstream="stag", visible=frozenset({"away"}))
        with pytest.raises(UnknownUpstream) as invisible:
            await check_arguments(upstreams.tool_catalog, "echo", upstream="stage", visible=frozenset({"away"}))
        with pytest.raises(UnknownUpstream, match="Did you mean 'stage'"):
            await check_arguments(upstreams.tool_catalog, "echo", upstream="stag")

    assert unknown.value.detail.replace("stag", "stage") == invisible.value.detail


async def test_an_upstream_that_was_never_reached_refuses_nothing_and_lists_nothing() -> None:
    async with open_upstreams(UNREACHABLE_CONFIG) as upstreams:
        with pytest.raises(Unavailable, match="GET /v1/upstreams"):
            await list_tool_names(upstreams.tool_catalog, "away")
        await check_arguments(upstreams.tool_catalog, "anything", {"at": "all"}, upstream="away")


async def test_calls_to_an_unreachable_upstream_are_checked_against_its_last_list() -> None:
    async with serving(ControlledUpstream().app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await list_tool_names(upstreams.tool_catalog)
        await server.kill_server()

        assert "echo" in await list_tool_names(upstreams.tool_catalog)
        await check_arguments(upstreams.tool_catalog, "echo")
        with pytest.raises(UnknownTool):
            await check_arguments(upstreams.tool_catalog, "ecko")


@pytest.mark.parametrize(
    ("answer", "listed"),
    [
        ({"error": {"code": -32601, "message": "Method not found"}}, []),
        ({"error": {"code": -32603, "message": "oops"}}, None),
        ({"result": {"tools": "none"}}, None),
    ],
    ids=["no tools", "an error", "no list"],
)
async def test_a_server_without_tools_differs_from_one_that_cannot_list_them(
    answer: Any, listed: list[str] | None
) -> None:
    async def spoil(message: dict[str, Any], send: Send) -> None:
        await send_json(send, {"jsonrpc": "2.0", "id": message["id"], **answer})

    async with (
        serving(OverriddenResponses(ControlledUpstream().app(), {"tools/list": spoil})) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        if listed is None:
            with pytest.raises(Unavailable):
                await list_tool_names(upstreams.tool_catalog)
        else:
            assert await list_tool_names(upstreams.tool_catalog) == listed


@pytest.mark.parametrize("status", [200, 500])
async def test_an_upstream_that_cannot_list_its_tools_can_still_be_called(status: int) -> None:
    app = OverriddenResponses(
        ControlledUpstream().app(), {"tools/list": respond_with(status, "application/json", b"[]")}
    )
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await check_arguments(upstreams.tool_catalog, "echo")
        assert (await run_upstream_call(upstreams, "echo")).result is not None


async def test_a_tool_whose_arguments_are_repeated_in_headers_gets_them() -> None:
    stage = ControlledUpstream()
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    invalid = {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}}
    stage.tools = [types.Tool(name="echo", input_schema=schema), types.Tool(name="broken", input_schema=invalid)]
    async with serving(stage.app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        ending = await run_upstream_call(upstreams, "echo", {"region": "eu"})
        listed = await list_tool_names(upstreams.tool_catalog)

    assert ending.result is not None
    assert listed == ["echo"]


async def test_the_configuration_of_a_tool_is_reported_also_if_it_or_its_upstream_is_unknown() -> None:
    configured = replace(
        UNREACHABLE_CONFIG,
        inline_wait_seconds=5.0,
        tool_inline_wait_seconds={"slow": 0.5},
        tool_pending={"slow": PendingForm.ERROR},
        tool_on_disconnect={"slow": DisconnectAction.CANCEL},
        task_only_tools=frozenset({"slow"}),
    )
    async with open_upstreams(configured, make_http_config("http://127.0.0.1:1/mcp")) as upstreams:
        catalog = upstreams.tool_catalog

        assert catalog.get_tool_config("away", "slow") == ToolConfig(
            inline_wait_seconds=0.5, on_disconnect=DisconnectAction.CANCEL, pending=PendingForm.ERROR, is_task_only=True
        )
        assert catalog.get_tool_config("away", "any") == ToolConfig(inline_wait_seconds=5.0)
        assert catalog.get_tool_config("stage", "any") == catalog.get_tool_config("nobody", "any") == ToolConfig()


def test_two_upstreams_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="Two upstreams are named 'away'"):
        UpstreamRegistry(
            [UNREACHABLE_CONFIG, UNREACHABLE_CONFIG],
            clock=SystemClock(),
            random_fraction=lambda: 0.5,
            predict_driver_name=predict_driver_name,
        )
