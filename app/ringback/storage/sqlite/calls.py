"""Calls, as rows."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.call import Call, CallOutcome, CallPhase, CallStatus, Handle, InputRequest, Progress, RerunPolicy
from ringback.domain.call_rows import CallChange, CallFilter
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.cursor import Page
from ringback.domain.event import progress_data
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.storage.codec import (
    column_to_instant,
    column_to_optional_json,
    instant_to_column,
    json_to_column,
    optional_json_to_column,
)
from ringback.storage.queries import load_statements, parameters
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.paging import fetch_scanned_page

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/calls.sql")


class SqliteCalls:
    """Implements `domain.call_rows.CallRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def insert(self, call: Call) -> None:
        row = _call_to_row(call)
        self._sql.execute("insert", **row)
        self._sql.execute(
            "insert_input", id=call.id, arguments=json_to_column(call.arguments), meta=json_to_column(call.meta)
        )

    async def get(self, call_id: CallId) -> Call | None:
        row = self._sql.fetch_one("get", id=call_id)
        return None if row is None else row_to_call(row)

    async def find_by_idempotency_key(self, principal: Principal, key: str) -> Call | None:
        row = self._sql.fetch_one("by_idempotency_key", principal=principal, key=key)
        return None if row is None else row_to_call(row)

    async def list_page(
        self, principal: Principal, where: CallFilter, *, position: str | None, limit: int
    ) -> Page[Call, str]:
        return fetch_scanned_page(
            self._sql,
            _page_statement(where),
            row_to_call,
            limit=limit,
            principal=principal,
            client_session_id=where.client_session_id,
            correlation_id=where.correlation_id,
            status=where.status,
            upstream=where.upstream,
            tool=where.tool,
            before=position,
        )

    async def update(self, call: Call, change: CallChange, *, expected: CallStatus, lease_token: str | None) -> bool:
        row = _call_to_row(call, _DECIDED[change])
        return self._sql.execute(f"update_{change}", expected=expected, held_token=lease_token, **row) == 1

    async def revoke_tokens(self, call_id: CallId, *, now: datetime) -> int | None:
        row = self._sql.fetch_one("revoke_tokens", id=call_id, now=instant_to_column(now))
        return None if row is None else row["token_version"]

    async def put_results(self, results: Mapping[CallId, bytes]) -> None:
        self._sql.execute_many("put_result", [{"call_id": call_id, "body": body} for call_id, body in results.items()])

    async def get_result(self, call_id: CallId) -> bytes | None:
        row = self._sql.fetch_one("result", call_id=call_id)
        return None if row is None else row["body"]


def row_to_call(row: sqlite3.Row) -> Call:
    """A row of the view `whole_calls`."""
    progress = column_to_optional_json(row["progress"])
    return Call(
        id=row["id"],
        principal=row["principal"],
        upstream=row["upstream"],
        tool=row["tool"],
        arguments=jsontext.loads(row["arguments"]),
        meta=jsontext.loads(row["meta"]),
        client_session_id=row["client_session_id"],
        correlation_id=row["correlation_id"],
        idempotency_key=row["idempotency_key"],
        request_hash=row["request_hash"],
        status=CallStatus(row["status"]),
        phase=CallPhase(row["phase"]),
        outcome=None if row["outcome"] is None else CallOutcome(row["outcome"]),
        progress=None if progress is None else Progress(**progress),
        error=column_to_optional_json(row["error"]),
        result_bytes=row["result_bytes"],
        result_sha256=row["result_sha256"],
        handle=_parse_handle(row["handle"]),
        input_requests=_parse_input_requests(row["input_requests"]),
        input_responses=column_to_optional_json(row["input_responses"]) or {},
        input_round=row["input_round"],
        accepts_input=bool(row["accepts_input"]),
        rerun_policy=RerunPolicy(row["rerun_policy"]),
        rerun_allowed=bool(row["rerun_allowed"]),
        cancel_requested=bool(row["cancel_requested"]),
        lease_owner=row["lease_owner"],
        lease_token=row["lease_token"],
        lease_until=column_to_instant(row["lease_until"]),
        dispatched_at=column_to_instant(row["dispatched_at"]),
        runs=row["runs"],
        attended_until=column_to_instant(row["attended_until"]),
        token_version=row["token_version"],
        created_at=from_epoch_milliseconds(row["created_at"]),
        updated_at=from_epoch_milliseconds(row["updated_at"]),
        finished_at=column_to_instant(row["finished_at"]),
        deadline_at=from_epoch_milliseconds(row["deadline_at"]),
        expires_at=column_to_instant(row["expires_at"]),
    )


_COLUMNS: Final[Mapping[str, Callable[[Call], Any]]] = {
    "id": attrgetter("id"),
    "principal": attrgetter("principal"),
    "upstream": attrgetter("upstream"),
    "tool": attrgetter("tool"),
    "client_session_id": attrgetter("client_session_id"),
    "correlation_id": attrgetter("correlation_id"),
    "idempotency_key": attrgetter("idempotency_key"),
    "request_hash": attrgetter("request_hash"),
    "status": attrgetter("status"),
    "phase": attrgetter("phase"),
    "outcome": attrgetter("outcome"),
    "progress": lambda call: None if call.progress is None else json_to_column(progress_data(call.progress)),
    "error": lambda call: optional_json_to_column(call.error),
    "result_bytes": attrgetter("result_bytes"),
    "result_sha256": attrgetter("result_sha256"),
    "handle": lambda call: None if call.handle is None else json_to_column([call.handle.driver, call.handle.data]),
    "input_requests": lambda call: _format_input_requests(call.input_requests),
    "input_responses": lambda call: json_to_column(call.input_responses) if call.input_responses else None,
    "input_round": attrgetter("input_round"),
    "accepts_input": attrgetter("accepts_input"),
    "rerun_policy": attrgetter("rerun_policy"),
    "rerun_allowed": attrgetter("rerun_allowed"),
    "cancel_requested": attrgetter("cancel_requested"),
    "lease_owner": attrgetter("lease_owner"),
    "lease_token": attrgetter("lease_token"),
    "lease_until": lambda call: instant_to_column(call.lease_until),
    "dispatched_at": lambda call: instant_to_column(call.dispatched_at),
    "runs": attrgetter("runs"),
    "attended_until": lambda call: instant_to_column(call.attended_until),
    "token_version": attrgetter("token_version"),
    "created_at": lambda call: instant_to_column(call.created_at),
    "updated_at": lambda call: instant_to_column(call.updated_at),
    "finished_at": lambda call: instant_to_column(call.finished_at),
    "deadline_at": lambda call: instant_to_column(call.deadline_at),
    "expires_at": lambda call: instant_to_column(call.expires_at),
}
"""Everything but the input, which never changes and stands in a table of its own."""
_DECIDED: Final = {change: parameters(_SQL[f"update_{change}"]) & _COLUMNS.keys() for change in CallChange}
"""The columns that each statement needs: no other is made ready for it."""


def _call_to_row(call: Call, columns: Iterable[str] = _COLUMNS) -> dict[str, Any]:
    return {column: _COLUMNS[column](call) for column in columns}


def _parse_handle(text: str | None) -> Handle | None:
    if text is None:
        return None
    driver, data = jsontext.loads(text)
    return Handle(driver=driver, data=data)


def _parse_input_requests(text: str | None) -> dict[str, InputRequest]:
    entries: dict[str, Any] = {} if text is None else jsontext.loads(text)
    return {
        key: InputRequest(name=name, method=method, params=params) for key, (name, method, params) in entries.items()
    }


def _format_input_requests(requests: Mapping[str, InputRequest]) -> str | None:
    if not requests:
        return None
    return json_to_column({key: [request.name, request.method, request.params] for key, request in requests.items()})


def _page_statement(call_filter: CallFilter) -> str:
    """The statement whose index fits: by one's own ids first, which is how a client finds a call that it lost."""
    if call_filter.client_session_id is not None:
        return "page_of_session"
    if call_filter.correlation_id is not None:
        return "page_of_correlation"
    return "page" if call_filter.status in {None, CallStatus.COMPLETED} else "page_of_status"
