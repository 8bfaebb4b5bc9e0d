"""A Ringback inside the server's own process: its store, its dispatcher and, for whoever mounts it, its REST API."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from pydantic import ValidationError
from starlette.types import ASGIApp

from ringback.api.schemas.reports import ReportBody
from ringback.bootstrap import application
from ringback.domain.errors import QuotaExceeded, RingbackError, Unavailable
from ringback.domain.principal import ALL_SCOPES, Caller, Principal
from ringback.extension.asking import explained
from ringback.extension.outbox import Refused, Report, Send, TryAgain
from ringback.services.reports import Reports
from ringback.settings import load_settings
from ringback.storage.open import sqlite_path

KEY_PREFIX: Final = "extension:"
"""Of the keys that calls are reported under, so that a server that was killed finds its own again."""


class Embedded:
    commits = True

    def __init__(self, *, principal: str, settings: Mapping[str, Any]) -> None:
        sqlite_path(
            settings["database_url"]
        )  # a file is one process's own: in it, what has no end was left by the dead
        self._caller = Caller(principal=Principal(principal), scopes=ALL_SCOPES)
        self._settings = settings
        self.api: ASGIApp | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Send]:
        async with application(load_settings(**self._settings), ()) as app:
            await app.services.reports.give_up(self._caller, key_prefix=KEY_PREFIX)
            stop = asyncio.Event()
            working = asyncio.create_task(app.run(stop))
            self.api = app.api
            try:
                yield self._sender(app.services.reports)
            finally:
                self.api = None
                stop.set()
                await working

    def _sender(self, reports: Reports) -> Send:
        async def send(report: Report) -> str:
            try:
                return (await reports.report(self._caller, ReportBody.model_validate(report).report())).call.id
            except (Unavailable, QuotaExceeded) as problem:
                raise TryAgain(problem.detail) from problem
            except RingbackError as problem:
                raise Refused(problem.detail) from problem
            except ValidationError as problem:
                raise Refused(explained(problem)) from None

        return send
