"""Errors that a model reads name tools, and never a request that it cannot send."""

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ringback.domain.errors import NotFound
from ringback.mcp_server.builtin_tools.call_tools import build_validation_result
from ringback.mcp_server.builtin_tools.tool_schemas import WaitForCallArguments
from ringback.mcp_server.jsonrpc_errors import build_error_result, to_mcp_error
from ringback.mcp_server.tool_advice import name_tools
from ringback.upstreams.catalog.tool_catalog import upstream_unavailable

REQUEST: Final = re.compile(r"\b(GET|POST|PATCH|PUT|DELETE) /")
DETAILS: Final = [
    (
        "No call of yours has this id. List yours: GET /v1/calls",
        "No call of yours has this id. List yours with ringback_list_calls.",
    ),
    (
        "The call is still working. Wait for it: GET /v1/calls/call_1?wait_seconds=60",
        "The call is still working. Wait for it with ringback_wait_for_call.",
    ),
    (
        "The call ended as failed (unknown) and has no result. Its error is in GET /v1/calls/call_1",
        "The call ended as failed (unknown) and has no result. Get its error with ringback_get_call.",
    ),
    (
        "Upstream 'git' has no tool 'git_lgo'. Did you mean 'git_log'? List them: GET /v1/upstreams/git/tools",
        "Upstream 'git' has no tool 'git_lgo'. Did you mean 'git_log'? Choose one from the list of tools.",
    ),
    (
        (
            "They do not match: #/b: is missing. If the tool accepts them nevertheless, the operator can leave the check to it "
            '("check_arguments": false). See it: GET /v1/upstreams/git/tools'
        ),
        "They do not match: #/b: is missing. tools/list has its schema.",
    ),
    (
        "Upstream 'odd' cannot be started (command_or_folder_not_found). See what to do: GET /v1/upstreams",
        (
            "Upstream 'odd' cannot be started (command_or_folder_not_found). Do not try again: tell the user, who sees with "
            "`ringback upstreams` what to do."
        ),
    ),
    ("Try again. See its state: GET /v1/upstreams", "Try again. If that fails, tell the user."),
    (
        "Your quota is used up. Nothing was done. Remove webhooks: DELETE /v1/webhooks/{id}",
        "Your quota is used up. Nothing was done. Ask the user to remove webhooks: `ringback webhooks remove ID`.",
    ),
    (
        'It receives nothing. Enable it first: PATCH /v1/webhooks/wh_1 {"state": "active"}',
        "It receives nothing. Ask the user to enable it: `ringback webhooks enable wh_1`.",
    ),
    (
        "You have no event type 'x'. Declare it: PUT /v1/event-types/x",
        "You have no event type 'x'. Declare it: the user can, with Ringback's REST API",
    ),
    (
        "webhook: unknown. List yours: `ringback webhooks list`, or GET /v1/webhooks. Nothing was started.",
        "webhook: unknown. List yours: `ringback webhooks list`. Nothing was started.",
    ),
    ("The upstream said: 404 on GET /v2/things", "The upstream said: 404 on GET /v2/things"),
]


@pytest.mark.parametrize(("detail", "expected"), DETAILS)
def test_a_request_becomes_the_tool_that_does_the_same(detail: str, expected: str) -> None:
    assert name_tools(detail) == expected


@given(
    parts=st.lists(st.one_of(st.sampled_from(["GET /v1/", "DELETE /v1/webhooks", " ", ".", "List them: "]), st.text())),
)
def test_no_detail_keeps_a_request_of_our_rest_api(parts: list[str]) -> None:
    assert not re.search(r"(GET|POST|PATCH|PUT|DELETE) /v1/", name_tools("".join(parts)))


def test_json_rpc_errors_and_error_results_name_tools() -> None:
    detail = "No call of yours has this id. List yours: GET /v1/calls"

    shown = [to_mcp_error(NotFound(detail)).error.message, build_error_result(detail)["content"][0]["text"]]

    assert [REQUEST.search(text) for text in shown] == [None, None]
    assert all("ringback_list_calls" in text for text in shown)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        ("command_or_folder_not_found", "Do not try again"),
        ("command_cannot_be_started", "Do not try again"),
        ("connection_lost", "Try again in a moment"),
        (None, "Try again in a moment"),
    ],
)
def test_a_model_is_not_advised_to_call_a_mistyped_command_again(problem: str | None, words: str) -> None:
    assert words in name_tools(upstream_unavailable("odd", problem).detail)


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        ({}, "call_id: Field required. Nothing was done."),
        ({"call_id": "call_1", "zz": 1}, "The names are: call_id, wait_seconds. Nothing was done."),
        ({"call_id": "call_1", "wait": 1}, "Did you mean 'wait_seconds'? Nothing was done."),
    ],
)
def test_each_sentence_about_wrong_arguments_ends_once(arguments: dict[str, object], end: str) -> None:
    with pytest.raises(ValidationError) as refused:
        WaitForCallArguments.model_validate(arguments)

    (block,) = build_validation_result(refused.value, WaitForCallArguments)["content"]

    assert f"{end} Correct them and call the tool again." in block["text"]
