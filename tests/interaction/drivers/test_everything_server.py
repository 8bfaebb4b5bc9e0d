"""The reference server of 2025-11-25, unmodified, over both transports: its task, its question, and its plain tools."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.upstreams.config import Isolation, UpstreamConfig
from tests.support.calls import (
    answer_call,
    insert_call_to,
    run_until_handle,
    running_runner,
    wait_for_input_request,
)
from tests.support.engine import Engine
from tests.support.everything_server import ELICITATION_TOOL, RESEARCH_TOOL, make_stdio_config, serving_over_http
from tests.support.examples import ALICE
from tests.support.upstreams import make_http_config, open_upstreams

PROGRAMMING_DETAIL = {"action": "accept", "content": {"interpretation": "programming"}}


@asynccontextmanager
async def running_everything_server(transport: str) -> AsyncGenerator[UpstreamConfig]:
    if transport == "stdio":
        yield await make_stdio_config()
    else:
        async with serving_over_http() as url:
            yield make_http_config(url)


async def run_research(engine: Engine) -> None:
    """Run its task, which requests input, and answer it."""
    call = await insert_call_to(engine, RESEARCH_TOOL, arguments={"topic": "python", "ambiguous": True})
    asked = await wait_for_input_request(engine, call)
    await answer_call(engine, call, {"r1.1": PROGRAMMING_DETAIL})
    (ended,) = await engine.wait_until_final(call)

    assert "could have multiple interpretations" in asked.input_requests["r1.1"].params["message"]
    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)
    assert b"Research Report: python (programming)" in (await engine.read_result(call) or b"")


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R28")
@pytest.mark.requirement("R32")
async def test_its_task_in_a_process_of_its_own_requests_input_gets_an_answer_and_ends(engine: Engine) -> None:
    async with running_runner(engine, await make_stdio_config(isolation=Isolation.CALL)):
        await run_research(engine)


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R28")
@pytest.mark.requirement("R32")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_its_task_and_its_tool_request_input_and_a_plain_tool_answers(engine: Engine, transport: str) -> None:
    """The tool that asks is listed for clients that can elicit."""
    async with (
        running_everything_server(transport) as config,
        open_upstreams(config) as upstreams,
        engine.running_runner(upstreams),
    ):
        await run_research(engine)
        listed = {tool.name for tool in await upstreams.tool_catalog.list_tools(config.name, principal=ALICE)}
        await upstreams.tool_catalog.check_call(
            config.name, ELICITATION_TOOL, {}, visible_upstreams=None, accepts_input=True, principal=ALICE
        )
        call = await insert_call_to(engine, ELICITATION_TOOL)
        asked = await wait_for_input_request(engine, call)
        await answer_call(engine, call, {"r1.1": {"action": "accept", "content": {"name": "Ada", "check": True}}})
        (ended,) = await engine.wait_until_final(call)
        plain_call = await insert_call_to(engine, "echo", arguments={"message": "hello"})
        (echoed,) = await engine.wait_until_final(plain_call)

    assert ELICITATION_TOOL in listed
    assert "provide inputs" in asked.input_requests["r1.1"].params["message"]
    assert ended.outcome is CallOutcome.RESULT
    assert b"Ada" in (await engine.read_result(call) or b"")
    assert echoed.outcome is CallOutcome.RESULT
    assert b"Echo: hello" in (await engine.read_result(plain_call) or b"")


@pytest.mark.requirement("R33")
async def test_a_task_of_a_dead_child_ends_as_unknown(engine: Engine) -> None:
    call = await insert_call_to(engine, RESEARCH_TOOL, arguments={"topic": "sleep"})
    config = await make_stdio_config()

    await run_until_handle(engine, config, call)
    async with running_runner(engine, config):
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.runs) == (CallOutcome.UNKNOWN, 1)
