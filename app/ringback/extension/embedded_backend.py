"""A Ringback inside the server's own process: store, dispatcher and, if mounted, its REST API."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from pydantic import ValidationError
from starlette.types import ASGIApp

from ringback.bootstrap import open_application
from ringback.domain.errors import QuotaExceeded, RingbackError, Unavailable
from ringback.domain.principal import ALL_SCOPES, Caller, Principal
from ringback.extension.report_outbox import ReportFailed, ReportJson, ReportRejected, SendReport
from ringback.schemas.reports import ReportBody
from ringback.schemas.validation_errors import describe_validation_errors
from ringback.services.reports import CallReports
from ringback.settings import load_settings
from ringback.storage.open import sqlite_path

REPORT_KEY_PREFIX: Final = "extension:"
"""The prefix of report keys, by which a restarted server finds its own calls."""


class EmbeddedBackend:
    commits_reports = True

    def __init__(self, *, principal: str, settings: Mapping[str, Any]) -> None:
        # Only one process uses an SQLite file, so calls without an end belong to an earlier process.
        sqlite_path(settings["database_url"])
        self._caller = Caller(principal=Principal(principal), scopes=ALL_SCOPES)
        self._settings = settings
        self.api: ASGIApp | None = None

    @asynccontextmanager
    async def open_sender(self) -> AsyncGenerator[SendReport]:
        async with open_application(load_settings(**self._settings), ()) as app:
            await app.services.reports.give_up_calls(self._caller, key_prefix=REPORT_KEY_PREFIX)
            stop = asyncio.Event()
            worker = asyncio.create_task(app.run(stop))
            self.api = app.api
            try:
                yield self._create_sender(app.services.reports)
            finally:
                self.api = None
                stop.set()
                await worker

    def _create_sender(self, reports: CallReports) -> SendReport:
        async def send_report(report: ReportJson) -> str:
            try:
                return (
                    await reports.record_report(self._caller, ReportBody.model_validate(report).to_report())
                ).call.id
            except (Unavailable, QuotaExceeded) as problem:
                raise ReportFailed(problem.detail) from problem
            except RingbackError as problem:
                raise ReportRejected(problem.detail) from problem
            except ValidationError as problem:
                raise ReportRejected(describe_validation_errors(problem)[0]) from None

        return send_report
