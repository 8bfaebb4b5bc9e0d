"""`ringback doctor`: checks the installation, and says how to repair each fault."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated

import typer

from ringback.bootstrap import load_authorities, require_callback_url, require_complete_roles
from ringback.bootstrap.configuration import build_target_policy
from ringback.bootstrap.egress import open_egress
from ringback.cli.client_options import ApiKey, create_client
from ringback.cli.configured_upstreams import ConfigFile, UpstreamOption, load_configured_upstreams
from ringback.cli.installation_checks import network
from ringback.cli.installation_checks.database import API_KEYS_CHECK, Finding, check_database, fault, fine, skip
from ringback.cli.installation_checks.network import CallbackCheck, ServiceState
from ringback.cli.installation_checks.own_service import find_own_installation
from ringback.cli.installation_checks.public_url import check_public_paths, check_public_url
from ringback.cli.installation_checks.report import FindingReport
from ringback.cli.installation_checks.service import check_running_service, check_same_database, is_elsewhere
from ringback.cli.installation_checks.upstreams import (
    UPSTREAM_CHECK,
    check_upstreams,
    describe_unasked_upstreams,
    describe_unknown_upstreams,
)
from ringback.cli.output import EXIT_NO_RESULT, AsJson, exit_on_errors
from ringback.cli.server_options import Database
from ringback.client.arguments import check_base_url
from ringback.client.problems import InvalidArgument
from ringback.domain.clock import Clock, SystemClock
from ringback.domain.errors import StoreUnavailable
from ringback.notifier.http.dialer import make_tls_context
from ringback.notifier.http.guard import TargetGuard
from ringback.service_database import accept_lost_keys, accept_restore
from ringback.settings import Settings, SettingsError, find_misspelt_variables, load_settings
from ringback.upstreams.config import ConfigError, UpstreamEntry

ReadEntries = Callable[[], Sequence[UpstreamEntry]]
"""Reads the configured upstreams. Raises `ConfigError`."""


@exit_on_errors()
def doctor(
    *,
    config: ConfigFile = None,
    upstream: UpstreamOption = None,
    database: Database = None,
    url: Annotated[
        str | None,
        typer.Option("--url", envvar="RINGBACK_URL", help="The URL of the service. Default: from the settings."),
    ] = None,
    callbacks: Annotated[
        bool,
        typer.Option(
            "--callbacks", help="Also connect to the receivers of your webhooks, with the settings of this environment."
        ),
    ] = False,
    restored: Annotated[
        bool,
        typer.Option("--accept-restore", help="Accept a database whose last commits are missing, or that was moved."),
    ] = False,
    lost_keys: Annotated[
        bool, typer.Option("--accept-lost-keys", help="Let the service start without the missing keys.")
    ] = False,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Check the settings, the database, the keys, the upstreams and the service. Exits with 1 if a check fails."""
    _require_url(url)
    report = FindingReport(as_json=as_json)
    try:
        settings = load_settings(database_url=database, config=config)
        own = None if url or api_key or upstream else find_own_installation(settings)
        settings = settings if own is None else own.settings
        load_authorities(settings)
    except SettingsError as problem:
        report.add(fault("settings", str(problem)))
    else:
        api_key = api_key if own is None else own.api_key
        read_entries = (
            partial(load_configured_upstreams, settings, upstream or [], dev=False) if own is None else own.read_entries
        )
        checks = _InstallationChecks(settings, read_entries, report, url=url, api_key=api_key)
        report.add(*asyncio.run(_accept_losses(settings, restored=restored, lost_keys=lost_keys)))
        report.add(*(own.describe() if own else ()))
        asyncio.run(checks.run(callbacks=callbacks, has_service=own is None or own.is_running))
    report.finish()
    if not report.is_ok:
        raise typer.Exit(EXIT_NO_RESULT)


def _require_url(url: str | None) -> None:
    try:
        if url:
            check_base_url(url)
    except InvalidArgument as problem:
        raise typer.BadParameter(str(problem), param_hint="--url") from None


async def _accept_losses(settings: Settings, *, restored: bool, lost_keys: bool) -> list[Finding]:
    """Record what the operator accepts, before the checks."""
    findings: list[Finding] = []
    try:
        if restored:
            await accept_restore(settings)
            findings.append(
                fine("restore", "accepted: missing commits, and a move to another database, are not reported again")
            )
        if lost_keys:
            names = ", ".join(await accept_lost_keys(settings)) or "none is missing"
            findings.append(fine("lost keys", f"accepted: {names}"))
    except (StoreUnavailable, SettingsError) as problem:
        findings.append(fault("acceptance", str(problem)))
    return findings


