"""MCP clients that subscribe to events: they refresh in time or too late, go on from their last cursor, and unsubscribe."""

import asyncio
from typing import Final

from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.event import EventName
from ringback.protocol.mcp_events.backend import SubscriptionGrant, SubscriptionRequest
from ringback.protocol.mcp_events.errors import ErrorProfile, EventError
from ringback.protocol.mcp_events.subscription_key import canonical_arguments
from scripts.simulate_runs.clock import STARTED_AT
from scripts.simulate_runs.history import History, Subject
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.node_services import SUBSCRIPTION_SECONDS
from scripts.simulate_runs.plan import Plan, PlannedWebhook
from scripts.simulate_runs.receivers import SECRET, receiver_url
from scripts.simulate_runs.requester import RETRY_SECONDS, Requester, Unreachable, make_caller

REFUSALS_MAX: Final = 100
"""Tries of one subscribe that the receiver, or a quota of challenges, makes fail."""


class Subscribers:
    def __init__(self, plan: Plan, *, requester: Requester, history: History, loop: SimulationLoop) -> None:
        self._requester = requester
        self._history = history
        self._loop = loop
        self._receivers = {each.name: number for number, each in enumerate(plan.receivers)}
        self._cursors: dict[str, str | None] = {}
        """What each subscription has got so far, as its last grant says."""

    async def keep_subscription(self, planned: PlannedWebhook, has_settled: asyncio.Event) -> None:
        """Subscribe, and refresh until everything has settled. A late refresh begins a new life from the last cursor."""
        await asyncio.sleep(planned.at_seconds)
        self._cursors[planned.name] = encode_log_position(LogPosition(0)) if planned.hears_past else None
        while not has_settled.is_set() and not self._is_over(planned):
            await self.subscribe(planned)
            await asyncio.sleep(planned.refresh_seconds or 0.0)
        if self._is_over(planned):
            await self._unsubscribe(planned)

    async def subscribe(self, planned: PlannedWebhook) -> None:
        """Subscribe or refresh, as often as it takes."""
        for _ in range(REFUSALS_MAX):
            try:
                grant = await self._send(planned)
            except (EventError, Unreachable) as error:
                self._note(f"{planned.name} is refused: {error}")
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._remember(planned, grant)
                return

    async def _send(self, planned: PlannedWebhook) -> SubscriptionGrant:
        request = self._make_request(planned)
        caller = make_caller(planned.principal)
        return await self._requester.repeat(lambda node: node.services.event_subscriptions.subscribe(caller, request))

    def _make_request(self, planned: PlannedWebhook) -> SubscriptionRequest:
        arguments = {} if planned.upstream is None else {"upstream": str(planned.upstream)}
        return SubscriptionRequest(
            name=EventName.CALL_FINISHED,
            arguments=arguments,
            canonical_arguments=canonical_arguments(arguments),
            url=receiver_url(self._receivers[planned.receiver], planned.name),
            secret=SECRET,
            cursor=self._cursors[planned.name],
            max_age_seconds=None,
            ttl=SUBSCRIPTION_SECONDS,
            error_profile=ErrorProfile.SKETCH,
        )

    def _remember(self, planned: PlannedWebhook, grant: SubscriptionGrant) -> None:
        self._note(f"{planned.name} is granted as {grant.id}, after {grant.cursor}, truncated: {grant.truncated}")
        self._cursors[planned.name] = grant.cursor
        now = STARTED_AT + int(self._loop.time() * 1000)
        self._history.webhooks.setdefault(planned.name, (grant.id, now))
        if grant.truncated:
            self._history.truncated_subscriptions.add(grant.id)

    def _is_over(self, planned: PlannedWebhook) -> bool:
        return planned.removed_at_seconds is not None and self._loop.time() >= planned.removed_at_seconds

    async def _unsubscribe(self, planned: PlannedWebhook) -> None:
        granted = self._history.webhooks.get(planned.name)
        if granted is None:
            return
        self._history.removed_webhooks.add(granted[0])
        caller, key = make_caller(planned.principal), self._make_request(planned).key
        self._note(f"unsubscribes {planned.name}")
        for _ in range(REFUSALS_MAX):
            try:
                await self._requester.repeat(lambda node: node.services.event_subscriptions.unsubscribe(caller, key))
            except (EventError, Unreachable) as error:
                self._note(f"the end of {planned.name} is refused: {error}")
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _note(self, text: str) -> None:
        self._history.note(Subject.CLIENT, text)
