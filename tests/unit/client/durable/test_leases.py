"""Leases in the state: who may send the request of a call, as several callers read and write it."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import pytest

from ringback.client.durable import CallHandle, CallNotStarted, DurableCaller, McpTarget, MemoryRequestState
from ringback.client.durable.journal import CallJournal
from ringback.client.durable.local_call import LEASE_SECONDS, LocalCall
from ringback.client.durable.record import CallRecord, CallRequest, PlainPosition
from tests.support.limits import WAIT_SECONDS

REQUEST = CallRequest(tool="pay", idempotency_key="k")
RECORD = CallRecord(
    handle=CallHandle(
        id="req_1",
        target="http://mcp.example/mcp",
        kind="plain",
        rejoinable=False,
        state_is_shared=True,
        tool="pay",
        created_at=datetime.fromtimestamp(0, UTC),
    ),
    request=REQUEST,
    fingerprint=REQUEST.fingerprint(),
    expires_at=2.0**40,
)


class MovableClock:
    """Its first pause takes one turn of the event loop, and the next does not end."""

    def __init__(self) -> None:
        self.time = 2.0**33  # a state in memory expires by the real time
        self.second_pause_begun = asyncio.Event()
        self._pauses = 0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self._pauses += 1
        if self._pauses > 1:
            self.second_pause_begun.set()
            await asyncio.Event().wait()


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def journal() -> CallJournal:
    journal = CallJournal(MemoryRequestState())
    await journal.create(RECORD)
    return journal


async def read_lease(journal: CallJournal) -> tuple[str | None, float]:
    record = await journal.read("req_1")
    assert record is not None
    return record.lease_holder, record.lease_until


async def take_over(journal: CallJournal, clock: MovableClock) -> LocalCall:
    """A call whose lease was of `first`, which has been away, and is of `second` now."""
    first = LocalCall(RECORD, journal, clock, holder="first")
    assert await first.acquire_lease()
    clock.time += LEASE_SECONDS + 1
    assert await LocalCall(first.record, journal, clock, holder="second").acquire_lease()
    return first


async def test_a_holder_that_stops_does_not_end_the_lease_that_another_has_taken(
    journal: CallJournal, clock: MovableClock
) -> None:
    """Without its lease, the call that the other runs would count as lost."""
    first = await take_over(journal, clock)

    await first.save_rest()

    assert await read_lease(journal) == ("second", clock.time + LEASE_SECONDS)
    assert not first.has_lease


async def test_a_holder_that_renews_does_not_extend_the_lease_that_another_has_taken(
    journal: CallJournal, clock: MovableClock
) -> None:
    first = await take_over(journal, clock)
    taken = await read_lease(journal)
    clock.time += 1

    renewing = asyncio.create_task(first.renew_lease())
    await clock.second_pause_begun.wait()
    renewing.cancel()

    assert await read_lease(journal) == taken


async def test_of_two_requests_of_one_caller_that_are_about_to_send_one_gets_the_lease(
    journal: CallJournal, clock: MovableClock
) -> None:
    calls = [LocalCall(RECORD, journal, clock, holder="one") for _ in range(2)]

    assert [await call.acquire_lease(position=PlainPosition()) for call in calls] == [True, False]


class TargetThatIsTooLate:
    """Fails before it sends anything. Meanwhile another process has taken over the start."""

    url = "http://mcp.example/mcp"
    may_repeat_start = False

    def __init__(self, state: MemoryRequestState, clock: MovableClock) -> None:
        self._journal = CallJournal(state)
        self._clock = clock

    def check_request(self, request: CallRequest) -> None: ...

    async def run_call(self, call: LocalCall) -> None:
        self._clock.time += LEASE_SECONDS + 1
        assert await LocalCall(call.record, self._journal, self._clock, holder="other").acquire_lease()
        raise CallNotStarted("The tool was not called.")

    async def aclose(self) -> None: ...


async def test_a_start_that_failed_does_not_delete_the_call_that_another_process_starts(clock: MovableClock) -> None:
    state = MemoryRequestState()
    target: Any = TargetThatIsTooLate(state, clock)
    async with DurableCaller(cast("McpTarget", target), state=state, clock=clock) as caller:
        with pytest.raises(CallNotStarted):
            await caller.request_call_tool("pay", idempotency_key="k")

        assert [call.status for call in await caller.list_calls()] == ["starting"]


FORKED: Final = """
import asyncio, os, sys
from ringback.client.durable import SQLiteRequestState
from ringback.client.durable.record import CallRecord
from tests.support.plain_durable_callers import create_plain_caller

state = SQLiteRequestState(sys.argv[1])
caller = create_plain_caller(lambda _: asyncio.Event().wait(), state)
if (child := os.fork()) == 0:
    asyncio.run(caller.request_call_tool("work"))
    os._exit(0)
os.waitpid(child, 0)
asyncio.run(caller.request_call_tool("work"))
first, second = (CallRecord.model_validate_json(each.text) for each in asyncio.run(state.list_states()))
print(first.lease_holder != second.lease_holder)
"""


def test_a_forked_process_does_not_take_the_leases_of_its_parent_for_its_own(tmp_path: Path) -> None:
    """A worker of a web server that is forked with a caller would say that a call is lost, while another waits for it."""
    ran = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path / "calls.db")],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        cwd=Path(__file__).resolve().parents[4],
    )

    assert (ran.stdout, ran.stderr) == ("True\n", "")