class _InstallationChecks:
    """The checks of one installation report what they find at once. They begin with the service, on which others depend."""

    def __init__(
        self,
        settings: Settings,
        read_entries: ReadEntries,
        report: FindingReport,
        *,
        url: str | None,
        api_key: str | None,
    ) -> None:
        self._settings = settings
        self._read_entries = read_entries
        self._report = report
        self._is_named = bool(url)
        self._url = (url or settings.base_url).rstrip("/")
        self._is_here = not is_elsewhere(self._url, settings)
        self._api_key = api_key
        self._clock = SystemClock()
        self._state = ServiceState.ABSENT

    @property
    def _is_responding(self) -> bool:
        return self._state is ServiceState.RESPONDING

    async def run(self, *, callbacks: bool, has_service: bool) -> None:
        if has_service:
            checked = await network.check_service(self._url, clock=self._clock)
            self._state = checked.state
            self._report.add(*checked.findings)
        upstreams: Sequence[Finding] = await self._check_installation() if self._is_here else ()
        if has_service:
            await self._check_service(lists_tools=not any(each.about.startswith(UPSTREAM_CHECK) for each in upstreams))
            if callbacks:
                self._report.add(*await self._check_callbacks())

    async def _check_installation(self) -> Sequence[Finding]:
        """The settings of this environment, and what they name. A service that runs here may have more from its command line.

        Returns the findings about the upstreams.
        """
        self._report.add(*_check_names(), *_check_roles(self._settings))
        database = await check_database(self._settings, is_open=self._is_open)
        self._report.add(*database)
        upstreams = await self._check_upstreams()
        self._report.add(*upstreams)
        self._report.add(*await network.check_issuer(self._settings))
        if self._is_responding and any(each.about == API_KEYS_CHECK for each in database):  # it could be opened
            self._report.add(*await check_same_database(self._url, self._api_key, self._settings))
        return upstreams

    async def _is_open(self) -> bool | None:
        if self._state is ServiceState.SILENT:
            return None
        return self._is_responding and await network.is_open(self._url)

    async def _check_upstreams(self) -> Sequence[Finding]:
        try:
            entries = self._read_entries()
        except (ConfigError, OSError) as problem:
            return [fault("upstreams", str(problem))]
        if not entries and self._is_responding and await network.is_running(self._url):
            return [describe_unknown_upstreams(self._url, has_api_key=bool(self._api_key))]
        if not entries and (self._is_named or self._state is ServiceState.SILENT):
            return [describe_unasked_upstreams(self._url)]
        return await check_upstreams(entries, self._settings, clock=self._clock)

    async def _check_service(self, *, lists_tools: bool) -> None:
        if self._is_responding:
            self._report.add(
                *await check_running_service(self._url, self._api_key, lists_tools=lists_tools, clock=self._clock)
            )
        else:
            self._report.add(skip("service status", "not asked: the service does not respond"))
        if self._is_here:
            await self._check_public_url()

    async def _check_public_url(self) -> None:
        """With a public URL, the process is asked besides its proxy, also if the URL of the service is silent."""
        is_public = self._url == self._settings.base_url
        process_url = self._settings.process_url if is_public else self._url
        self._report.add(await check_public_url(self._settings, process_url, is_responding=self._is_responding))
        if self._is_responding or not is_public:
            self._report.add(*await check_public_paths(self._settings))

    async def _check_callbacks(self) -> Sequence[Finding]:
        if not self._is_responding:
            return [fault("callbacks", "Your webhooks cannot be listed: the service does not respond.")]
        return await _check_callbacks(self._settings, self._url, self._api_key, clock=self._clock)


async def _check_callbacks(settings: Settings, service_url: str, api_key: str | None, *, clock: Clock) -> list[Finding]:
    """Connect as the service does: through the egress proxy, and with its client certificates."""
    make_context = partial(make_tls_context, load_authorities(settings))
    try:
        async with (
            open_egress(settings, make_context=make_context) as egress,
            create_client(service_url, api_key) as client,
            aclosing(TargetGuard(build_target_policy(settings))) as guard,
        ):
            return await CallbackCheck(guard, clock=clock, tls=make_context(), egress=egress).run_checks(client)
    except SettingsError as problem:
        return [fault("callbacks", str(problem))]


def _check_names() -> list[Finding]:
    misspelt = [
        fault("settings", f"{name} is no setting and is ignored. Did you mean {setting}?")
        for name, setting in find_misspelt_variables().items()
    ]
    return misspelt or [fine("settings", "they are valid")]


def _check_roles(settings: Settings) -> list[Finding]:
    try:
        require_complete_roles(settings)
        require_callback_url(settings)
    except SettingsError as problem:
        return [fault("roles", str(problem))]
    return []
