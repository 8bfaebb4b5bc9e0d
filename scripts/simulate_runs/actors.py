"""Who acts in a simulation, as its plan says: clients, operators, subscribers, publishers, readers, and the faults."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

from scripts.simulate_runs.client import Clients
from scripts.simulate_runs.faults import Faults
from scripts.simulate_runs.history import History
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.operators import Operators
from scripts.simulate_runs.plan import Plan, UpstreamKind
from scripts.simulate_runs.publishers import Publishers
from scripts.simulate_runs.readers import Readers
from scripts.simulate_runs.requester import Requester
from scripts.simulate_runs.subscribers import Subscribers
from scripts.simulate_runs.upstreams import SimulatedUpstream

Act = Coroutine[Any, Any, None]


class Actors:
    def __init__(
        self,
        plan: Plan,
        *,
        requester: Requester,
        faults: Faults,
        upstreams: Mapping[UpstreamKind, SimulatedUpstream],
        history: History,
        loop: SimulationLoop,
    ) -> None:
        self.clients = Clients(plan, requester=requester, history=history, loop=loop)
        self.operators = Operators(plan, requester=requester, upstreams=upstreams, history=history, loop=loop)
        self._plan = plan
        self._faults = faults
        self._history = history
        self._subscribers = Subscribers(plan, requester=requester, history=history, loop=loop)
        self._publishers = Publishers(plan, requester=requester, history=history, loop=loop)
        self._readers = Readers(requester=requester, history=history, loop=loop)
        self._subscriptions = [each for each in plan.webhooks if each.refresh_seconds is not None]

    def act(self) -> Iterator[Act]:
        """What each of them does, until it has done what the plan says."""
        plan = self._plan
        if plan.resealed_at_seconds is not None:
            yield self._faults.rotate_sealing_key(plan.resealed_at_seconds)
        yield from map(self._faults.inflict, plan.faults)
        yield from map(self.clients.keep_webhook, [each for each in plan.webhooks if each.refresh_seconds is None])
        yield from map(self.clients.carry_out, plan.calls)
        yield from map(self._publishers.carry_out, plan.publishers)
        yield from map(self.operators.carry_out, plan.actions)
        yield from map(self.operators.sign_in, plan.logins)

    def follow_until(self, has_settled: asyncio.Event) -> Iterator[Act]:
        """What readers and subscribers do until everything has settled."""
        for principal in self._plan.followed:
            yield self.clients.follow_log(principal, has_settled)
        for subscription in self._subscriptions:
            yield self._subscribers.keep_subscription(subscription, has_settled)
        for reader in self._plan.readers:
            yield self._readers.follow(reader, has_settled)

    async def renew_subscriptions(self) -> bool:
        """Let all subscriptions that last go on from their cursors. False if there are none."""
        granted = [each for each in self._subscriptions if each.name in self._history.webhooks]
        lasting = [each for each in granted if each.removed_at_seconds is None]
        await asyncio.gather(*map(self._subscribers.subscribe, lasting))
        return bool(lasting)
