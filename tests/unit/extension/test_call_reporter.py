"""The report of a call that another extension turned into a task, and the requestState of a call that is continued."""

from typing import Any, cast

import pytest
from mcp import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams

from ringback.extension.call_reporter import CallReporter, pop_report_key
from ringback.extension.callback_request import parse_callback_request
from ringback.extension.report_outbox import RecordedReport, ReportChannel
from tests.support.clock import FakeClock


async def test_a_call_that_became_a_task_ends_with_an_error_that_says_so_and_promises_nothing() -> None:
    sent: list[Any] = []

    async def send(report: Any) -> RecordedReport:
        sent.append(report)
        return RecordedReport(call_id="call_1", has_listeners=True)

    channel = ReportChannel(send, clock=FakeClock(), random_fraction=lambda: 0.5)
    reporter = CallReporter(channel, {"tool": "build"}, parse_callback_request({}), waits_for_attempt=False)
    task: Any = {"resultType": "task", "taskId": "t1"}
    result = await reporter.report_result(task)
    await channel.send_reports()

    assert result == task
    assert "as a task" in sent[-1]["error"]["message"]


@pytest.mark.parametrize(
    "state", ["ringback:{", "ringback:5", 'ringback:["key"]', 'ringback:["key", 5]', "ringback:[5, null]"]
)
def test_a_forged_request_state_is_invalid_and_no_internal_error(state: str) -> None:
    """The SDK refuses it before, unless its server has switched off the seal."""
    params = CallToolRequestParams(name="build", request_state=state)

    with pytest.raises(MCPError) as refused:
        pop_report_key(params, cast("Any", None))

    assert refused.value.error.code == INVALID_PARAMS
