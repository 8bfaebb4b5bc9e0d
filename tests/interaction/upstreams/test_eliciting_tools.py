"""Tools that an upstream lists only for clients that can elicit, and the sessions of calls that accept input."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.domain.call import MRTR_DRIVER, Handle
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.errors import UnknownTool
from ringback.domain.principal import Principal
from ringback.domain.upstreams import Listing
from ringback.upstreams import session_selection
from ringback.upstreams.config import Isolation
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.asking_upstream import ASKING_TOOLS, PLAIN_TOOLS, AskingUpstream
from tests.support.examples import ALICE, CALL
from tests.support.recording_call_context import RecordingCallContext
from tests.support.upstreams import (
    WAIT_SECONDS,
    ControlledUpstream,
    OverriddenResponses,
    Send,
    make_http_config,
    make_python_config,
    make_raw_config,
    open_bound_driver,
    open_upstreams,
    send_result,
    serving,
    wait_for_state,
)

STDIO_SERVER: Final = Path(__file__).parents[2] / "support" / "asking_stdio_upstream.py"

pytestmark = pytest.mark.requirement("R32")


async def list_names(upstreams: UpstreamRegistry, *, can_elicit: bool) -> list[str]:
    async with asyncio.timeout(WAIT_SECONDS):
        entries = await upstreams.proxy.list_entries("stage", Listing.TOOLS, can_elicit=can_elicit, principal=ALICE)
    return [entry["name"] for entry in entries]


async def check_tool(upstreams: UpstreamRegistry, tool: str, *, accepts_input: bool) -> None:
    await upstreams.tool_catalog.check_call(
        "stage", tool, {}, visible_upstreams=None, accepts_input=accepts_input, principal=ALICE
    )


async def run_tool(
    upstreams: UpstreamRegistry, tool: str, *, principal: str = "alice", accepts_input: bool = True
) -> Any:
    call = replace(
        CALL,
        principal=Principal(principal),
        upstream="stage",
        tool=tool,
        arguments={"question": "?"},
        accepts_input=accepts_input,
    )
    async with asyncio.timeout(WAIT_SECONDS), open_bound_driver(upstreams, call) as session:
        ending = await session.run_call(RecordingCallContext(call))
    assert isinstance(ending, CallCompletion)
    assert ending.outcome is CallOutcome.RESULT, ending.error
    return json.loads(json.loads(ending.result or b"")["content"][0]["text"])


async def test_a_legacy_upstream_is_asked_for_both_lists_and_for_the_larger_one_only_once() -> None:
    asking = AskingUpstream()
    async with serving(asking.app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        plain = await list_names(upstreams, can_elicit=False)
        opened_before = asking.opened_sessions
        larger = [await list_names(upstreams, can_elicit=True) for _ in range(5)]
        over_rest = [tool.name for tool in await upstreams.tool_catalog.list_tools("stage", principal=ALICE)]
        await asking.wait_until_closed(1)

    assert plain == [*PLAIN_TOOLS]
    assert [*larger, over_rest] == [[*PLAIN_TOOLS, *ASKING_TOOLS]] * 6
    assert (opened_before, asking.opened_sessions) == (1, 2)


async def test_a_modern_upstream_gets_the_capabilities_of_the_list_with_the_request() -> None:
    async def list_tools(message: dict[str, Any], send: Send) -> None:
        capabilities = message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        names = ("echo", "ask") if "elicitation" in capabilities else ("echo",)
        await send_result(message, {"tools": [{"name": name, "inputSchema": {}} for name in names]}, send)

    app = OverriddenResponses(ControlledUpstream().app(), {"tools/list": list_tools})
    async with serving(app) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        plain = await list_names(upstreams, can_elicit=False)
        larger = await list_names(upstreams, can_elicit=True)

    assert (plain, larger) == (["echo"], ["echo", "ask"])


async def test_a_hidden_tool_can_be_called_only_with_input() -> None:
    async with serving(AskingUpstream().app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await list_names(upstreams, can_elicit=False)
        with pytest.raises(UnknownTool, match="no tool 'ask'"):
            await check_tool(upstreams, "ask", accepts_input=False)
        await check_tool(upstreams, "ask", accepts_input=True)
        with pytest.raises(UnknownTool, match=r"only to clients that can answer questions.*accepts_input"):
            await check_tool(upstreams, "ask", accepts_input=False)
        with pytest.raises(UnknownTool, match="Did you mean 'ask_aside'"):
            await check_tool(upstreams, "ask_asid", accepts_input=True)


async def test_both_lists_are_fetched_again_after_a_change() -> None:
    asking = AskingUpstream()
    async with serving(asking.app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await list_names(upstreams, can_elicit=True)
        asking.tools, asking.asking_tools = (*PLAIN_TOOLS, "learn"), ("ask",)
        await run_tool(upstreams, "learn", accepts_input=False)
        async with asyncio.timeout(WAIT_SECONDS):
            while "learn" not in (larger := await list_names(upstreams, can_elicit=True)):  # noqa: ASYNC110 - see below
                await asyncio.sleep(0)  # the result may overtake the notification
        plain = await list_names(upstreams, can_elicit=False)

    assert plain == [*PLAIN_TOOLS, "learn"]
    assert larger == [*PLAIN_TOOLS, "learn", "ask"]


async def test_a_tool_that_a_call_enables_for_its_session_is_listed_and_can_be_called() -> None:
    async with serving(AskingUpstream().app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        assert "enabled" not in await list_names(upstreams, can_elicit=True)
        await run_tool(upstreams, "enable")
        async with asyncio.timeout(WAIT_SECONDS):
            while "enabled" not in await list_names(upstreams, can_elicit=True):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)
        await check_tool(upstreams, "enabled", accepts_input=True)
        visits = await run_tool(upstreams, "enabled")

    assert visits == 1


async def test_the_one_child_of_a_command_lists_its_tools_for_all_clients() -> None:
    async with open_upstreams(make_python_config(str(STDIO_SERVER))) as upstreams:
        lists = [await list_names(upstreams, can_elicit=can_elicit) for can_elicit in (False, True)]
        pids = {(await run_tool(upstreams, "whoami", accepts_input=accepts))["pid"] for accepts in (False, True)}

    assert lists[0] == lists[1]
    assert "ask" in lists[0]
    assert len(pids) == 1


async def test_with_a_child_for_each_call_the_child_of_the_list_declares_what_its_clients_can() -> None:
    config = replace(make_python_config(str(STDIO_SERVER)), isolation=Isolation.CALL)
    async with open_upstreams(config) as upstreams:
        plain = await list_names(upstreams, can_elicit=False)
        larger = await list_names(upstreams, can_elicit=True)

    assert "ask" not in plain
    assert "ask" in larger


# -- sessions ---------------------------------------------------------------------------------------------------------------


async def test_with_a_child_for_each_call_a_call_goes_on_after_its_page_in_a_child_of_its_own() -> None:
    """It shared one child, which declares no elicitation, with all other calls that were parked before."""
    opened_page = Handle(driver=MRTR_DRIVER, data={"request_state": None, "round": 1, "url_round": 1})
    call = replace(CALL, upstream="stage", tool="whoami", accepts_input=True, handle=opened_page)

    async def find_pid(upstreams: UpstreamRegistry) -> int:
        async with asyncio.timeout(WAIT_SECONDS), open_bound_driver(upstreams, call) as session:
            ending = await session.run_call(RecordingCallContext(call))
        assert isinstance(ending, CallCompletion)
        return json.loads(json.loads(ending.result or b"")["content"][0]["text"])["pid"]

    async with open_upstreams(replace(make_raw_config(), isolation=Isolation.CALL)) as upstreams:
        assert await find_pid(upstreams) != await find_pid(upstreams)
        assert not upstreams.has_open_session(call)


async def test_the_calls_of_a_principal_that_accept_input_share_one_session() -> None:
    asking = AskingUpstream()
    async with serving(asking.app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await wait_for_state(upstreams, "ready")
        visits = await asyncio.gather(*(run_tool(upstreams, "visits") for _ in range(20)))
        of_others = [await run_tool(upstreams, "visits", principal=name) for name in ("bob", "carol")]
        without_input = await run_tool(upstreams, "visits", accepts_input=False)

    assert sorted(visits) == list(range(1, 21))
    assert (of_others, without_input) == ([1, 1], 1)
    assert asking.opened_sessions == 4, "the shared one, and one for each of three principals"


async def test_the_sessions_of_principals_stay_within_the_limit_of_the_upstream() -> None:
    asking = AskingUpstream()
    async with (
        serving(asking.app()) as server,
        open_upstreams(replace(make_http_config(server.url), max_concurrent=3)) as upstreams,
    ):
        for number in range(10):
            await run_tool(upstreams, "visits", principal=f"p{number}")
        await asking.wait_until_closed(7)

    assert asking.opened_sessions == 11


async def test_an_upstream_that_accepts_one_session_runs_calls_without_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking = AskingUpstream()
    asking.refuses_elicitation = True
    async with serving(asking.app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        listed = await list_names(upstreams, can_elicit=True)
        visits = [await run_tool(upstreams, "visits") for _ in range(3)]
        asking.refuses_elicitation = False
        visits.append(await run_tool(upstreams, "visits"))
        monkeypatch.setattr(session_selection, "ELICITING_RETRY_SECONDS", -1.0)
        visits_later = await run_tool(upstreams, "visits")

    assert listed == [*PLAIN_TOOLS]
    assert visits == [1, 2, 3, 4]
    assert visits_later == 1


async def test_no_call_is_rejected_for_a_tool_of_a_list_that_could_not_be_fetched() -> None:
    asking = AskingUpstream()
    asking.refuses_elicitation = True  # as an upstream that does not respond in time
    async with serving(asking.app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await list_names(upstreams, can_elicit=False)

        await check_tool(upstreams, "ask", accepts_input=True)
        with pytest.raises(UnknownTool):
            await check_tool(upstreams, "ask", accepts_input=False)


async def test_a_session_that_was_lost_is_opened_again_and_asks() -> None:
    asking, elsewhere = AskingUpstream(), AskingUpstream()
    async with serving(asking.app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await run_tool(upstreams, "visits")
        await server.kill_server()
        async with serving(elsewhere.app(), port=server.port):
            visits = await run_tool(upstreams, "visits")

    assert visits == 1


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize(("tool", "reason"), [("sample", "sampling"), ("roots", "roots")])
async def test_sampling_and_roots_are_refused_with_their_reason(transport: str, tool: str, reason: str) -> None:
    async with serving(AskingUpstream().app()) as server:
        config = make_http_config(server.url) if transport == "http" else make_python_config(str(STDIO_SERVER))
        async with open_upstreams(config) as upstreams:
            refused = await run_tool(upstreams, tool)

    assert refused["code"] == -32601
    assert f"Ringback refuses {reason}" in refused["message"]
    assert "2026-07-28" in refused["message"]
