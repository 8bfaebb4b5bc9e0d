"""The options of the reports of tool calls, and what of a call is reported."""

import json
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from mcp_types import CallToolRequestParams

from ringback.extension.tool_call_reporting import ToolCallReporting
from ringback.schemas import examples


def test_a_single_text_is_no_collection_of_tools() -> None:
    """Its characters would be taken for names, and no call would be reported."""
    with pytest.raises(ValueError, match="`tools` must be a sequence"):
        ToolCallReporting.reporting("http://127.0.0.1:8090", upstream="reports", tools="build_report")


async def test_a_call_whose_arguments_hold_nan_is_reported_with_null_in_its_place() -> None:
    """The SDK accepts the literal NaN, which is no JSON: no report of the call could be sent, and its callback was lost."""
    reports: list[dict[str, Any]] = []

    def record(request: httpx.Request) -> httpx.Response:
        reports.append(json.loads(request.content))
        return httpx.Response(200, json={"call": examples.FINISHED_CALL, "resume_token": "t", "webhooks": []})

    async def run_tool(_: Any) -> Any:
        return {"content": []}

    params = CallToolRequestParams.model_validate_json('{"name": "build", "arguments": {"size": NaN, "of": [1]}}')
    context = cast("Any", SimpleNamespace(meta=None, request=None, protocol_version="2026-07-28"))
    transport = httpx.MockTransport(record)
    async with ToolCallReporting.reporting("http://ringback", upstream="reports", transport=transport) as reporting:
        await reporting.report_tool_call(params, context, run_tool)

    assert reports[-1]["arguments"] == {"size": None, "of": [1]}
    assert reports[-1]["result"]["content"] == []
