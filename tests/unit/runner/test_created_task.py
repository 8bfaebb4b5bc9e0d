"""A cancellation that comes before the id of the task that the upstream has just created."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from ringback.asyncio_tasks import end_tasks
from ringback.domain.call_outcome import CANCELLED_COMPLETION
from ringback.runner.drivers.driver import Driver
from ringback.runner.drivers.legacy_task import LegacyTaskDriver
from ringback.runner.drivers.task import TaskDriver
from tests.support.clock import FakeClock
from tests.support.examples import CALL
from tests.support.limits import WAIT_SECONDS
from tests.support.recording_call_context import RecordingCallContext
from tests.support.scripted_sessions import ScriptedSession

MODERN_TASK: dict[str, Any] = {"resultType": "task", "taskId": "t1", "status": "working"}
LEGACY_TASK: dict[str, Any] = {"task": {"taskId": "t1", "status": "working"}}


class StandingClock(FakeClock):
    """A sleep ends only with its task."""

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002 - a clock's name
        await asyncio.Event().wait()


class HeldSession(ScriptedSession):
    """tools/call is answered once it may be, tasks/cancel at once, and all else never."""

    def __init__(self, response: dict[str, Any]) -> None:
        super().__init__()
        self.received = asyncio.Event()
        self.may_respond = asyncio.Event()
        self._response = response

    async def send_request(self, method: str, params: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        self.requests.append((method, params))
        match method:
            case "tools/call":
                self.received.set()
                await self.may_respond.wait()
                return self._response
            case "tasks/cancel":
                return {"taskId": "t1", "status": "cancelled"}
            case _:
                await asyncio.Event().wait()
                raise AssertionError


@pytest.mark.parametrize(
    ("driver", "response"),
    [(TaskDriver(clock=StandingClock()), MODERN_TASK), (LegacyTaskDriver(clock=StandingClock()), LEGACY_TASK)],
    ids=["modern", "legacy"],
)
async def test_a_cancellation_before_the_id_of_the_task_waits_for_it(driver: Driver, response: dict[str, Any]) -> None:
    session = HeldSession(response)
    running = asyncio.create_task(driver.run_call(session, RecordingCallContext(CALL)))
    async with asyncio.timeout(WAIT_SECONDS):
        await session.received.wait()
        cancelling = asyncio.create_task(driver.cancel_call(session, CALL))
        await asyncio.sleep(0)
        session.may_respond.set()
        await cancelling
    await end_tasks([running])

    assert [params["taskId"] for method, params in session.requests if method == "tasks/cancel"] == ["t1"]


@pytest.mark.parametrize("driver", [TaskDriver(clock=FakeClock()), LegacyTaskDriver(clock=FakeClock())])
async def test_a_call_whose_response_does_not_come_soon_is_cancelled_by_abandoning_it(driver: Driver) -> None:
    session = HeldSession(MODERN_TASK)
    running = asyncio.create_task(driver.run_call(session, RecordingCallContext(CALL)))
    async with asyncio.timeout(WAIT_SECONDS):
        await session.received.wait()

        assert await driver.cancel_call(session, CALL) == CANCELLED_COMPLETION
    await end_tasks([running])
    assert [method for method, _ in session.requests] == ["tools/call"]


@pytest.mark.parametrize("driver", [TaskDriver(clock=StandingClock()), LegacyTaskDriver(clock=StandingClock())])
async def test_a_call_that_was_not_sent_is_cancelled_at_once(driver: Driver) -> None:
    assert await driver.cancel_call(ScriptedSession(), CALL) == CANCELLED_COMPLETION
