"""One row of the matrix: installs a client, a server or an adapter, runs its scenarios, and says why it was not run."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.interop_runs.adapter_scenarios import ADAPTER_SERVER, AdapterRun
from scripts.interop_runs.adapters import ADAPTERS, Adapter
from scripts.interop_runs.beside import install_beside
from scripts.interop_runs.catalog import CLIENTS, Client
from scripts.interop_runs.driver_process import DriverProcess
from scripts.interop_runs.environments import Environment, InstallFailed, install_environment
from scripts.interop_runs.event_clients import EVENT_CLIENTS, EventsClient
from scripts.interop_runs.event_scenarios import EventsRun
from scripts.interop_runs.judge import Judgement, Row
from scripts.interop_runs.known_limits import apply_known_limits
from scripts.interop_runs.pins import Ecosystem, read_pins
from scripts.interop_runs.scenarios import ClientRun
from scripts.interop_runs.server_scenarios import ServerRun
from scripts.interop_runs.servers import CLIENT, SERVERS, Server
from scripts.interop_runs.stage import open_stage, receiving
from scripts.interop_runs.terminal_clients import TERMINAL_CLIENTS, TerminalClient
from scripts.interop_runs.terminal_scenarios import TerminalRun

SERVER_SCRIPTS: Final = Path(__file__).parent / "servers"
BESIDE: Final = "beside"
"""The scenario of `pip install ringback` in the client's environment."""

Entry = Client | TerminalClient | EventsClient | Server | Adapter


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    cache: Path
    slow_seconds: float
    quick: bool
    """Without the tool of 40 s."""
    only: Sequence[str]
    note: Callable[[str], None]


def run_row(entry: Entry, options: RunOptions) -> Row:
    """Run a client, a client of events, a server or an adapter; a row that could not be installed says why."""
    versions = read_versions(entry)
    try:
        judgements = _run_entry(entry, options)
    except InstallFailed as problem:
        options.note(f"{entry.name:<26} not run: {problem}")
        return Row(name=entry.name, versions=versions, not_run=str(problem))
    return Row(name=entry.name, versions=versions, judgements=apply_known_limits(entry.name, judgements))


def read_versions(entry: Entry) -> dict[str, str]:
    pins = read_pins(entry.ecosystem)[entry.environment_name]
    return {package: pin.version for package, pin in pins.items()}


def find_entries(names: list[str]) -> list[Entry]:
    """The named clients, servers and adapters, or all; raises `KeyError` with an unknown name."""
    entries: Sequence[Entry] = (*CLIENTS, *TERMINAL_CLIENTS, *EVENT_CLIENTS, *SERVERS, *ADAPTERS)
    by_name: Mapping[str, Entry] = {entry.name: entry for entry in entries}
    return [by_name[name] for name in names] if names else list(by_name.values())


def _run_entry(entry: Entry, options: RunOptions) -> dict[str, Judgement]:
    match entry:
        case Client():
            return _run_client(entry, options)
        case TerminalClient():
            return _run_terminal_client(entry, options)
        case EventsClient():
            return _run_events_client(entry, options)
        case Server():
            return _run_server(entry, options)
        case Adapter():
            return _run_adapter(entry, options)


def _run_adapter(adapter: Adapter, options: RunOptions) -> dict[str, Judgement]:
    environment = _install(adapter, options)

    async def run(folder: Path) -> dict[str, Judgement]:
        async with open_stage(folder, server=ADAPTER_SERVER) as stage:
            return await AdapterRun(
                adapter=adapter,
                environment=environment,
                stage=stage,
                folder=folder,
                only=options.only,
                note=options.note,
            ).run()

    return _run_in_folder(adapter.name, options, run)


def _run_terminal_client(client: TerminalClient, options: RunOptions) -> dict[str, Judgement]:
    environment = _install(client, options)

    async def run(folder: Path) -> dict[str, Judgement]:
        return await TerminalRun(
            client=client,
            environment=environment,
            folder=folder,
            slow_seconds=options.slow_seconds,
            only=options.only,
            note=options.note,
        ).run()

    return _run_in_folder(client.name, options, run)


def _run_events_client(client: EventsClient, options: RunOptions) -> dict[str, Judgement]:
    environment = _install(client, options)

    async def run(folder: Path) -> dict[str, Judgement]:
        driver = DriverProcess(environment, client.driver, folder / "driver.log")
        async with open_stage(folder) as stage:
            return await EventsRun(
                client=client, driver=driver, stage=stage, only=options.only, note=options.note
            ).run()

    return _run_in_folder(client.name, options, run)


def _run_client(client: Client, options: RunOptions) -> dict[str, Judgement]:
    environment = _install(client, options)

    async def run(folder: Path) -> dict[str, Judgement]:
        async with open_stage(folder) as stage:
            return await ClientRun(
                client=client,
                environment=environment,
                stage=stage,
                folder=folder,
                slow_seconds=options.slow_seconds,
                quick=options.quick,
                only=options.only,
                note=options.note,
            ).run()

    judgements = _run_in_folder(client.name, options, run)
    wanted = not options.only or BESIDE in options.only
    if wanted and client.ecosystem is Ecosystem.PYPI and client.environment is None:
        judgements[BESIDE] = beside = install_beside(environment, read_pins(client.ecosystem)[client.name])
        options.note(f"{client.name:<26} {BESIDE:<9} {beside.verdict:<12} {beside.detail}")
    return judgements


def _run_server(server: Server, options: RunOptions) -> dict[str, Judgement]:
    client = next(client for client in CLIENTS if client.name == CLIENT)
    environment, client_environment = _install(server, options), _install(client, options)

    async def run_scenarios_of_client(folder: Path) -> dict[str, Judgement]:
        script = [] if server.script is None else [str(environment.bin / "python"), str(SERVER_SCRIPTS / server.script)]
        named = {"server": script} if script else {}
        async with open_stage(folder, chained=server.chained, **named) as stage:
            return await ClientRun(
                client=client,
                environment=client_environment,
                stage=stage,
                folder=folder,
                slow_seconds=options.slow_seconds,
                quick=options.quick,
                only=options.only,
                note=lambda line: options.note(f"{server.name:<26} behind {line}"),
            ).run()

    async def run_as_others_wrote_it(folder: Path) -> dict[str, Judgement]:
        async with receiving() as receiver:
            return await ServerRun(
                server=server,
                environment=environment,
                client_environment=client_environment,
                client_driver=client.driver,
                receiver=receiver,
                folder=folder,
                note=options.note,
            ).run()

    run = run_as_others_wrote_it if server.command else run_scenarios_of_client
    return _run_in_folder(server.name, options, run)


def _install(entry: Entry, options: RunOptions) -> Environment:
    pins = read_pins(entry.ecosystem)[entry.environment_name]
    extra = entry.extra if isinstance(entry, Adapter) else None
    return install_environment(entry.environment_name, entry.ecosystem, pins, options.cache, extra=extra)


def _run_in_folder(
    name: str, options: RunOptions, run: Callable[[Path], Awaitable[dict[str, Judgement]]]
) -> dict[str, Judgement]:
    """Run in a fresh folder of the cache; the logs of the last run stay there."""

    async def run_in(folder: Path) -> dict[str, Judgement]:
        return await run(folder)

    folder = options.cache / "runs" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return asyncio.run(run_in(folder))
