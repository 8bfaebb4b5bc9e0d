"""Rounds of questions of 2026-07-28, of tools and of prompts, before the server that the conformance suite is run against."""

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from scripts.conformance_runs.fixture import Fixture
from tests.interaction.gateway.conftest import ASKABLE
from tests.support.application import running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, Modern, Refused
from tests.support.upstreams import http_config, serving

ASKS = "test_input_required_result_elicitation"
ASKS_TWICE = "test_input_required_result_multi_round"
ALICE: Json = {"action": "accept", "content": {"name": "Alice"}}

pytestmark = pytest.mark.requirement("R32")


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Modern]:
    app: Any = Fixture().app()
    async with (
        serving(app) as server,
        running_application(tmp_path_factory.mktemp("rounds"), http_config(server.url), auth="off") as ringback,
        serving(ringback.app.api) as near,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
    ):
        yield Modern(http, f"{near.url}/stage")


async def call(client: Modern, name: str, **rest: Any) -> Json:
    return await client.result("tools/call", {"name": name, "arguments": {}, **rest}, declare=ASKABLE)


async def prompt(client: Modern, **rest: Any) -> Json:
    params = {"name": "test_input_required_result_prompt", **rest}
    return await client.result("prompts/get", params, declare=ASKABLE)


async def test_questions_keep_the_names_that_the_upstream_gave_them(client: Modern) -> None:
    asked = await call(client, ASKS)

    assert list(asked["inputRequests"]) == ["user_name"]
    told = await call(client, ASKS, requestState=asked["requestState"], inputResponses={"user_name": ALICE})
    assert told["content"][0]["text"] == "Hello, Alice!"


async def test_an_answer_of_an_earlier_round_answers_nothing_of_a_later_one(client: Modern) -> None:
    first = await call(client, ASKS_TWICE)
    answered = {"step1": ALICE, "step2": ALICE}
    second = await call(client, ASKS_TWICE, requestState=first["requestState"], inputResponses=answered)
    again = await call(client, ASKS_TWICE, requestState=first["requestState"], inputResponses=answered)

    assert list(second["inputRequests"]) == list(again["inputRequests"]) == ["step2"]
    colour = {"step2": {"action": "accept", "content": {"color": "blue"}}}
    done = await call(client, ASKS_TWICE, requestState=second["requestState"], inputResponses=colour)
    assert done["content"][0]["text"] == "Both steps are done."


async def test_what_is_answered_before_it_is_asked_is_not_asked_and_the_rest_is_ignored(client: Modern) -> None:
    told = await call(client, ASKS, inputResponses={"user_name": ALICE, "unknown": ALICE})
    asked = await call(client, ASKS, inputResponses={"unknown": ALICE})

    assert told["content"][0]["text"] == "Hello, Alice!"
    assert list(asked["inputRequests"]) == ["user_name"]


async def test_a_prompt_asks_and_is_answered(client: Modern) -> None:
    asked = await prompt(client)
    context = {"user_context": {"action": "accept", "content": {"context": "here"}}}
    told = await prompt(client, requestState=asked["requestState"], inputResponses=context)

    assert (asked["resultType"], list(asked["inputRequests"])) == ("input_required", ["user_context"])
    assert told["messages"][0]["content"]["text"] == "Use this context."


async def test_a_prompts_state_is_good_for_prompts_only_and_not_to_be_made(client: Modern) -> None:
    state = (await prompt(client))["requestState"]

    with pytest.raises(Refused, match="requestState") as of_a_prompt:
        await call(client, ASKS, requestState=state)
    with pytest.raises(Refused, match="requestState") as made_up:
        await prompt(client, requestState=f"{state[:-8]}AAAAAAA=")
    assert of_a_prompt.value.code == made_up.value.code == -32602
