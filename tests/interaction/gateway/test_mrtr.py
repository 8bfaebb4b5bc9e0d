"""Modern input rounds of tools and prompts, against the server of the conformance suite."""

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from scripts.conformance_runs.fixture import Fixture
from tests.interaction.gateway.conftest import ELICITATION_CAPABILITY
from tests.support.application import running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, ModernClient
from tests.support.upstreams import make_http_config, serving

ASKING_TOOL = "test_input_required_result_elicitation"
ASKING_TWICE_TOOL = "test_input_required_result_multi_round"
ALICE: Json = {"action": "accept", "content": {"name": "Alice"}}

pytestmark = pytest.mark.requirement("R32")


@pytest.fixture(scope="module")
async def client(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModernClient]:
    app: Any = Fixture().app()
    async with (
        serving(app) as server,
        running_application(module_path_factory.mktemp("rounds"), make_http_config(server.url), auth="off") as ringback,
        serving(ringback.app.api) as near,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
    ):
        yield ModernClient(http, f"{near.url}/stage")


async def call(client: ModernClient, name: str, **rest: Any) -> Json:
    return await client.request("tools/call", {"name": name, "arguments": {}, **rest}, declare=ELICITATION_CAPABILITY)


async def prompt(client: ModernClient, **rest: Any) -> Json:
    params = {"name": "test_input_required_result_prompt", **rest}
    return await client.request("prompts/get", params, declare=ELICITATION_CAPABILITY)


async def test_questions_keep_the_names_that_the_upstream_gave_them(client: ModernClient) -> None:
    requested = await call(client, ASKING_TOOL)

    assert list(requested["inputRequests"]) == ["user_name"]
    returned = await call(
        client, ASKING_TOOL, requestState=requested["requestState"], inputResponses={"user_name": ALICE}
    )
    assert returned["content"][0]["text"] == "Hello, Alice!"


async def test_an_answer_of_an_earlier_round_answers_no_later_question(client: ModernClient) -> None:
    first = await call(client, ASKING_TWICE_TOOL)
    answered = {"step1": ALICE, "step2": ALICE}
    second = await call(client, ASKING_TWICE_TOOL, requestState=first["requestState"], inputResponses=answered)
    again = await call(client, ASKING_TWICE_TOOL, requestState=first["requestState"], inputResponses=answered)

    assert list(second["inputRequests"]) == list(again["inputRequests"]) == ["step2"]
    colour = {"step2": {"action": "accept", "content": {"color": "blue"}}}
    done = await call(client, ASKING_TWICE_TOOL, requestState=second["requestState"], inputResponses=colour)
    assert done["content"][0]["text"] == "Both steps are done."


async def test_answers_sent_with_the_first_request_are_used_and_unknown_ones_are_ignored(client: ModernClient) -> None:
    returned = await call(client, ASKING_TOOL, inputResponses={"user_name": ALICE, "unknown": ALICE})
    requested = await call(client, ASKING_TOOL, inputResponses={"unknown": ALICE})

    assert returned["content"][0]["text"] == "Hello, Alice!"
    assert list(requested["inputRequests"]) == ["user_name"]


async def test_a_prompt_requests_input_and_gets_an_answer(client: ModernClient) -> None:
    requested = await prompt(client)
    context = {"user_context": {"action": "accept", "content": {"context": "here"}}}
    returned = await prompt(client, requestState=requested["requestState"], inputResponses=context)

    assert (requested["resultType"], list(requested["inputRequests"])) == ("input_required", ["user_context"])
    assert returned["messages"][0]["content"]["text"] == "Use this context."


async def test_a_prompts_request_state_is_valid_only_for_prompts_and_cannot_be_forged(client: ModernClient) -> None:
    state = (await prompt(client))["requestState"]

    with pytest.raises(JsonRpcErrorResponse, match="requestState") as of_a_prompt:
        await call(client, ASKING_TOOL, requestState=state)
    with pytest.raises(JsonRpcErrorResponse, match="requestState") as made_up:
        await prompt(client, requestState=f"{state[:-8]}AAAAAAA=")
    assert of_a_prompt.value.code == made_up.value.code == -32602
