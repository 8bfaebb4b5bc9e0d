"""The reference server of 2025-11-25, unmodified, over both transports: its task, its question, and its plain tools."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call import CallOutcome
from ringback.runner.config import Isolation, UpstreamConfig
from tests.support.calls import a_call_to, answer, one_life, until_asked, until_kept
from tests.support.engine import Engine
from tests.support.everything import RESEARCH, over_http, over_stdio
from tests.support.upstreams import http_config

TECHNICAL = {"action": "accept", "content": {"interpretation": "technical"}}


@asynccontextmanager
async def everything(transport: str, isolation: Isolation) -> AsyncGenerator[UpstreamConfig]:
    if transport == "stdio":
        yield await over_stdio(isolation=isolation)
    else:
        async with over_http() as url:
            yield replace(http_config(url), isolation=isolation)


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R28")
@pytest.mark.requirement("R32")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_its_task_asks_is_answered_and_ends(engine: Engine, transport: str) -> None:
    arguments: dict[str, Any] = {"topic": "python", "ambiguous": True}
    call = a_call_to(engine, RESEARCH, arguments=arguments)
    await engine.queue(call)

    async with everything(transport, Isolation.CALL) as config, one_life(engine, config):
        asked = await until_asked(engine, call)
        await answer(engine, call, {"r1.1": TECHNICAL})
        (ended,) = await engine.until_final(call)

    assert "could have multiple interpretations" in asked.input_requests["r1.1"].params["message"]
    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)
    assert b"Research Report: python (technical)" in (await engine.result(call) or b"")


@pytest.mark.requirement("R28")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_its_plain_tools_answer(engine: Engine, transport: str) -> None:
    call = a_call_to(engine, "echo", arguments={"message": "hello"})
    await engine.queue(call)

    async with everything(transport, Isolation.SHARED) as config, one_life(engine, config):
        (ended,) = await engine.until_final(call)

    assert ended.outcome is CallOutcome.RESULT
    assert b"Echo: hello" in (await engine.result(call) or b"")


@pytest.mark.requirement("R33")
async def test_a_task_in_a_child_that_is_gone_may_have_run(engine: Engine) -> None:
    call = a_call_to(engine, RESEARCH, arguments={"topic": "sleep"})
    await engine.queue(call)
    config = await over_stdio()

    async with one_life(engine, config, drain_seconds=0.01):
        await until_kept(engine, call)
    async with one_life(engine, config):
        (ended,) = await engine.until_final(call)

    assert (ended.outcome, ended.runs) == (CallOutcome.UNKNOWN, 1)
