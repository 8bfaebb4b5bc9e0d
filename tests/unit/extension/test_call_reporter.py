"""The last report of a call, whatever its tool returns, and the requestState of a call that is continued."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import pytest
from mcp import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, TextContent

from ringback.domain import jsontext
from ringback.extension.call_reporter import CallReporter, pop_report_key
from ringback.extension.callback_request import parse_callback_request
from ringback.extension.report_outbox import RecordedReport, ReportChannel
from ringback.schemas.reports import ReportBody
from ringback.services.calls.reports import REPORTED_RESULT_BYTES_MAX
from tests.support.clock import FakeClock

REPORT: Final[dict[str, Any]] = {"key": "extension:1", "upstream": "reports", "tool": "build"}


async def read_last_report(end_call: Callable[[CallReporter], Awaitable[Any]], **members: Any) -> dict[str, Any]:
    """What `end_call` lets the service have of a call with these members."""
    sent: list[Any] = []

    async def send(report: Any) -> RecordedReport:
        sent.append(report)
        return RecordedReport(call_id="call_1", has_listeners=True)

    channel = ReportChannel(send, clock=FakeClock(), random_fraction=lambda: 0.5)
    reporter = CallReporter(channel, {**REPORT, **members}, parse_callback_request({}), waits_for_attempt=False)
    await end_call(reporter)
    await channel.send_reports()
    assert len(jsontext.dumps(sent[-1])) <= REPORTED_RESULT_BYTES_MAX
    ReportBody.model_validate(sent[-1]).to_report()  # the service takes it
    last: dict[str, Any] = sent[-1]
    return last


async def test_a_call_that_became_a_task_ends_with_an_error_that_says_so_and_promises_nothing() -> None:
    task: Any = {"resultType": "task", "taskId": "t1"}
    results: list[Any] = []

    async def end_call(reporter: CallReporter) -> None:
        results.append(await reporter.report_result(task))

    last = await read_last_report(end_call)

    assert results == [task]
    assert "as a task" in last["error"]["message"]


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(CallToolResult(content=[], structured_content={"made": object()}), id="no JSON"),
        pytest.param(
            CallToolResult(content=[TextContent(text="x" * REPORTED_RESULT_BYTES_MAX)]), id="larger than a request"
        ),
        pytest.param(CallToolResult(content=[TextContent(text="\ud800")]), id="a text without a form as UTF-8"),
    ],
)
async def test_a_result_that_no_report_can_carry_ends_its_call_with_an_error(result: CallToolResult) -> None:
    """Its callback came after a day, as `unknown`, and its channel stayed open: after a thousand no call was reported."""
    last = await read_last_report(lambda reporter: reporter.report_result(result))

    assert "cannot be stored" in last["error"]["message"]


async def test_a_result_that_is_too_large_beside_the_arguments_is_reported_without_them() -> None:
    """The service refused the whole request. It has the arguments from the first report."""
    text = "x" * (REPORTED_RESULT_BYTES_MAX - 1000)

    last = await read_last_report(
        lambda reporter: reporter.report_result(CallToolResult(content=[TextContent(text=text)])),
        arguments={"about": "y" * 1000},
    )

    assert last["result"]["content"][0]["text"] == text
    assert "arguments" not in last


async def test_arguments_that_fill_a_request_are_left_out_of_all_reports() -> None:
    last = await read_last_report(
        lambda reporter: reporter.report_result(CallToolResult(content=[])),
        arguments={"about": "y" * (REPORTED_RESULT_BYTES_MAX - 20)},
    )

    assert (last["result"]["content"], "arguments" in last) == ([], False)


@pytest.mark.parametrize(
    ("message", "data"),
    [
        ("too long " * 10_000, None),
        ("no JSON", object()),
        ("too large", ["x" * 100_000]),
        ("no number", [float("nan")]),
    ],
)
async def test_an_error_that_no_report_can_carry_is_reported_by_its_code_and_its_message(
    message: str, data: Any
) -> None:
    """The service refused it, and the callback came after a day, as `unknown`."""
    last = await read_last_report(lambda reporter: reporter.report_error(MCPError(-32000, message, data)))

    assert last["error"]["code"] == -32000
    assert message.startswith(last["error"]["message"])


@pytest.mark.parametrize(
    "state",
    [
        "ringback:{",
        "ringback:5",
        'ringback:["key"]',
        'ringback:["key", 5]',
        "ringback:[5, null]",
        'ringback:["job-42", null]',
    ],
)
def test_a_forged_request_state_is_invalid_and_no_internal_error(state: str) -> None:
    """The SDK refuses it before, unless its server has switched off the seal."""
    params = CallToolRequestParams(name="build", request_state=state)

    with pytest.raises(MCPError) as refused:
        pop_report_key(params, cast("Any", None))

    assert refused.value.error.code == INVALID_PARAMS
