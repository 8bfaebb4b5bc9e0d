"""Clients publish events of their own: into the log, and so to webhooks, polls and streams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.errors import InvalidRequest, UnknownUpstream
from ringback.domain.event import ExternalEvent
from ringback.domain.event_types import DATA_LEVELS_MAX, PublishedEventType
from ringback.domain.ids import EventId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller
from ringback.notifier.recorder import Recorder
from ringback.services.access.api_keys import require_held_key
from ringback.services.events.event_types import (
    ANY_OBJECT,
    DeclaredPayload,
    EventTypeDeclaration,
    PayloadSchemas,
    require_publishable,
    require_publisher,
    save_event_type,
)
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.limits.schema_checks import PAYLOADS_REFUSED, SchemaCheckLimiter

DATA_BYTES_MAX: Final = 64 * 1024
"""The largest `data`. A callback of 256 KiB carries it, and a hundred of them are one request."""
BATCH_SIZE_MAX: Final = 100
"""Events in one request, and one transaction: as many as a page of the log has."""
RESERVED_ID_PREFIXES: Final = ("evt_", "msg_")
"""Ids that Ringback makes: of events, and of control messages, which have the same header in callbacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEvent:
    """An event as its client publishes it."""

    name: str
    data: dict[str, Any] = field(repr=False)
    id: str | None = None
    """The client's own id, its `eventId`. The same id again changes nothing. None makes an id."""
    timestamp: datetime | None = None
    """When it happened; None means now."""
    upstream: str | None = None
    client_session_id: str | None = None
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedResult:
    event_id: EventId
    created: bool
    """False if the log had an event of this id."""


class EventPublishing:
    def __init__(
        self,
        *,
        store: Store,
        recorder: Recorder,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
        payload_schemas: PayloadSchemas,
        check_limiter: SchemaCheckLimiter,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._payload_schemas = payload_schemas
        self._check_limiter = check_limiter

    async def publish_events(self, caller: Caller, events: Sequence[PublishedEvent]) -> Sequence[PublishedResult]:
        """Append these events to the log in this order, all or none, durably before the return.

        Raises `Forbidden`, `InvalidRequest`, `QuotaExceeded`, and `UnknownUpstream` for one that the caller may not use.
        """
        require_publisher(caller)
        self._lifecycle.require_running()
        for event in events:
            _check_event(caller, event)
        self._quotas.acquire_start(caller.principal, key_id=caller.key_id)

        async def append(tx: Transaction) -> Sequence[PublishedResult]:
            await require_held_key(tx, caller)
            types = {
                name: await save_event_type(tx, caller.principal, EventTypeDeclaration(name=name), replaces=False)
                for name in sorted({event.name for event in events})
            }
            self._check_data(caller, events, types)
            external = [_to_external_event(event) for event in events]
            recorded = await self._recorder.record_external_events(
                tx,
                caller.principal,
                external,
                require_quota=lambda tx, more: self._quotas.require_event_quota(tx, caller.principal, more),
            )
            return [PublishedResult(event_id=each.event_id, created=each.is_new) for each in recorded]

        return await self._store.write_for(caller.principal, append)

    def _check_data(
        self, caller: Caller, events: Sequence[PublishedEvent], types: Mapping[str, PublishedEventType]
    ) -> None:
        """Raise `InvalidRequest` for data that its type does not allow. The types are those of the same transaction."""
        payloads = [
            DeclaredPayload(schema, event.data, ("data",) if len(events) == 1 else ("events", index, "data"))
            for index, event in enumerate(events)
            if isinstance(schema := types[event.name].payload_schema, Mapping) and schema != ANY_OBJECT
        ]
        if not payloads:
            return
        with self._check_limiter.measure_check(caller.principal, PAYLOADS_REFUSED):
            errors = self._payload_schemas.find_errors(payloads)
        if errors:
            detail = "; ".join(f"{error['pointer']}: {error['detail']}" for error in errors)
            raise InvalidRequest(
                f"The data does not match the payload_schema of its event type: {detail}. See it: GET /v1/event-types",
                errors=errors,
            )


def _check_event(caller: Caller, event: PublishedEvent) -> None:
    require_publishable(event.name)
    if event.id is not None and (event.id.startswith(RESERVED_ID_PREFIXES) or ":" in event.id):
        raise InvalidRequest(
            f"id: ids that begin with {' or '.join(RESERVED_ID_PREFIXES)} are made by Ringback, and those with a colon "
            "belong to upstreams."
        )
    if event.upstream is not None and not caller.may_use_upstream(event.upstream):
        raise UnknownUpstream(
            "upstream: there is no upstream of this name. List them: GET /v1/upstreams", upstream=event.upstream
        )
    if len(jsontext.dumps(event.data)) > DATA_BYTES_MAX:
        raise InvalidRequest(f"data: it has more than {DATA_BYTES_MAX} bytes. Publish a reference to what is large.")
    if jsontext.nests_deeper(event.data, DATA_LEVELS_MAX):
        raise InvalidRequest(f"data: it nests deeper than {DATA_LEVELS_MAX} levels, which not every reader could read.")


def _to_external_event(event: PublishedEvent) -> ExternalEvent:
    return ExternalEvent(
        name=event.name,
        id=None if event.id is None else EventId(event.id),
        data=event.data,
        occurred_at=event.timestamp,
        upstream=event.upstream,
        client_session_id=event.client_session_id,
        correlation_id=event.correlation_id,
    )
