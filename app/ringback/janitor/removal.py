"""Removes what is no longer kept: expired calls and old rows.

Expiry is judged by confirmed time: a clock that is wrong for a minute must not remove what was kept for weeks.
"""

from collections.abc import Sequence
from datetime import datetime

from ringback.domain.call_rows import REMOVED_BYTES_MAX, make_tombstone
from ringback.domain.clock import seconds
from ringback.domain.event_subscriptions import TOMBSTONE_SECONDS
from ringback.domain.insights import HOUR, OVERVIEW_HOURS_MAX, hour_of
from ringback.domain.ports import Transaction
from ringback.domain.unused_logins import UNUSED_SECONDS
from ringback.domain.upkeep import Upkeep
from ringback.domain.verification import CHALLENGE_WINDOW_SECONDS, PROOF_VALID_SECONDS
from ringback.janitor.config import BatchRows, MaintenanceTask, Retention
from ringback.notifier.recorder import Recorder
from ringback.services.logins.unused_logins import remove_unused_tokens


class RemovalTasks:
    def __init__(self, recorder: Recorder, kept: Retention, batch: BatchRows) -> None:
        self._recorder = recorder
        self._kept = kept
        self._batch = batch
        self.tasks: Sequence[MaintenanceTask] = (
            MaintenanceTask(self._archive_expired_calls, {Upkeep.CALL_EXPIRIES: 0.0}),
            MaintenanceTask(self._remove_deliveries, {Upkeep.ENDED_DELIVERIES: kept.event_seconds}),
            MaintenanceTask(self._remove_events, {Upkeep.EVENTS: kept.event_seconds}),
            MaintenanceTask(self._remove_origins, {Upkeep.ORIGINS: kept.event_seconds}),
            MaintenanceTask(
                self._remove_tombstones,
                {Upkeep.TOMBSTONES: kept.tombstone_seconds, Upkeep.ENDED_SUBSCRIPTIONS: TOMBSTONE_SECONDS},
            ),
            MaintenanceTask(self._remove_erasures, {Upkeep.FINISHED_ERASURES: kept.tombstone_seconds}),
            MaintenanceTask(
                self._remove_proofs,
                {Upkeep.PROOFS: PROOF_VALID_SECONDS, Upkeep.SENT_CHALLENGES: CHALLENGE_WINDOW_SECONDS},
            ),
            MaintenanceTask(self._remove_expired_sessions, {Upkeep.MCP_SESSIONS: 0.0}),
            MaintenanceTask(self._remove_expired_logins, {Upkeep.UPSTREAM_LOGINS: 0.0}),
            MaintenanceTask(self._remove_unused_tokens, {Upkeep.UNUSED_LOGINS: UNUSED_SECONDS}),
            MaintenanceTask(self._remove_expired_viewers, {Upkeep.SIGN_INS: 0.0, Upkeep.PORTAL_LINKS: 0.0}),
            MaintenanceTask(self._remove_audit_entries, {Upkeep.AUDIT_ENTRIES: kept.audit_seconds}),
            MaintenanceTask(self._remove_old_hours, {Upkeep.HOURS: (OVERVIEW_HOURS_MAX * HOUR).total_seconds()}),
        )

    async def _archive_expired_calls(self, tx: Transaction) -> bool:
        expired = await tx.tombstones.find_expired(
            now=tx.confirmed_now(), limit=self._batch.rows, bytes_max=REMOVED_BYTES_MAX
        )
        if expired:
            await tx.tombstones.archive(*(make_tombstone(call, expired_at=tx.now()) for call in expired))
        return bool(expired)  # large ones may be left, however few these are

    async def _remove_deliveries(self, tx: Transaction) -> bool:
        removed = await tx.deliveries.remove(cutoff=self._event_cutoff(tx), limit=self._batch.rows)
        return removed > 0  # large ones may be left

    async def _remove_events(self, tx: Transaction) -> bool:
        removed = await tx.events.remove(cutoff=self._event_cutoff(tx), limit=self._batch.rows)
        return removed > 0  # large ones may be left

    async def _remove_origins(self, tx: Transaction) -> bool:
        return self._is_full_batch(
            await tx.origin_breakers.remove(cutoff=self._event_cutoff(tx), limit=self._batch.rows)
        )

    async def _remove_tombstones(self, tx: Transaction) -> bool:
        old = tx.confirmed_now() - seconds(self._kept.tombstone_seconds)
        calls = await tx.tombstones.remove(cutoff=old, limit=self._batch.rows)
        subscriptions = await tx.subscriptions.remove_ended(
            cutoff=tx.confirmed_now() - seconds(TOMBSTONE_SECONDS), limit=self._batch.rows
        )
        return self._is_full_batch(max(calls, subscriptions))

    async def _remove_erasures(self, tx: Transaction) -> bool:
        old = tx.confirmed_now() - seconds(self._kept.tombstone_seconds)
        return self._is_full_batch(await tx.erasures.remove(cutoff=old, limit=self._batch.rows))

    async def _remove_proofs(self, tx: Transaction) -> bool:
        proofs = await tx.proofs.remove(
            cutoff=tx.confirmed_now() - seconds(PROOF_VALID_SECONDS), limit=self._batch.rows
        )
        sent = await tx.challenges.remove_sent(
            cutoff=tx.confirmed_now() - seconds(CHALLENGE_WINDOW_SECONDS), limit=self._batch.rows
        )
        return self._is_full_batch(max(proofs, sent))

    async def _remove_expired_sessions(self, tx: Transaction) -> bool:
        return self._is_full_batch(await tx.mcp_sessions.remove_expired(now=tx.confirmed_now(), limit=self._batch.rows))

    async def _remove_expired_logins(self, tx: Transaction) -> bool:
        return self._is_full_batch(
            await tx.upstream_logins.remove_expired(now=tx.confirmed_now(), limit=self._batch.rows)
        )

    async def _remove_unused_tokens(self, tx: Transaction) -> bool:
        return await remove_unused_tokens(tx, limit=self._batch.rows)

    async def _remove_expired_viewers(self, tx: Transaction) -> bool:
        sign_ins = await tx.sign_ins.remove_expired(now=tx.confirmed_now(), limit=self._batch.rows)
        links = await tx.portal_links.remove_expired(now=tx.confirmed_now(), limit=self._batch.rows)
        return self._is_full_batch(max(sign_ins, links))

    async def _remove_audit_entries(self, tx: Transaction) -> bool:
        old = tx.confirmed_now() - seconds(self._kept.audit_seconds)
        return self._is_full_batch(await tx.audit_entries.remove(cutoff=old, limit=self._batch.rows))

    async def _remove_old_hours(self, tx: Transaction) -> bool:
        old = hour_of(tx.confirmed_now()) - OVERVIEW_HOURS_MAX * HOUR
        return self._is_full_batch(await tx.insights.remove(cutoff=old, limit=self._batch.rows))

    def _event_cutoff(self, tx: Transaction) -> datetime:
        return tx.confirmed_now() - seconds(self._kept.event_seconds)

    def _is_full_batch(self, rows: int) -> bool:
        return rows >= self._batch.rows
