"""The quotas of single principals and keys in the configuration file."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringback.bootstrap.quota_configuration import ConfigurationReloader, load_quota_overrides
from ringback.domain.errors import InvalidConfiguration
from ringback.domain.ids import KeyId
from ringback.domain.principal import Principal
from ringback.domain.upstreams import Reloaded
from ringback.services.limits.quotas import KeyLimits, QuotaEnforcer, QuotaOverrides, Quotas
from ringback.upstreams.config import ConfigError
from tests.support.clock import FakeClock
from tests.support.examples import ALICE

KEY = KeyId("key_01KAGZ7Q00F2G4H6J8K1M3N5P7")
DEFAULTS = Quotas(webhooks=7)


class CountingConfiguration:
    """Implements `domain.upstreams.UpstreamConfiguration`."""

    reloads = 0

    def reload_configuration(self) -> Reloaded:
        self.reloads += 1
        return Reloaded(added=[], changed=[], removed=[], unchanged=[])


def write_file(folder: Path, section: Any) -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {}, "ringback": section}), encoding="utf-8")
    return path


def test_a_name_that_is_left_out_has_the_default(tmp_path: Path) -> None:
    quotas = {"principals": {"alice": {"open_calls": 5}}, "keys": {KEY: {"streams": 2}}}

    overrides = load_quota_overrides(write_file(tmp_path, {"quotas": quotas}), DEFAULTS)

    assert overrides == QuotaOverrides(
        principals={Principal("alice"): Quotas(open_calls=5, webhooks=7)}, keys={KEY: KeyLimits(streams=2)}
    )


def test_without_a_section_or_a_file_there_are_no_quotas_of_single_principals(tmp_path: Path) -> None:
    (tmp_path / "plain.json").write_text('{"mcpServers": {}}', encoding="utf-8")

    assert load_quota_overrides(tmp_path / "plain.json", DEFAULTS) == QuotaOverrides()
    assert load_quota_overrides(None, DEFAULTS) == QuotaOverrides()


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ([], "'ringback' must be an object"),
        ({"quota": {}}, "has no 'quota'. Did you mean 'quotas'?"),
        ({"quotas": {"principal": {}}}, "Did you mean 'principals'?"),
        ({"quotas": {"principals": {"alice": {"open_call": 1}}}}, "principals.alice has no 'open_call'. Did you mean"),
        ({"quotas": {"principals": {"alice": {"open_calls": 0}}}}, "alice.open_calls must be an integer from 1 on"),
        ({"quotas": {"principals": {"alice": {"open_calls": True}}}}, "must be an integer"),
        ({"quotas": {"principals": {"alice": 5}}}, "principals.alice must be an object"),
        ({"quotas": {"keys": {KEY: {"webhooks": 1}}}}, "has no 'webhooks'. It may have streams, starts_per_minute."),
        ({"quotas": {"keys": {"laptop": {"streams": 1}}}}, "'laptop' is not the id of a key"),
    ],
)
def test_an_invalid_section_is_refused_with_the_place(tmp_path: Path, section: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=r"mcp\.json") as caught:
        load_quota_overrides(write_file(tmp_path, section), DEFAULTS)

    assert words in str(caught.value)


def test_a_reload_with_invalid_quotas_changes_neither_quotas_nor_upstreams(tmp_path: Path) -> None:
    path = write_file(tmp_path, {"quotas": {"principals": {ALICE: {"open_calls": 5}}}})
    upstreams, quotas = CountingConfiguration(), QuotaEnforcer(DEFAULTS, clock=FakeClock())
    reloader = ConfigurationReloader(upstreams, quotas, load_overrides=lambda: load_quota_overrides(path, DEFAULTS))

    reloader.reload_configuration()
    assert (quotas.get_quotas(ALICE).open_calls, upstreams.reloads) == (5, 1)

    write_file(tmp_path, {"quotas": {"principals": {ALICE: {"open_calls": "many"}}}})
    with pytest.raises(InvalidConfiguration, match="Nothing was changed"):
        reloader.reload_configuration()
    assert (quotas.get_quotas(ALICE).open_calls, upstreams.reloads) == (5, 1)


def test_a_reload_says_whether_it_changed_quotas(tmp_path: Path) -> None:
    path = write_file(tmp_path, {"quotas": {"keys": {KEY: {"streams": 2}}}})
    overrides = load_quota_overrides(path, DEFAULTS)
    quotas = QuotaEnforcer(DEFAULTS, clock=FakeClock(), overrides=overrides)
    reloader = ConfigurationReloader(
        CountingConfiguration(), quotas, load_overrides=lambda: load_quota_overrides(path, DEFAULTS)
    )
    changes = [reloader.reload_configuration().quotas_changed]
    for section in ({"quotas": {"keys": {KEY: {"streams": 3}}}}, {}, {}):
        write_file(tmp_path, section)
        changes.append(reloader.reload_configuration().quotas_changed)

    assert changes == [False, True, True, False]
