"""The model with a script does what a tool's text says, in the form of each provider."""

import json
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from scripts.interop_runs.judge import WAIT_TOOL
from scripts.interop_runs.scripted_model import NAMESPACE_END, Script, ToolUse, Turn, find_tool, serving_model

CALL_ID = "call_01M83W2FYT349SRHZNVBD5BTBG"
TOOLS = ["mcp__stage__slow", f"mcp__stage__{WAIT_TOOL}"]


def make_script() -> Script:
    return Script(tool="slow", arguments={"key": "k"}, outcome="outcome-1")


def test_it_calls_the_tool_waits_while_the_call_is_pending_and_repeats_the_result() -> None:
    script = make_script()
    steps = [
        script.next_step(Turn(TOOLS, results))
        for results in ([], [f"runs as {CALL_ID}"], [f"runs as {CALL_ID}", f"{CALL_ID}: outcome-1"])
    ]

    assert steps[:2] == [ToolUse(TOOLS[0], {"key": "k"}), ToolUse(TOOLS[1], {"call_id": CALL_ID})]
    assert "outcome-1" in str(steps[2])
    assert script.results[-1] == f"{CALL_ID}: outcome-1"


def test_results_of_the_clients_own_tools_come_before_its_first_call() -> None:
    script = make_script()
    search = ToolUse("ToolSearch", {"query": "mcp__stage", "max_results": 50})
    assert script.next_step(Turn(["ToolSearch"], [])) == search
    assert script.next_step(Turn(TOOLS, ["ready"])) == ToolUse(TOOLS[0], {"key": "k"})
    assert script.results == []


@pytest.mark.parametrize("name", ["slow", "mcp_stage_slow", f"mcp__stage{NAMESPACE_END}slow"])
def test_a_tool_is_found_by_its_name_below_that_of_its_server(name: str) -> None:
    assert find_tool(["slower", name], "slow") == name


FORMS: Mapping[str, Any] = {
    "/v1/messages": {"tools": [{"name": "mcp__stage__slow"}], "messages": [{"role": "user", "content": "go"}]},
    "/v1/responses": {
        "tools": [{"type": "namespace", "name": "mcp__stage", "tools": [{"name": "slow"}]}],
        "input": [],
    },
    "/v1beta/models/m:streamGenerateContent": {
        "tools": [{"functionDeclarations": [{"name": "mcp_stage_slow"}]}],
        "contents": [{"parts": [{"text": "go"}]}],
    },
}


@pytest.mark.parametrize("path", FORMS)
def test_each_form_of_a_request_gets_a_call_of_the_tool(path: str) -> None:
    with serving_model(make_script()) as url:
        answer = httpx2.post(f"{url}{path}", json=FORMS[path], trust_env=False).text

    events = [json.loads(line.removeprefix("data: ")) for line in answer.splitlines() if line.startswith("data: ")]
    assert any("slow" in json.dumps(event) for event in events)
