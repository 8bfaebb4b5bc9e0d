"""The events, deliveries and attempts of calls, for their histories, and when clients came back for them."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ringback.domain.call_resumes import CallResume
from ringback.domain.delivery import Attempt, Delivery
from ringback.domain.event import Event
from ringback.domain.ids import CallId, DeliveryId, EventId
from ringback.domain.principal import Principal
from ringback.storage.rows.columns import RECORDS
from ringback.storage.rows.paging import ROWS_SCANNED_MAX
from ringback.storage.rows.unit import SqlRows

_DELIVERY: Final = RECORDS.delivery


class SqlCallHistories(SqlRows, noun="call_histories"):
    """Implements `domain.call_histories.CallHistoryRows`."""

    async def list_events(self, call_id: CallId, *, limit: int) -> Sequence[Event]:
        return await self._sql.fetch_records("events", RECORDS.event, call_id=call_id, limit=limit)

    async def list_deliveries(self, call_ids: Collection[CallId], *, limit: int) -> Mapping[CallId, Sequence[Delivery]]:
        ids = self._sql.array(list(call_ids))
        found: defaultdict[CallId, list[Delivery]] = defaultdict(list)
        for delivery in await self._sql.fetch_records("deliveries", _DELIVERY, ids=ids, limit=limit):
            if delivery.call_id is not None:
                found[delivery.call_id].append(delivery)
        return found

    async def list_of_event(self, principal: Principal | None, event_id: EventId, *, limit: int) -> Sequence[Delivery]:
        return await self._sql.fetch_records(
            "deliveries_of_event",
            _DELIVERY,
            principal=principal,
            event_id=event_id,
            scan=ROWS_SCANNED_MAX,
            limit=limit,
        )

    async def list_attempts(
        self, delivery_ids: Collection[DeliveryId], *, limit: int
    ) -> Mapping[DeliveryId, Sequence[Attempt]]:
        ids = self._sql.array(list(delivery_ids))
        found: defaultdict[DeliveryId, list[Attempt]] = defaultdict(list)
        for attempt in await self._sql.fetch_records("attempts", RECORDS.attempt, ids=ids, limit=limit):
            found[attempt.delivery_id].append(attempt)
        return found


class SqlCallResumes(SqlRows, noun="call_resumes"):
    """Implements `domain.call_resumes.CallResumeRows`."""

    async def list_of_calls(self, call_ids: Collection[CallId]) -> Sequence[CallResume]:
        ids = self._sql.array(list(call_ids))
        return await self._sql.fetch_records("of_calls", RECORDS.call_resume, ids=ids)

    async def add(self, resumes: Sequence[CallResume]) -> None:
        await self._sql.execute_many("add", [RECORDS.call_resume.encode(resume) for resume in resumes])
