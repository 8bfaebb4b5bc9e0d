"""Contents for pictures and checks of all pages: calls with each outcome, a dead letter, a session that came back."""

from dataclasses import dataclass
from typing import Final

from ringback.client import Call, RingbackClient
from tests.support.dashboard_stage import DashboardStage
from tests.support.engine import wait_until

SESSION_ID: Final = "conversation-42"
OTHER_SESSION_ID: Final = "https://chat.example/threads/7?tab=<b>files</b>"
"""A path of the dashboard contains it, and no character of it may become markup."""
LONG_TEXT: Final = "nightly-report-of-the-warehouse-" + "0123456789" * 8
"""Without a space, as ids of clients often are: no page may become wider than the window."""
MANY_CALLS: Final = 55
"""More than one page of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardContents:
    agent: RingbackClient
    resumed: Call
    failed: Call
    running: Call
    waiting: Call
    """Its callback is a dead letter."""
    webhook_id: str
    dead_delivery_id: str
    delivered_id: str


async def fill_dashboard(stage: DashboardStage, principal: str) -> DashboardContents:
    agent = await stage.create_agent(principal)
    webhook = await agent.register_webhook(stage.callbacks.url("/agents"), client_session_id=SESSION_ID)
    for number in range(MANY_CALLS):
        await stage.start_call(agent, "steps", client_session_id=f"batch-{number % 5}", correlation_id=f"row-{number}")
    resumed = await stage.finish_call(agent, "steps", client_session_id=SESSION_ID, correlation_id="report-1")
    await agent.resume(await stage.wait_for_resume_token(resumed))
    failed = await stage.finish_call(agent, "fail", client_session_id=SESSION_ID, correlation_id=LONG_TEXT)
    await stage.finish_call(
        agent, "refuse", client_session_id=OTHER_SESSION_ID, correlation_id="<img src=x onerror=alert(1)>"
    )
    delivered = await wait_for_delivery(agent, failed, "delivered")
    stage.receiver.is_broken = True
    waiting = await stage.finish_call(agent, "echo", client_session_id=OTHER_SESSION_ID, correlation_id="report-2")
    dead = await wait_for_delivery(agent, waiting, "dead")
    stage.receiver.is_broken = False
    running = await stage.start_call(agent, "halfway", client_session_id=SESSION_ID, correlation_id="report-3")
    await stage.upstream.wait_until_held(1)
    return DashboardContents(
        agent=agent,
        resumed=resumed,
        failed=failed,
        running=running,
        waiting=waiting,
        webhook_id=webhook.id,
        dead_delivery_id=dead,
        delivered_id=delivered,
    )


async def wait_for_delivery(agent: RingbackClient, call: Call, state: str) -> str:
    """The id of a delivery of this call, once it is in this state."""
    found: list[str] = []

    async def is_in_state() -> bool:
        deliveries = [each async for each in agent.deliveries(call_id=call.id)]
        found[:] = [each.id for each in deliveries if each.state == state]
        return bool(found)

    await wait_until(is_in_state)
    return found[0]
