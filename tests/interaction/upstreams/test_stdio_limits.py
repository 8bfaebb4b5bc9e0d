"""Children that write too much, too fast, or nothing at all: memory is bounded and other calls do not wait."""

import asyncio
import base64
import json
import os
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from ringback.domain.call import Progress
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.clock import SystemClock
from ringback.domain.principal import Principal
from ringback.protocol.transport_errors import EVENT_BYTES_MAX
from ringback.upstreams.catalog import listing
from ringback.upstreams.config import Isolation
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.message_flow import REQUEST_LIMIT
from ringback.upstreams.registry import UpstreamRegistry
from ringback.upstreams.transports import child_input
from ringback.upstreams.transports import stdio as pipe
from ringback.upstreams.transports.child_records import ChildRecords
from tests.support.clock import FastForwardClock
from tests.support.examples import ALICE, BOB, CALL
from tests.support.malformed_messages import VALID_RESPONSE
from tests.support.recording_call_context import RecordingCallContext
from tests.support.upstreams import (
    WAIT_SECONDS,
    make_python_config,
    make_raw_config,
    open_bound_driver,
    open_upstreams,
    run_upstream_call,
    wait_until_true,
)


def get_info(upstreams: UpstreamRegistry) -> Any:
    (info,) = upstreams.tool_catalog.list_upstreams()
    return info


def completion_message(ending: CallCompletion) -> str:
    assert ending.error is not None
    return ending.error["message"]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(VALID_RESPONSE.replace(b"fine", b"x" * 100_000), id="its id comes first"),
        pytest.param(b'{"result":{"x":"%s"},"jsonrpc":"2.0","id":@ID@}\n' % (b"x" * 100_000), id="its id comes last"),
    ],
)
async def test_an_answer_that_is_too_long_ends_its_call_and_the_session_goes_on(
    raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe, "EVENT_BYTES_MAX", 50_000)
    async with open_upstreams(make_raw_config()) as upstreams:
        ending = await run_upstream_call(upstreams, "say", {"raw": base64.b64encode(raw).decode()})
        after = await run_upstream_call(upstreams, "whoami")
        faults = get_info(upstreams).faults

    assert ending.outcome is CallOutcome.UPSTREAM_ERROR
    assert "larger than 50000 bytes" in completion_message(ending)
    assert after.outcome is CallOutcome.RESULT
    assert faults == {"oversized": 1}


async def test_fifty_megabytes_without_a_newline_are_skipped_and_the_answer_behind_them_is_read() -> None:
    async with open_upstreams(make_raw_config()) as upstreams:
        ending = await run_upstream_call(upstreams, "pour", {"bytes": 50 * 1024**2})
        faults = get_info(upstreams).faults

    assert EVENT_BYTES_MAX < 50 * 1024**2
    assert ending.outcome is CallOutcome.RESULT
    assert faults == {"oversized": 1}


async def test_the_newest_of_many_progress_notifications_arrives_before_the_response() -> None:
    seen: list[float] = []

    async def keep(progress: Progress) -> None:
        seen.append(progress.progress)

    async with open_upstreams(make_raw_config()) as upstreams:
        ending = await run_upstream_call(upstreams, "flood", {"count": 10_000}, on_progress=keep)
        faults = get_info(upstreams).faults

    assert ending.outcome is CallOutcome.RESULT
    assert seen[-1] == 10_000
    assert len(seen) + faults["dropped_notifications"] == 10_000
    assert len(seen) < 5_000


async def test_a_flood_of_questions_is_refused_beyond_the_limit_and_holds_up_no_response() -> None:
    async with open_upstreams(make_raw_config()) as upstreams, asyncio.timeout(WAIT_SECONDS):
        flooding = run_upstream_call(upstreams, "interrogate", {"count": 1_000})
        endings = await asyncio.gather(flooding, run_upstream_call(upstreams, "whoami"))
        faults = get_info(upstreams).faults

    assert [ending.outcome for ending in endings] == [CallOutcome.RESULT] * 2
    assert faults["slowed"] >= 1_000 - REQUEST_LIMIT.burst - REQUEST_LIMIT.per_second * WAIT_SECONDS


async def test_questions_that_the_child_has_withdrawn_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "CHILD_REQUESTS_MAX", 1)
    question = b'{"jsonrpc":"2.0","id":%d,"method":"elicitation/create"}\n'
    withdrawal = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}\n'
    text = b"".join(question % number + withdrawal % number for number in range(3)) + question % 3
    code = f"import sys; sys.stdout.buffer.write({text!r}); sys.stdout.flush(); sys.stdin.read()"
    faults = FaultCounter("stage", clock=SystemClock())
    opening = pipe.open_stdio(make_python_config("-c", code), faults=faults, child_records=ChildRecords(None))
    async with asyncio.timeout(WAIT_SECONDS), opening as ((from_child, _), _):
        received = [await from_child.receive() for _ in range(7)]

    messages = [each.message for each in received if isinstance(each, SessionMessage)]
    assert [each.id for each in messages if isinstance(each, JSONRPCRequest)] == [0, 1, 2, 3]
    assert faults.counts == {}


