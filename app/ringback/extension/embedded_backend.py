"""A Ringback inside the server's own process: store, dispatcher and, if mounted, its REST API."""

import asyncio
import logging
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ringback.bootstrap import Environment, open_application
from ringback.domain.errors import QuotaExceeded, RingbackError, Unavailable
from ringback.domain.principal import ALL_SCOPES, ANONYMOUS_PRINCIPAL, Caller, Principal
from ringback.extension.report_outbox import RecordedReport, ReportFailed, ReportJson, ReportRejected, SendReport
from ringback.schemas.reports import ReportBody
from ringback.schemas.validation_errors import describe_validation_errors
from ringback.services.calls.reports import CallReports
from ringback.settings import load_settings
from ringback.storage.urls import require_sqlite_path

REPORT_KEY_PREFIX: Final = "extension:"
"""The prefix of report keys, by which a restarted server finds its own calls."""
DEV_PORT: Final = 8000
"""FastMCP, the SDK and uvicorn serve HTTP at this port by default."""
DEV_SETTINGS: Final[Mapping[str, Any]] = {
    "host": "127.0.0.1",
    "auth": "off",
    "callback_http": True,
    "callback_private_cidrs": (ip_network("127.0.0.0/8"), ip_network("::1/128")),
}


log = logging.getLogger(__name__)


class EmbeddedBackend:
    """`database_url` is None for a temporary file, which only `dev` allows. `public_url` is where the API is mounted."""

    commits_reports = True

    def __init__(
        self,
        *,
        principal: str,
        database_url: str | None,
        public_url: str | None,
        dev: bool,
        port: int | None = None,
        settings: Mapping[str, Any],
    ) -> None:
        if port is not None and not dev:
            raise ValueError("`port` is for dev=True. Otherwise give public_url, which has the port.")
        if database_url is not None:
            # Only one process uses an SQLite file, so calls without an end belong to an earlier process.
            require_sqlite_path(database_url)
        # In a first try no client has a key, so the caller of the API is the anonymous one.
        owner = ANONYMOUS_PRINCIPAL if dev else Principal(principal)
        self._caller = Caller(principal=owner, scopes=ALL_SCOPES)
        self._database_url = database_url
        self._public_url = public_url or (f"http://127.0.0.1:{port or DEV_PORT}/ringback" if dev else None)
        self._settings = {**(DEV_SETTINGS if dev else {"auth": "keys"}), **settings}
        self._is_dev = dev
        self._is_announced = False
        self.api: ASGIApp | None = None

    def announce_api(self) -> None:
        """Callbacks contain URLs of the API from the next start on. Raises ValueError without a public URL."""
        if self._public_url is None:
            raise ValueError(
                "Give public_url, the URL at which clients reach the API, for example https://reports.example/ringback"
            )
        self._is_announced = True

    def mount_path(self) -> str:
        path = urlsplit(self._public_url or "").path.rstrip("/")
        if self._public_url is not None and not path:
            raise ValueError(
                f"The API needs a path of its own beside the server's: public_url='{self._public_url.rstrip('/')}/ringback'"
            )
        return path

    @asynccontextmanager
    async def open_sender(self) -> AsyncGenerator[SendReport]:
        with self._database() as database_url:
            settings = load_settings(**self._settings, database_url=database_url, public_url=self._public_url)
            environment = Environment(announces_api=self._is_announced)
            async with open_application(settings, (), environment=environment) as app:
                await app.services.reports.give_up_calls(self._caller, key_prefix=REPORT_KEY_PREFIX)
                stop = asyncio.Event()
                worker = asyncio.create_task(app.run(stop))
                self.api = LoopbackOnly(app.api, public_url=self._public_url or "") if self._is_dev else app.api
                try:
                    yield self._create_sender(app.services.reports)
                finally:
                    self.api = None
                    stop.set()
                    await worker

    @contextmanager
    def _database(self) -> Generator[str]:
        if self._database_url is not None:
            yield self._database_url
            return
        log.warning(
            "Calls and callbacks are in a temporary file, because of dev=True, and end with this process. Give database_url to "
            "keep them."
        )
        with tempfile.TemporaryDirectory(prefix="ringback-dev-") as folder:
            yield f"sqlite:///{Path(folder) / 'calls.db'}"

    def _create_sender(self, reports: CallReports) -> SendReport:
        async def send_report(report: ReportJson) -> RecordedReport:
            try:
                recorded = await reports.record_report(self._caller, ReportBody.model_validate(report).to_report())
            except (Unavailable, QuotaExceeded) as problem:
                raise ReportFailed(problem.detail) from problem
            except RingbackError as problem:
                raise ReportRejected(problem.detail) from problem
            except ValidationError as problem:
                raise ReportRejected(describe_validation_errors(problem, model=ReportBody)[0]) from None
            return RecordedReport(call_id=recorded.call.id, has_listeners=bool(recorded.webhooks))

        return send_report


class LoopbackOnly:
    """An API without keys answers this machine only, whatever address the user's server listens on.

    It warns once if the server listens on another port than the one that callbacks name.
    """

    def __init__(self, app: ASGIApp, *, public_url: str) -> None:
        self._app = app
        self._public_url = public_url
        self._named_port = urlsplit(public_url).port
        self._has_compared_ports = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_loopback(scope.get("client")):
            refusal = PlainTextResponse("With dev=True this API answers its own machine only.", status_code=403)
            await refusal(scope, receive, send)
            return
        if not self._has_compared_ports and scope["type"] == "http" and scope.get("server"):
            self._has_compared_ports = True
            self._compare_ports(scope["server"][1])
        await self._app(scope, receive, send)

    def _compare_ports(self, port: int | None) -> None:
        if port not in {None, self._named_port} and urlsplit(self._public_url).hostname == "127.0.0.1":
            log.warning(
                "This server listens on port %s, and its callbacks name %s. Give Callbacks.embedded(dev=True, port=%s)",
                *(port, self._public_url, port),
            )


def _is_loopback(client: tuple[str, int] | None) -> bool:
    """A server that listens on `::` sees 127.0.0.1 as ::ffff:127.0.0.1."""
    try:
        address = ip_address("" if client is None else client[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
