"""Types of external events: those that principals publish, the demand for those of upstreams, and how far these were read."""

from collections.abc import Sequence
from datetime import datetime

from ringback.domain.event_types import DemandedTopic, DemandKey, EventDemand, EventFollowing, PublishedEventType
from ringback.domain.principal import Principal
from ringback.storage.rows.columns import RECORDS, instant_to_column
from ringback.storage.rows.unit import SqlRows


class SqlEventTypes(SqlRows, noun="event_types"):
    """Implements `domain.event_types.EventTypeRows`."""

    async def get(self, principal: Principal, name: str) -> PublishedEventType | None:
        return await self._sql.fetch_record("get", RECORDS.event_type, principal=principal, name=name)

    async def list_of_principal(self, principal: Principal) -> Sequence[PublishedEventType]:
        return await self._sql.fetch_records("of_principal", RECORDS.event_type, principal=principal)

    async def save(self, event_type: PublishedEventType) -> None:
        await self._sql.execute("save", **RECORDS.event_type.encode(event_type))

    async def remove(self, principal: Principal, name: str) -> bool:
        return await self._sql.execute("remove", principal=principal, name=name) == 1


class SqlEventDemands(SqlRows, noun="event_demands"):
    """Implements `domain.event_types.EventDemandRows`."""

    async def get(self, principal: Principal, event_name: str, topic: str) -> EventDemand | None:
        return await self._sql.fetch_record(
            "get", RECORDS.event_demand, principal=principal, event_name=event_name, topic=topic
        )

    async def save(self, demand: EventDemand) -> None:
        await self._sql.execute("save", **RECORDS.event_demand.encode(demand))

    async def mark_gap(self, principal: Principal, event_name: str, topic: str, *, seq: int) -> None:
        await self._sql.execute("mark_gap", principal=principal, event_name=event_name, topic=topic, seq=seq)

    async def count_of_principal(self, principal: Principal) -> int:
        row = await self._sql.fetch_one("count_of_principal", principal=principal)
        return 0 if row is None else row["demands"]

    async def list_current(self, *, now: datetime) -> Sequence[EventDemand]:
        return await self._sql.fetch_records("current", RECORDS.event_demand, now=instant_to_column(now))

    async def list_different(self, *, now: datetime) -> Sequence[EventDemand]:
        return await self._sql.fetch_records("different", RECORDS.event_demand, now=instant_to_column(now))

    async def list_of_upstream(self, upstream: str, principal: Principal, *, now: datetime) -> Sequence[DemandedTopic]:
        rows = await self._sql.fetch_all(
            "of_upstream",
            principal=principal,
            first_name=f"{upstream}/",
            end_name=f"{upstream}0",  # the character after the slash
            now=instant_to_column(now),
        )
        return [DemandedTopic(row["event_name"], row["topic"], bool(row["is_own"])) for row in rows]

    async def is_current(self, principal: Principal, event_name: str, topic: str, *, now: datetime) -> bool:
        found = await self._sql.fetch_one(
            "is_current", principal=principal, event_name=event_name, topic=topic, now=instant_to_column(now)
        )
        return found is not None

    async def list_principals(self, event_name: str, topic: str, *, now: datetime) -> Sequence[Principal]:
        rows = await self._sql.fetch_all("principals", event_name=event_name, topic=topic, now=instant_to_column(now))
        return [Principal(row["principal"]) for row in rows]

    async def list_ended(self, *, now: datetime, after: DemandKey | None, limit: int) -> Sequence[DemandKey]:
        principal, event_name, topic = after or ("", "", "")
        rows = await self._sql.fetch_all(
            "ended",
            after_principal=principal,
            after_event_name=event_name,
            after_topic=topic,
            now=instant_to_column(now),
            limit=limit,
        )
        return [DemandKey(Principal(row["principal"]), row["event_name"], row["topic"]) for row in rows]

    async def remove_ended(self, keys: Sequence[DemandKey], *, now: datetime) -> None:
        await self._sql.execute_many("remove_ended", [key._asdict() | {"now": instant_to_column(now)} for key in keys])
        await self._sql.execute("remove_unwanted_followings")


class SqlEventFollowings(SqlRows, noun="event_followings"):
    """Implements `domain.event_types.EventFollowingRows`."""

    async def get(self, event_name: str, topic: str) -> EventFollowing | None:
        return await self._sql.fetch_record("get", RECORDS.event_following, event_name=event_name, topic=topic)

    async def save(self, following: EventFollowing) -> None:
        await self._sql.execute("save", **RECORDS.event_following.encode(following))
