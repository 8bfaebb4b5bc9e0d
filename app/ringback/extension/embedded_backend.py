"""A Ringback inside the server's own process: its store, its dispatcher and, for whoever mounts it, its REST API."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from pydantic import ValidationError
from starlette.types import ASGIApp

from ringback.bootstrap import open_application
from ringback.domain.errors import QuotaExceeded, RingbackError, Unavailable
from ringback.domain.principal import ALL_SCOPES, Caller, Principal
from ringback.extension.callback_request import format_validation_error
from ringback.extension.report_outbox import ReportFailed, ReportJson, ReportRejected, SendReport
from ringback.schemas.reports import ReportBody
from ringback.services.reports import CallReports
from ringback.settings import load_settings
from ringback.storage.open import sqlite_path

REPORT_KEY_PREFIX: Final = "extension:"
"""Of the keys that calls are reported under, so that a server that was killed finds its own again."""


class EmbeddedBackend:
    commits_reports = True

    def __init__(self, *, principal: str, settings: Mapping[str, Any]) -> None:
        sqlite_path(
            settings["database_url"]
        )  # a file is one process's own: in it, what has no end was left by the dead
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
                raise ReportRejected(format_validation_error(problem)) from None

        return send_report
