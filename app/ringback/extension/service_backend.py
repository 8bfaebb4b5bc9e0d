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
    Unavailable,
    UnexpectedAnswer,
)
from ringback.extension.report_outbox import ReportFailed, ReportJson, ReportRejected, SendReport

_SERVER_ERROR_STATUS: Final = 500


class ServiceBackend:
    commits_reports = False
    api = None

    def __init__(self, url: str, *, api_key: str | None, transport: httpx.AsyncBaseTransport | None) -> None:
        self._url = url
        self._api_key = api_key
        self._transport = transport

    @asynccontextmanager
    async def open_sender(self) -> AsyncGenerator[SendReport]:
        async with RingbackClient(self._url, api_key=self._api_key, transport=self._transport) as client:

            async def send_report(report: ReportJson) -> str:
                try:
                    return (await client.report(**report)).call.id
                except (ConnectionFailed, UnexpectedAnswer, Unavailable, QuotaExceeded) as problem:
                    raise ReportFailed(str(problem)) from problem
                except Problem as problem:
                    if problem.status >= _SERVER_ERROR_STATUS:
                        raise ReportFailed(problem.detail) from problem
                    raise ReportRejected(problem.detail) from problem

            yield send_report
