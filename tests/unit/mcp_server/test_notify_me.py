"""A model registers a callback with `ringback_notify_me`, and reads what to do next instead of a secret."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest

from ringback.domain.ids import WebhookId
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal, Scope
from ringback.domain.webhook import Webhook, WebhookOrigin
from ringback.mcp_server.builtin_tools.notify_me import EXPIRES_IN_SECONDS_DEFAULT, NOTIFY_ME_DEFINITION, NotifyMeTool
from ringback.services.calls.call_starts import StartCallRequest
from ringback.services.calls.new_calls import TIMEOUT_SECONDS_MAX
from tests.support.service import CALLBACK_URL, ServiceUnderTest, running_service

ALICE: Final = Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES)
MALLORY: Final = Caller(principal=Principal("mallory"), scopes=DEFAULT_SCOPES)


@dataclass(frozen=True, slots=True)
class NotifyMeHarness:
    service: ServiceUnderTest
    tool: NotifyMeTool

    async def start_call(self, caller: Caller = ALICE, **request: Any) -> str:
        started = await self.service.services.calls.start_call(
            caller, StartCallRequest(upstream="git", tool="git_status", **request)
        )
        return started.call.id

    async def register(self, caller: Caller = ALICE, **arguments: Any) -> dict[str, Any]:
        """The tool's result, always validated against its schemas."""
        result = await self.tool.register_callback(caller, {"url": CALLBACK_URL} | arguments)
        if not result["isError"]:
            jsonschema.validate(result["structuredContent"], NOTIFY_ME_DEFINITION["outputSchema"])
        return result

    async def read_webhook(self, result: dict[str, Any]) -> Webhook:
        webhook_id = WebhookId(result["structuredContent"]["webhook_id"])
        webhook = await self.service.store.read(lambda tx: tx.webhooks.get(webhook_id))
        assert webhook is not None
        return webhook


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncGenerator[NotifyMeHarness]:
    async with running_service(tmp_path) as service:
        yield NotifyMeHarness(
            service, NotifyMeTool(calls=service.services.calls, registrations=service.services.registrations)
        )


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def test_the_tool_describes_its_input_its_output_and_its_effects() -> None:
    for schema in (NOTIFY_ME_DEFINITION["inputSchema"], NOTIFY_ME_DEFINITION["outputSchema"]):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert "$ref" not in json.dumps(schema)
    assert NOTIFY_ME_DEFINITION["inputSchema"]["required"] == ["url"]
    assert not {"secret", "include_result"} & NOTIFY_ME_DEFINITION["inputSchema"]["properties"].keys()
    assert NOTIFY_ME_DEFINITION["annotations"]["readOnlyHint"] is False


def test_a_registration_lives_as_long_as_the_longest_call() -> None:
    assert EXPIRES_IN_SECONDS_DEFAULT == TIMEOUT_SECONDS_MAX


async def test_a_callback_for_one_call_arrives_also_if_the_call_has_ended(harness: NotifyMeHarness) -> None:
    call_id = await harness.start_call()
    await harness.service.finish_call(call_id)

    result = await harness.register(call_id=call_id)

    assert result["structuredContent"]["call_id"] == call_id
    assert [each.call_id for each in await harness.service.read_deliveries("alice")] == [call_id]


async def test_a_callback_for_a_session_receives_its_later_calls_only(harness: NotifyMeHarness) -> None:
    result = await harness.register(client_session_id="session-1", correlation_id="inbox")
    mine = await harness.start_call(client_session_id="session-1")
    for call_id in (mine, await harness.start_call(client_session_id="session-2")):
        await harness.service.finish_call(call_id)

    assert [each.call_id for each in await harness.service.read_deliveries("alice")] == [mine]
    assert "client_session_id 'session-1'" in result["structuredContent"]["hears"] or result["structuredContent"][
        "hears"
    ].startswith("Receives nothing until the URL has answered its challenge")


async def test_a_callback_for_all_that_follows_can_be_limited_to_one_upstream(harness: NotifyMeHarness) -> None:
    every = await harness.read_webhook(await harness.register())
    some = await harness.read_webhook(await harness.register(upstream="git"))

    assert (every.upstream, every.client_session_id, every.call_id) == (None, None, None)
    assert some.upstream == "git"


@pytest.mark.requirement("R26")
async def test_the_url_must_be_verified_before_it_receives_callbacks(harness: NotifyMeHarness) -> None:
    result = await harness.register()
    await harness.service.finish_call(await harness.start_call())

    webhook = await harness.read_webhook(result)
    assert webhook.origin is WebhookOrigin.MCP
    assert result["structuredContent"]["state"] == "pending_verification"
    assert "until the URL has answered its challenge" in text(result)
    assert f"`ringback webhooks verify {webhook.id}`" in result["structuredContent"]["next_step"]
    assert [str(each.state) for each in await harness.service.read_deliveries("alice")] == ["held"]


async def test_the_result_contains_no_secret_and_says_how_to_get_it(harness: NotifyMeHarness) -> None:
    result = await harness.register()

    webhook = await harness.read_webhook(result)
    assert webhook.secrets[0].value not in json.dumps(result)
    assert "whsec_" not in json.dumps(result)
    assert f"ringback webhooks rotate-secret {webhook.id}" in text(result)


async def test_the_same_registration_again_is_the_same_webhook(harness: NotifyMeHarness) -> None:
    first, again = await harness.register(upstream="git"), await harness.register(upstream="git")
    other = await harness.register()

    assert first["structuredContent"]["webhook_id"] == again["structuredContent"]["webhook_id"]
    assert other["structuredContent"]["webhook_id"] != first["structuredContent"]["webhook_id"]


@pytest.mark.requirement("R25")
async def test_a_foreign_call_gets_the_error_of_an_unknown_one(harness: NotifyMeHarness) -> None:
    call_id = await harness.start_call()
    before = harness.service.count_rows()

    foreign = await harness.register(MALLORY, call_id=call_id)
    unknown = await harness.register(MALLORY, call_id="call_01JZZZZZZZZZZZZZZZZZZZZZZZ")

    assert foreign == unknown
    assert foreign["isError"]
    assert "ringback_list_calls" in text(foreign)
    assert harness.service.count_rows() == before


@pytest.mark.requirement("R25")
@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        ({"url": "https://inside.example/hook"}, "address"),
        ({"url": "http://agent.example/hook"}, "https"),
        ({"url": ""}, "url"),
        ({"url": 7}, "url"),
        ({"call_id": "call_1", "upstream": "git"}, "call_id selects one call"),
        ({"client_session_id": "x" * 257}, "client_session_id"),
        ({"correlation_id": "a\nb"}, "printable"),
        ({"expires_in_seconds": 0}, "expires_in_seconds"),
        ({"secret": "whsec_hidden"}, "secret"),
        ({"include_result": True}, "include_result"),
    ],
)
async def test_invalid_arguments_are_refused_with_words_and_register_nothing(
    harness: NotifyMeHarness, arguments: dict[str, Any], about: str
) -> None:
    before = harness.service.count_rows()

    refused = await harness.register(**arguments)

    assert refused["isError"]
    assert about in text(refused)
    assert "whsec_hidden" not in text(refused)
    assert harness.service.count_rows() == before


async def test_a_caller_without_the_scope_of_webhooks_is_refused_in_words(harness: NotifyMeHarness) -> None:
    refused = await harness.register(replace(ALICE, scopes=frozenset({Scope.CALLS, Scope.READ})))

    assert refused["isError"]
    assert "webhooks" in text(refused)
