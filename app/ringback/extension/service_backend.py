"""Sends reports to a Ringback service over its REST API."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import httpx

from ringback.client import (
    ConnectionFailed,
    Problem,
    QuotaExceeded,
    RingbackClient,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
)
from ringback.extension.report_outbox import RecordedReport, ReportFailed, ReportJson, ReportRejected, SendReport

_SERVER_ERROR_STATUS: Final = 500
_NO_API: Final = "These callbacks report to a Ringback service, which serves the API itself. There is nothing to mount."


class ServiceBackend:
    commits_reports = False
    api = None

    def __init__(self, url: str, *, api_key: str | None, transport: httpx.AsyncBaseTransport | None) -> None:
        self._url = url
        self._api_key = api_key
        self._transport = transport

    def announce_api(self) -> None:
        raise ValueError(_NO_API)

    def mount_path(self) -> str:
        raise ValueError(_NO_API)

    @asynccontextmanager
    async def open_sender(self) -> AsyncGenerator[SendReport]:
        async with RingbackClient(self._url, api_key=self._api_key, transport=self._transport) as client:

            async def send_report(report: ReportJson) -> RecordedReport:
                try:
                    started = await client.report(**report)
                    return RecordedReport(call_id=started.call.id, has_listeners=bool(started.webhooks))
                except (ConnectionFailed, UnexpectedAnswer, Unavailable, QuotaExceeded, Unauthenticated) as problem:
                    raise ReportFailed(str(problem)) from problem
                except Problem as problem:
                    if problem.status >= _SERVER_ERROR_STATUS:
                        raise ReportFailed(problem.detail) from problem
                    raise ReportRejected(problem.detail) from problem

            yield send_report
