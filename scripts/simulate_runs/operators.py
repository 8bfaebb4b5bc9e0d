"""Operators and owners: they pause and drain upstreams, cancel, redeliver and erase in bulk, rotate secrets, and sign in."""

import asyncio
from collections.abc import Mapping
from typing import Final

from ringback.domain.call_rows import CallFilter
from ringback.domain.clock import epoch_milliseconds
from ringback.domain.delivery import DeliveryState
from ringback.domain.delivery_rows import RedeliveryFilter
from ringback.domain.erasure import Erasure
from ringback.domain.errors import Gone, NotFound, QuotaExceeded
from ringback.domain.ports import Transaction
from ringback.domain.principal import Caller, Principal
from ringback.domain.upstream_logins import SHARED_OWNER, OAuthClient, UpstreamTokens
from ringback.domain.upstream_rows import UpstreamIntake
from ringback.services.logins.login_tokens import get_readable_tokens
from ringback.services.logins.login_waits import write_for_owner
from scripts.simulate_runs.history import History, ObservedAction, Subject
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.node import Node
from scripts.simulate_runs.plan import ActionKind, Plan, PlannedAction, PlannedLogin, UpstreamKind
from scripts.simulate_runs.receivers import ROTATED_SECRET
from scripts.simulate_runs.requester import RETRY_SECONDS, Requester, Unreachable, make_caller
from scripts.simulate_runs.upstreams import SimulatedUpstream

OVERLAP_SECONDS: Final = 3600.0
"""How long the earlier secret also signs: longer than a plan takes."""
LOOK_AGAIN_SECONDS: Final = 120.0
"""Longer than any node of a plan stands still. A node that thaws carries out what it was asked, so an upstream that was paused
by a second try may be paused once more after it was resumed."""
ISSUER: Final = "https://login.example"