async def test_a_list_with_more_tools_than_are_kept_is_cut_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "ENTRIES_MAX", 1000)
    async with open_upstreams(make_raw_config(RAW_TOOLS="3000")) as upstreams:
        ending = await run_upstream_call(upstreams, "whoami")
        tools = await upstreams.tool_catalog.list_tools("stage", principal=ALICE)
        faults = get_info(upstreams).faults

    assert ending.outcome is CallOutcome.RESULT
    assert len(tools) == 1000
    assert faults == {"list_cut": 1}


async def test_a_page_that_is_too_large_is_refused_unread_and_tools_are_called_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipe, "LIST_BYTES_MAX", 50_000)
    async with open_upstreams(make_raw_config(RAW_TOOLS="3000")) as upstreams:
        ending = await run_upstream_call(upstreams, "whoami")
        faults = get_info(upstreams).faults

    assert ending.outcome is CallOutcome.RESULT
    assert faults["oversized"] >= 1


async def test_a_flood_of_errors_delays_no_other_call() -> None:
    async with open_upstreams(make_raw_config()) as upstreams:
        assert (await run_upstream_call(upstreams, "spill", {"count": 5_000})).outcome is CallOutcome.RESULT


async def test_a_child_that_reads_nothing_ends_no_other_call_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_input, "WRITE_TIMEOUT_SECONDS", 0.2)
    large = base64.b64encode(VALID_RESPONSE + b"\n" * 500_000).decode()
    async with open_upstreams(make_raw_config()) as upstreams:
        deaf = asyncio.create_task(run_upstream_call(upstreams, "deaf", {"until": str(tmp_path / "now")}))
        await wait_until_true(lambda: get_info(upstreams).calls_in_flight == 1)
        half_written = asyncio.create_task(run_upstream_call(upstreams, "say", {"raw": large}))
        await wait_until_true(lambda: get_info(upstreams).calls_in_flight == 2)
        other = await run_upstream_call(upstreams, "whoami")
        faults = get_info(upstreams).faults
        (tmp_path / "now").touch()
        endings = await asyncio.gather(deaf, half_written)

    assert [ending.outcome for ending in (other, *endings)] == [CallOutcome.RESULT] * 3
    assert faults["stalled"] >= 1


async def find_pid(upstreams: UpstreamRegistry) -> int:
    ending = await run_long_call(upstreams, "whoami")
    assert ending.result is not None
    return json.loads(json.loads(ending.result)["content"][0]["text"])["pid"]


async def test_a_request_that_a_child_did_not_read_before_its_end_is_sent_to_the_next_one(tmp_path: Path) -> None:
    """It waited behind a large one, was never written, and ended as if its tool might have run."""
    large = base64.b64encode(VALID_RESPONSE + b"\n" * 500_000).decode()
    async with open_upstreams(make_raw_config()) as upstreams:
        pid = await find_pid(upstreams)
        deaf = asyncio.create_task(run_upstream_call(upstreams, "deaf", {"until": str(tmp_path / "never")}))
        await wait_until_true(lambda: get_info(upstreams).calls_in_flight == 1)
        half_written = asyncio.create_task(run_upstream_call(upstreams, "say", {"raw": large}))
        await wait_until_true(lambda: get_info(upstreams).calls_in_flight == 2)
        queued = [asyncio.create_task(run_upstream_call(upstreams, "whoami")) for _ in range(3)]
        await wait_until_true(lambda: get_info(upstreams).calls_in_flight == 5)
        os.kill(pid, signal.SIGKILL)
        endings = await asyncio.gather(deaf, half_written, *queued)

    assert [ending.outcome for ending in endings] == [CallOutcome.UNKNOWN] * 2 + [CallOutcome.RESULT] * 3


# -- frozen -----------------------------------------------------------------------------------------------------------------


async def run_long_call(
    upstreams: UpstreamRegistry, tool: str, arguments: dict[str, Any] | None = None, *, principal: Principal = ALICE
) -> CallCompletion:
    """A call whose deadline does not pass on a clock that runs 250 times as fast: a late child would count as frozen."""
    deadline = SystemClock().now() + timedelta(hours=10_000)
    call = replace(
        CALL,
        principal=principal,
        upstream="stage",
        tool=tool,
        arguments=arguments or {},
        meta={},
        deadline_at=deadline,
    )
    async with asyncio.timeout(2 * WAIT_SECONDS), open_bound_driver(upstreams, call) as session:
        ending = await session.run_call(RecordingCallContext(call))
    assert isinstance(ending, CallCompletion)
    return ending


