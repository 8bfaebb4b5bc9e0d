"""Publishers: each publishes events one after the other through any node, with an API key that it rotates and that ends."""

import asyncio
from typing import Final

from ringback.domain.errors import Conflict, NotFound, QuotaExceeded, Unauthenticated
from ringback.domain.principal import ALL_SCOPES
from ringback.services.events.event_publishing import PublishedEvent, PublishedResult
from scripts.simulate_runs.history import AcknowledgedEvent, History, Subject
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.node import Node
from scripts.simulate_runs.plan import PUBLISHED_EVENT, Plan, PlannedPublisher
from scripts.simulate_runs.requester import RETRY_SECONDS, Requester, Unreachable

OVERLAP_SECONDS: Final = 8.0
"""How long a replaced key is accepted too."""
CLOCK_SECONDS: Final = 1.0
"""More than the clocks of two nodes differ, and than the way of one response takes."""


class Publishers:
    def __init__(self, plan: Plan, *, requester: Requester, history: History, loop: SimulationLoop) -> None:
        self._plan = plan
        self._requester = requester
        self._history = history
        self._loop = loop

    async def carry_out(self, planned: PlannedPublisher) -> None:
        """Publish the events of the plan. An erasure of the principal deletes its keys, which ends this."""
        await asyncio.sleep(planned.at_seconds)
        try:
            await self._publish_all(planned)
        except Unreachable:
            self._note(f"gave up {planned.name}")
        except Unauthenticated as error:
            if not self._history.is_principal_erased(planned.principal):
                self._history.wrong_keys.append(f"a valid key of {planned.name} was refused: {error}")

    async def _publish_all(self, planned: PlannedPublisher) -> None:
        key_id, text = await self._create_key(planned)
        for number in range(planned.events):
            if number == planned.rotates_after:
                key_id, text = await self._rotate_key(planned, key_id, text)
            await self._publish(planned, text, number, is_repeated=False)
            if planned.repeats:
                await self._publish(planned, text, number, is_repeated=True)
            await asyncio.sleep(planned.pause_seconds)
        await self._revoke_key(planned, key_id, text)

    # -- events --

    async def _publish(self, planned: PlannedPublisher, text: str, number: int, *, is_repeated: bool) -> None:
        """Publish until a response arrives. The id makes that safe: the response of an earlier try may have been lost."""
        event = PublishedEvent(name=PUBLISHED_EVENT, id=f"{planned.name}-{number}", data={"number": number})

        async def publish(node: Node) -> PublishedResult:
            caller = await node.services.api_keys.authenticate_key(text)
            return (await node.services.event_publishing.publish_events(caller, [event]))[0]

        while True:
            try:
                result = await self._requester.repeat(publish)
            except QuotaExceeded:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                break
        self._note(f"{planned.name} has published {result.event_id}, new: {result.created}")
        self._history.published.append(
            AcknowledgedEvent(planned.name, planned.principal, result.event_id, is_repeated, result.created)
        )

    # -- keys --

    async def _create_key(self, planned: PlannedPublisher) -> tuple[str, str]:
        """A lost response leaves a key that no client has."""

        async def create(node: Node) -> tuple[str, str]:
            key, text = await node.services.api_keys.create_key(
                planned.principal, name=planned.name, scopes=ALL_SCOPES, upstreams=None
            )
            return key.id, text

        return await self._requester.repeat(create)

    async def _rotate_key(self, planned: PlannedPublisher, key_id: str, text: str) -> tuple[str, str]:
        """Rotate the key, and look at both until the overlap has ended."""

        async def rotate(node: Node) -> tuple[str, str]:
            rotated = await node.services.api_keys.rotate_key(key_id, overlap_seconds=OVERLAP_SECONDS)
            return rotated.key.id, rotated.text

        requested_at = self._loop.time()
        try:
            new_id, new_text = await self._requester.repeat(rotate)
        except Conflict:  # the response of an earlier try was lost, and with it the text of the new key
            new_id, new_text = await self._create_key(planned)
        except NotFound:
            raise Unauthenticated("The key is gone.") from None
        ends_at = self._loop.time() + OVERLAP_SECONDS
        self._note(f"{planned.name} has rotated {key_id} to {new_id}")
        if (
            await self._is_accepted(text) is False
            and self._loop.time() < requested_at + OVERLAP_SECONDS - CLOCK_SECONDS
        ):
            raise Unauthenticated(f"{key_id} ended before its overlap")
        await asyncio.sleep(max(0.0, ends_at + CLOCK_SECONDS - self._loop.time()))
        await self._expect_refusal(planned, key_id, text, "replaced")
        return new_id, new_text

    async def _revoke_key(self, planned: PlannedPublisher, key_id: str, text: str) -> None:
        try:
            await self._requester.repeat(lambda node: node.services.api_keys.revoke_key(key_id))
        except NotFound:
            self._note(f"an earlier try has revoked {key_id}")
        await self._expect_refusal(planned, key_id, text, "revoked")

    async def _expect_refusal(self, planned: PlannedPublisher, key_id: str, text: str, why: str) -> None:
        if await self._is_accepted(text):
            self._history.wrong_keys.append(f"{key_id} of {planned.name} was {why}, and is accepted")

    async def _is_accepted(self, text: str) -> bool:
        try:
            await self._requester.repeat(lambda node: node.services.api_keys.authenticate_key(text))
        except Unauthenticated:
            return False
        return True

    def _note(self, text: str) -> None:
        self._history.note(Subject.CLIENT, text)
