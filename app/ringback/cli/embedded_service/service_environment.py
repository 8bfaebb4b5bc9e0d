"""The variables of the service, and the upstreams that are configured with them.

The process has the environment of the client that started it. The variables of the service's file replace those, and are read
again with the configuration.
"""

import os
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import Final

from ringback.cli.embedded_service.environment_file import EnvironmentFile, read_environment_file
from ringback.cli.embedded_service.paths import ServicePaths
from ringback.domain.upstreams import SkippedUpstream, SkipReason
from ringback.upstreams.config import UpstreamEntry, load_upstreams
from ringback.upstreams.config.expansion import SET_VARIABLE_ADVICE

_OWN_VARIABLES: Final = tuple(
    f"RINGBACK_{name}"
    for name in (
        "CONFIG",
        "DATABASE_URL",
        "ROLES",
        "HOST",
        "PORT",
        "PUBLIC_URL",
        "AUTH",
        "URL",
        "API_KEY",
        "SECRET_KEYS",
    )
)
"""Of a client's environment. They would give each client a service of its own, and this is one for all."""


class ServiceEnvironment:
    def __init__(self, paths: ServicePaths, process: MutableMapping[str, str] = os.environ) -> None:
        self._paths = paths
        self._process = process
        self._inherited = dict(process)
        self._logs_faults = False
        self._logged: EnvironmentFile | None = None

    def apply(self) -> None:
        """Give the process the variables of the file, and take those that would move the service. Raises `ConfigError`."""
        self._process.update(read_environment_file(self._paths.environment).variables)
        for name in _OWN_VARIABLES:
            self._process.pop(name, None)

    def begin_to_log_faults(self) -> None:
        """The log is open: log the faults of the file now, and again when it is read with another content."""
        self._logs_faults = True
        self._log_faults(read_environment_file(self._paths.environment))

    def _log_faults(self, file: EnvironmentFile) -> None:
        if self._logs_faults and file != self._logged:
            self._logged = file
            file.log_faults()

    def read_entries(self, *, is_strict: bool) -> Sequence[UpstreamEntry]:
        """The entries of the configuration, which may be made while the service runs. Raises `ConfigError`."""
        file = read_environment_file(self._paths.environment)
        self._log_faults(file)
        if not self._paths.config.exists():
            return ()
        loaded = load_upstreams(self._paths.config, {**self._inherited, **file.variables})
        if is_strict:
            loaded.require_all()
        return [self._name_file(each) for each in loaded.entries]

    def _name_file(self, entry: UpstreamEntry) -> UpstreamEntry:
        """The entry; one that lacks a variable says where this service reads it."""
        if not isinstance(entry, SkippedUpstream) or entry.reason is not SkipReason.MISSING_VARIABLE:
            return entry
        advice = f"add it as NAME=VALUE to {self._paths.environment}"
        return replace(entry, advice=entry.advice.replace(SET_VARIABLE_ADVICE, advice))
