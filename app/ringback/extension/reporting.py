"""Reports to a Ringback service, over its REST API."""

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
from ringback.extension.outbox import Refused, Report, Send, TryAgain

_SERVER_ERROR: Final = 500


class Reporting:
    commits = False
    api = None

    def __init__(self, url: str, *, api_key: str | None, transport: httpx.AsyncBaseTransport | None) -> None:
        self._url = url
        self._api_key = api_key
        self._transport = transport

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Send]:
        async with RingbackClient(self._url, api_key=self._api_key, transport=self._transport) as client:

            async def send(report: Report) -> str:
                try:
                    return (await client.report(**report)).call.id
                except (ConnectionFailed, UnexpectedAnswer, Unavailable, QuotaExceeded) as problem:
                    raise TryAgain(str(problem)) from problem
                except Problem as problem:
                    if problem.status >= _SERVER_ERROR:
                        raise TryAgain(problem.detail) from problem
                    raise Refused(problem.detail) from problem

            yield send
