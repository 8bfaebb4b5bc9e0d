"""The quotas of single principals and API keys, in the file with the upstreams (RINGBACK_CONFIG).

    {"mcpServers": {…},
     "ringback": {"quotas": {"principals": {"reports-team": {"open_calls": 500, "starts_per_minute": 600}},
                             "keys": {"key_01KAGZ7Q00F2G4H6J8K1M3N5P7": {"starts_per_minute": 60, "streams": 2}}}}}

A name that a principal's quotas leave out has the service's default (RINGBACK_QUOTA_*). A key's limits apply within those of
its principal. A reload (SIGHUP, POST /v1/upstreams/reload) reads both again, and changes nothing if either is invalid.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, cast

from ringback.domain.errors import InvalidConfiguration
from ringback.domain.ids import KeyId, is_well_formed_id
from ringback.domain.principal import Principal
from ringback.domain.upstreams import Reloaded, UpstreamConfiguration
from ringback.services.limits.quotas import KeyLimits, QuotaEnforcer, QuotaOverrides, Quotas
from ringback.suggestions import suggest_name
from ringback.upstreams.config import ConfigError, load_service_section

log = logging.getLogger(__name__)

OVERRIDES_MAX: Final = 10_000
"""Principals or keys with quotas of their own: more than the file's megabyte holds in practice."""
QUOTA_MAX: Final = 2**53
"""The largest integer that every JSON parser keeps."""

_SECTION_NAMES: Final = ("quotas",)
_QUOTA_KINDS: Final = ("principals", "keys")


def load_quota_overrides(path: Path | None, defaults: Quotas) -> QuotaOverrides:
    """None for a file that does not exist: whether one must is for its upstreams to say.

    Raises `ConfigError`, which says where and what to do.
    """
    if path is None or not path.exists():
        return QuotaOverrides()
    where = f"{path}: ringback"
    section = _read_object(load_service_section(path), where, _SECTION_NAMES)
    where = f"{where}.quotas"
    quotas = _read_object(section.get("quotas", {}), where, _QUOTA_KINDS)
    principals = _read_entries(quotas, "principals", where, [each.name for each in fields(Quotas)])
    keys = _read_entries(quotas, "keys", where, [each.name for each in fields(KeyLimits)])
    for key_id in keys:
        if not is_well_formed_id("key", key_id):
            raise ConfigError(f"{where}.keys: '{key_id}' is not the id of a key. List them: ringback keys list")
    return QuotaOverrides(
        principals={Principal(name): replace(defaults, **limits) for name, limits in principals.items()},
        keys={KeyId(key_id): KeyLimits(**limits) for key_id, limits in keys.items()},
    )


def _read_entries(
    quotas: Mapping[str, Any], kind: str, where: str, names: Iterable[str]
) -> Mapping[str, Mapping[str, int]]:
    entries = _read_object(quotas.get(kind, {}), f"{where}.{kind}")
    if len(entries) > OVERRIDES_MAX:
        raise ConfigError(f"{where}.{kind} has {len(entries)} entries; at most {OVERRIDES_MAX} are read.")
    return {name: _read_limits(entry, f"{where}.{kind}.{name}", names) for name, entry in entries.items()}


def _read_limits(entry: Any, where: str, names: Iterable[str]) -> Mapping[str, int]:
    limits = _read_object(entry, where, names)
    for name, limit in limits.items():
        if type(limit) is not int or not 1 <= limit <= QUOTA_MAX:
            raise ConfigError(f"{where}.{name} must be an integer from 1 on.")
    return limits


def _read_object(value: Any, where: str, names: Iterable[str] | None = None) -> Mapping[str, Any]:
    """The object. With `names`, it may have no others."""
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be an object.")
    members = cast("dict[str, Any]", value)
    if names is not None:
        known = list(names)
        for name in members.keys() - set(known):
            raise ConfigError(f"{where} has no '{name}'.{suggest_name(name, known)} It may have {', '.join(known)}.")
    return members


class ConfigurationReloader:
    """Implements `domain.upstreams.UpstreamConfiguration`: reloads the quotas together with the upstreams."""

    def __init__(
        self, upstreams: UpstreamConfiguration, quotas: QuotaEnforcer, *, load_overrides: Callable[[], QuotaOverrides]
    ) -> None:
        """`load_overrides` may raise `ConfigError`."""
        self._upstreams = upstreams
        self._quotas = quotas
        self._load_overrides = load_overrides

    def reload_configuration(self) -> Reloaded:
        try:
            overrides = self._load_overrides()
        except ConfigError as problem:
            log.error("configuration.not_reloaded", extra={"problem": str(problem)})  # noqa: TRY400 - the message is complete
            raise InvalidConfiguration(f"Nothing was changed. {problem}") from None
        reloaded = self._upstreams.reload_configuration()
        quotas_changed = self._quotas.replace_overrides(overrides)
        log.info("quotas.reloaded", extra={"principals": len(overrides.principals), "keys": len(overrides.keys)})
        return replace(reloaded, quotas_changed=quotas_changed)
