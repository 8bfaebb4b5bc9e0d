"""What a lease query finds and leaves to units of their own: webhooks whose deliveries cannot be sent now.

The unit that leases locks deliveries, and a unit locks webhooks first. So what changes a webhook follows, beside the next lease
queries: one that waits for a locked row delays no delivery of another principal. Until it has ended, no query returns its
webhook.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A unit of work that locks this webhook."""

    webhook: Webhook
    work: Callable[[Transaction], Awaitable[None]]


class FollowUps:
    """Those of one principal run one after the other."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._webhook_ids: set[WebhookId] = set()
        self._tasks: set[asyncio.Task[bool]] = set()

    @property
    def webhook_ids(self) -> Collection[WebhookId]:
        """The webhooks of those that have not ended."""
        return self._webhook_ids

    def start_units(
        self, group: asyncio.TaskGroup, follow_ups: Sequence[FollowUp], *, on_end: Callable[[], None]
    ) -> None:
        """Run them as tasks of the group. `on_end` is called when those of one principal are committed."""
        by_principal: dict[Principal, list[FollowUp]] = {}
        for each in follow_ups:
            by_principal.setdefault(each.webhook.principal, []).append(each)
        for principal, those in by_principal.items():
            work = self._run(principal, those)
            try:
                task = group.create_task(work)
            except RuntimeError:  # the task group is ending because of a bug: the next query finds the webhooks again
                work.close()
                continue
            self._tasks.add(task)
            self._webhook_ids.update(each.webhook.id for each in those)
            task.add_done_callback(partial(self._end, those, on_end))

    def cancel(self) -> None:
        """The next process finds what has not begun. A unit that has begun runs to its end."""
        for task in self._tasks:
            task.cancel()

    async def _run(self, principal: Principal, follow_ups: Sequence[FollowUp]) -> bool:
        """Whether all of them are committed. A later query finds the webhooks of the others again."""
        committed = 0
        for each in follow_ups:
            try:
                await self._store.write_for(principal, each.work)
                committed += 1
            except StoreUnavailable:
                log.debug("deliveries.not_given_up")
            except Exception:  # boundary: a bug with one webhook must not stop the deliveries to the others
                log.exception("deliveries.give_up_failed")
        return committed == len(follow_ups)

    def _end(self, follow_ups: Sequence[FollowUp], on_end: Callable[[], None], task: asyncio.Task[bool]) -> None:
        self._tasks.discard(task)
        self._webhook_ids.difference_update(each.webhook.id for each in follow_ups)
        if not task.cancelled() and task.result():
            on_end()