class Operators:
    def __init__(
        self,
        plan: Plan,
        *,
        requester: Requester,
        upstreams: Mapping[UpstreamKind, SimulatedUpstream],
        history: History,
        loop: SimulationLoop,
    ) -> None:
        self._plan = plan
        self._requester = requester
        self._upstreams = upstreams
        self._history = history
        self._loop = loop

    async def carry_out(self, planned: PlannedAction) -> None:
        """Request the action at its time, and end a pause or a drain after its duration."""
        await asyncio.sleep(planned.at_seconds)
        action = ObservedAction(planned=planned, requested_at=self._loop.time())
        self._history.actions.append(action)
        self._note(f"{planned.kind} for {planned.principal} ({planned.upstream})")
        try:
            await self._request(action)
        except (Unreachable, NotFound, Gone) as error:
            self._note(f"{planned.kind} fails: {type(error).__name__}")
        else:
            action.acknowledged_at = self._loop.time()
            self._note(f"{planned.kind} is acknowledged")
        if planned.kind in {ActionKind.PAUSE, ActionKind.DRAIN}:
            await asyncio.sleep(planned.lasts_seconds)
            action.ended_at = self._loop.time()
            await self.resume_upstream(planned.upstream)
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            await self.resume_upstream(planned.upstream)

    async def resume_upstream(self, upstream: str) -> None:
        """Let the upstream take calls again."""
        caller = make_caller("operator")
        self._note(f"resumes {upstream}")
        await self._requester.repeat(
            lambda node: node.services.upstream_controls.set_intake(caller, upstream, UpstreamIntake.OPEN)
        )

    async def _request(self, action: ObservedAction) -> None:
        planned = action.planned
        caller = make_caller(planned.principal)
        match planned.kind:
            case ActionKind.PAUSE | ActionKind.DRAIN:
                await self._close_upstream(planned)
            case ActionKind.CANCEL_SESSION:
                await self._cancel_session(planned, caller)
            case ActionKind.REDELIVER:
                await self._redeliver(action, caller)
            case ActionKind.ROTATE_SECRET:
                await self._rotate_secret(action, caller)
            case ActionKind.ERASE_CALL | ActionKind.ERASE_SESSION | ActionKind.ERASE_PRINCIPAL:
                await self._erase(action, caller)

    async def _close_upstream(self, planned: PlannedAction) -> None:
        intake = UpstreamIntake.PAUSED if planned.kind is ActionKind.PAUSE else UpstreamIntake.DRAINING
        caller = make_caller("operator")
        await self._requester.repeat(
            lambda node: node.services.upstream_controls.set_intake(caller, planned.upstream, intake)
        )

    async def _cancel_session(self, planned: PlannedAction, caller: Caller) -> None:
        for call in self._plan.calls:
            if call.principal == planned.principal and call.session == planned.session:
                self._history.call(call.key).requested_cancel = True
        where = CallFilter(client_session_id=planned.session)
        while True:
            try:
                await self._requester.repeat(
                    lambda node: node.services.bulk_cancellations.cancel_calls(caller, where, dry_run=False)
                )
            except QuotaExceeded:  # an earlier try still runs on this node
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _redeliver(self, action: ObservedAction, caller: Caller) -> None:
        where = RedeliveryFilter(state=DeliveryState.DELIVERED)
        while True:
            try:
                redelivery = await self._requester.repeat(
                    lambda node: node.services.bulk_redeliveries.redeliver(caller, where, position=None, dry_run=False)
                )
            except QuotaExceeded:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                action.count = redelivery.redelivered
                return

    async def _rotate_secret(self, action: ObservedAction, caller: Caller) -> None:
        webhook_id, _ = self._history.webhooks.get(action.planned.webhook or "", (None, 0))
        if webhook_id is None:
            raise NotFound("The webhook is not registered yet.")
        action.target_id = webhook_id
        await self._requester.repeat(
            lambda node: node.services.webhooks.rotate_secret(
                caller, webhook_id, secret=ROTATED_SECRET, overlap_seconds=OVERLAP_SECONDS
            )
        )

    async def _erase(self, action: ObservedAction, caller: Caller) -> None:
        planned, seen = action.planned, self._history.call(action.planned.key or "")
        if planned.kind is ActionKind.ERASE_CALL and not seen.call_ids:
            raise NotFound("The call has not been acknowledged yet.")

        async def erase(node: Node) -> Erasure:
            if planned.kind is ActionKind.ERASE_CALL:
                return await node.services.erasures.erase_call(caller, seen.call_ids[0], cancel=True)
            if planned.kind is ActionKind.ERASE_SESSION:
                return await node.services.erasures.erase_session(caller, planned.session, cancel=True)
            return await node.services.erasures.erase_principal(make_caller("operator"), planned.principal, cancel=True)

        action.target_id = (await self._requester.repeat(erase)).id

    # -- logins --

    async def sign_in(self, login: PlannedLogin) -> None:
        """Sign in for each owner; after a revocation once more."""
        await asyncio.sleep(login.at_seconds)
        await self._grant(login, number=1)
        if login.revoked_at_seconds is None:
            return
        await asyncio.sleep(max(0.0, login.revoked_at_seconds - self._loop.time()))
        self._upstreams[login.upstream].tokens.clear()
        self._note(f"{login.upstream} refuses the tokens of the first login")
        await asyncio.sleep(login.login_seconds)
        await self._grant(login, number=2)

    async def _grant(self, login: PlannedLogin, *, number: int) -> None:
        owners = [SHARED_OWNER] if login.is_shared else [Principal(each.principal) for each in self._plan.calls]
        self._upstreams[login.upstream].tokens.add(make_token(number))
        for owner in dict.fromkeys(owners):
            self._note(f"signs in to {login.upstream} for {owner or 'all'} ({make_token(number)})")
            await self._requester.repeat(
                lambda node, owner=owner: _save_login(node, login.upstream, owner, number=number)
            )

    def _note(self, text: str) -> None:
        self._history.note(Subject.CLIENT, text)


async def _save_login(node: Node, upstream: str, owner: Principal, *, number: int) -> None:
    """What `UpstreamLogins` does at the end of a login. A login is completed once, so a late repetition changes nothing."""

    async def save(tx: Transaction) -> None:
        stored = await get_readable_tokens(tx, upstream, owner)
        if stored is not None and (stored.access_token or "") >= make_token(number):
            return
        version = max(epoch_milliseconds(tx.now()), 0 if stored is None else stored.version + 1)
        tokens = UpstreamTokens(
            upstream=upstream,
            owner=owner,
            version=version,
            issuer=ISSUER,
            token_endpoint=f"{ISSUER}/token",
            client=OAuthClient(client_id="ringback"),
            resource=f"https://{upstream}.example",
            scope=None,
            access_token=make_token(number),
            obtained_at=tx.now(),
            expires_at=None,
            logged_in_by=owner,
        )
        expected = None if stored is None else stored.version
        if not await tx.upstream_tokens.save(tokens, expected_version=expected):
            raise AssertionError("The tokens changed within a transaction that has locked them.")
        await node.login_waits.resume_calls(tx, tokens)

    await write_for_owner(node.store, owner, save)


def make_token(number: int) -> str:
    return f"token-{number}"