async def test_a_child_that_was_stopped_is_replaced_and_its_calls_are_unknown() -> None:
    async with open_upstreams(make_raw_config(), clock=FastForwardClock()) as upstreams:
        ending = await run_long_call(upstreams, "freeze")
        after = await run_long_call(upstreams, "whoami")
        faults = get_info(upstreams).faults

    assert ending.outcome is CallOutcome.UNKNOWN
    assert completion_message(ending).startswith("Ringback replaced the upstream's command, which did not respond.")
    assert after.outcome is CallOutcome.RESULT
    assert faults == {"replaced": 1}


@pytest.mark.parametrize("isolation", [Isolation.PRINCIPAL, Isolation.CALL])
async def test_a_stopped_child_of_one_principal_or_one_call_is_replaced_too(isolation: Isolation) -> None:
    """Every call of the principal waited for it until its deadline."""
    config = replace(make_raw_config(), isolation=isolation)
    async with open_upstreams(config, clock=FastForwardClock()) as upstreams:
        ending = await run_long_call(upstreams, "freeze")
        after = await run_long_call(upstreams, "whoami")

    assert ending.outcome is CallOutcome.UNKNOWN
    assert completion_message(ending).startswith("Ringback replaced the upstream's command, which did not respond.")
    assert after.outcome is CallOutcome.RESULT


async def test_a_hung_child_of_one_principal_is_replaced_although_calls_of_another_one_have_time(
    tmp_path: Path,
) -> None:
    never, later = tmp_path / "never", tmp_path / "later"
    config = replace(make_raw_config(), isolation=Isolation.PRINCIPAL)
    async with open_upstreams(config, clock=FastForwardClock()) as upstreams:
        busy = asyncio.create_task(run_long_call(upstreams, "deaf", {"until": str(later)}, principal=BOB))
        hung = asyncio.create_task(run_long_call(upstreams, "deaf", {"until": str(never)}))
        await wait_until_true(lambda: all(Path(f"{each}.awaited").exists() for each in (never, later)))
        hung.cancel()
        await asyncio.wait({hung})
        await wait_until_true(lambda: get_info(upstreams).faults.get("replaced") == 1)
        after = await run_long_call(upstreams, "whoami")
        later.touch()
        ending = await busy
        faults = get_info(upstreams).faults

    assert [after.outcome, ending.outcome] == [CallOutcome.RESULT] * 2
    assert faults == {"replaced": 1}


async def test_a_busy_child_is_shown_as_unresponsive_and_left_at_work(tmp_path: Path) -> None:
    async with open_upstreams(make_raw_config(), clock=FastForwardClock()) as upstreams:
        call = asyncio.create_task(run_long_call(upstreams, "deaf", {"until": str(tmp_path / "now")}))
        await wait_until_true(lambda: get_info(upstreams).state == "unresponsive")
        shown = get_info(upstreams)
        (tmp_path / "now").touch()
        ending = await call
        await wait_until_true(lambda: get_info(upstreams).state == "ready")
        faults = get_info(upstreams).faults

    assert ending.outcome is CallOutcome.RESULT
    assert (shown.driver, shown.last_error) == ("plain", "unresponsive")
    assert shown.advice is not None
    assert "ringback calls list --upstream stage" in shown.advice
    assert faults == {}


async def test_a_state_is_shown_with_the_time_since_which_it_lasts(tmp_path: Path) -> None:
    async with open_upstreams(make_raw_config(), clock=FastForwardClock()) as upstreams:
        ready = get_info(upstreams).state_since
        call = asyncio.create_task(run_long_call(upstreams, "deaf", {"until": str(tmp_path / "now")}))
        await wait_until_true(lambda: get_info(upstreams).state == "unresponsive")
        unresponsive = get_info(upstreams).state_since
        (tmp_path / "now").touch()
        await call
        await wait_until_true(lambda: get_info(upstreams).state == "ready")
        ready_again = get_info(upstreams).state_since

    assert ready is not None
    assert unresponsive is not None
    assert ready_again is not None
    assert ready < unresponsive < ready_again


async def test_a_silent_child_is_replaced_once_no_call_waits_for_it(tmp_path: Path) -> None:
    async with open_upstreams(make_raw_config(), clock=FastForwardClock()) as upstreams:
        call = asyncio.create_task(run_long_call(upstreams, "deaf", {"until": str(tmp_path / "never")}))
        await wait_until_true(lambda: get_info(upstreams).state == "unresponsive")
        call.cancel()
        await asyncio.wait({call})
        await wait_until_true(lambda: get_info(upstreams).faults.get("replaced") == 1)
        after = await run_long_call(upstreams, "whoami")

    assert after.outcome is CallOutcome.RESULT


async def test_an_idle_child_that_is_stopped_from_outside_is_replaced() -> None:
    async with open_upstreams(make_raw_config(), clock=FastForwardClock()) as upstreams:
        os.kill(await find_pid(upstreams), signal.SIGSTOP)
        await wait_until_true(lambda: get_info(upstreams).faults.get("replaced") == 1)
        assert (await run_long_call(upstreams, "whoami")).outcome is CallOutcome.RESULT
