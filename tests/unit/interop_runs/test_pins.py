"""The pinned versions of scripts/interop, and the clients that use them."""

import json
import re
from pathlib import Path

import pytest

from scripts.interop_runs.adapters import ADAPTERS
from scripts.interop_runs.catalog import CLIENTS
from scripts.interop_runs.environments import DRIVERS
from scripts.interop_runs.event_clients import EVENT_CLIENTS
from scripts.interop_runs.pins import Ecosystem, Pin, read_pins, write_pins
from scripts.interop_runs.rows import SERVER_SCRIPTS, find_entries
from scripts.interop_runs.servers import SERVERS
from scripts.interop_runs.terminal_clients import TERMINAL_CLIENTS

EXACT = re.compile(r"\d+(\.\d+)+([-.]?(a|b|rc|alpha|beta|canary|post|next)[-.\w]*)?")


@pytest.mark.parametrize("ecosystem", list(Ecosystem))
def test_every_pin_is_one_exact_version(ecosystem: Ecosystem) -> None:
    pins = read_pins(ecosystem)

    assert pins
    assert [pin for packages in pins.values() for pin in packages.values() if not EXACT.fullmatch(pin.version)] == []


@pytest.mark.parametrize("ecosystem", list(Ecosystem))
def test_every_environment_is_used_and_every_client_server_and_adapter_has_one(ecosystem: Ecosystem) -> None:
    used = {
        entry.environment_name
        for entry in (*CLIENTS, *TERMINAL_CLIENTS, *SERVERS, *ADAPTERS)
        if entry.ecosystem is ecosystem
    }

    assert used == set(read_pins(ecosystem))


@pytest.mark.parametrize("ecosystem", list(Ecosystem))
def test_the_pins_are_written_as_they_are_read(
    ecosystem: Ecosystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = read_pins(ecosystem)
    before = json.loads(ecosystem.file.read_text(encoding="utf-8"))
    monkeypatch.setattr("scripts.interop_runs.pins.HERE", tmp_path)

    write_pins(ecosystem, pins)

    assert json.loads(ecosystem.file.read_text(encoding="utf-8")) == before
    assert read_pins(ecosystem) == pins


def test_a_pin_without_a_range_has_only_its_version() -> None:
    assert Pin("1.0.0").to_json() == {"version": "1.0.0"}
    assert Pin("1.0.0", "<2").to_json() == {"version": "1.0.0", "within": "<2"}


def test_every_client_and_server_has_a_script_and_a_name_of_its_own() -> None:
    scripts = [DRIVERS / client.driver for client in (*CLIENTS, *EVENT_CLIENTS)]
    scripts += [SERVER_SCRIPTS / server.script for server in SERVERS if server.script is not None]
    names = [entry.name for entry in (*CLIENTS, *TERMINAL_CLIENTS, *EVENT_CLIENTS, *SERVERS, *ADAPTERS)]

    assert [script for script in scripts if not script.is_file()] == []
    assert len(set(names)) == len(names)


def test_clients_servers_and_adapters_are_found_by_name_and_all_without_one() -> None:
    assert find_entries([]) == [*CLIENTS, *TERMINAL_CLIENTS, *EVENT_CLIENTS, *SERVERS, *ADAPTERS]
    assert find_entries([CLIENTS[0].name, SERVERS[0].name]) == [CLIENTS[0], SERVERS[0]]
    with pytest.raises(KeyError):
        find_entries(["no such client"])
