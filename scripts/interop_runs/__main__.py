"""The command line of scripts/interop."""

import argparse
import asyncio
import json
import sys
import tempfile
from functools import partial
from pathlib import Path

from ringback.domain.clock import SystemClock
from scripts.interop_runs.beside import install_beside
from scripts.interop_runs.catalog import CLIENTS, Client, find_clients
from scripts.interop_runs.environments import CACHE_VARIABLE, InstallFailed, default_cache, install_environment
from scripts.interop_runs.judge import Judgement, Row
from scripts.interop_runs.pins import Ecosystem, LookUpFailed, Pin, read_pins, update_pins
from scripts.interop_runs.report import read_results, render_table, store_results, write_readme
from scripts.interop_runs.scenarios import SLOW_SECONDS, ClientRun
from scripts.interop_runs.stage import open_stage

FAILED, INCOMPLETE = 1, 2
"""Exit codes: a client failed; a client could not be installed."""


def main() -> int:
    options = _options()
    if options.list:
        return _print_list()
    if options.update:
        return _update()
    if options.table:
        return _print_table(write=options.write)
    rows = [_run_client(client, options) for client in find_clients(options.client)]
    if options.store:
        store_results(rows, SystemClock().now().date().isoformat())
    if options.json:
        print(json.dumps({row.name: row.to_json() for row in rows}, ensure_ascii=False))
    return _exit_code(rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/interop")
    parser.add_argument("client", nargs="*", choices=[*(client.name for client in CLIENTS), []], metavar="CLIENT")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--list", action="store_true", help="print the clients, their versions and what they can set")
    parser.add_argument("--update", action="store_true", help="pin the newest versions, and run nothing")
    parser.add_argument("--table", action="store_true", help="print the README's table from the stored results")
    parser.add_argument("--write", action="store_true", help="with --table: put it into README.md")
    parser.add_argument("--store", action="store_true", help="store the results for the table")
    parser.add_argument("--full", action="store_true", help="with a tool of 40 s as well")
    parser.add_argument("--slow", type=float, default=SLOW_SECONDS, help="seconds of the slow tool (7)")
    help_text = f"the folder of the environments ({CACHE_VARIABLE}, or ~/.cache/ringback-interop)"
    parser.add_argument("--cache", type=Path, default=default_cache(), help=help_text)
    return parser.parse_args()


def _run_client(client: Client, options: argparse.Namespace) -> Row:
    pins = read_pins(client.ecosystem).get(client.environment_name, {})
    versions = {package: pin.version for package, pin in pins.items()}
    note = partial(print, file=sys.stderr if options.json else sys.stdout, flush=True)
    try:
        environment = install_environment(client.environment_name, client.ecosystem, pins, options.cache)
    except InstallFailed as problem:
        note(f"{client.name:<18} not run: {problem}")
        return Row(name=client.name, versions=versions, not_run=str(problem))

    async def run() -> dict[str, Judgement]:
        with tempfile.TemporaryDirectory(prefix="ringback-interop-") as name:
            folder = Path(name)
            async with open_stage(folder) as stage:
                client_run = ClientRun(
                    client=client,
                    environment=environment,
                    stage=stage,
                    folder=folder,
                    slow_seconds=options.slow,
                    full=options.full,
                    note=note,
                )
                return await client_run.run()

    judgements = asyncio.run(run())
    if client.ecosystem is Ecosystem.PYPI and client.environment is None:
        judgements["beside"] = install_beside(environment)
        note(f"{client.name:<18} {'beside':<9} {judgements['beside'].verdict:<12} {judgements['beside'].detail}")
    return Row(name=client.name, versions=versions, judgements=judgements)


def _print_list() -> int:
    for client in CLIENTS:
        pins = read_pins(client.ecosystem).get(client.environment_name, {})
        print(f"{client.name:<18} {_describe_versions(pins)}")
        for way, how in client.ways.items():
            print(f"{'':<18}   {way:<7} {how}")
    return 0


def _describe_versions(pins: dict[str, Pin]) -> str:
    return ", ".join(f"{package} {pin.version}" for package, pin in pins.items())


def _update() -> int:
    for ecosystem in Ecosystem:
        try:
            changes = update_pins(ecosystem)
        except LookUpFailed as problem:
            print(f"interop: {problem}", file=sys.stderr)
            return INCOMPLETE
        print("\n".join(changes) or f"{ecosystem}: all pins are the newest")
    return 0


def _print_table(*, write: bool) -> int:
    table = render_table(read_results())
    print(table)
    if write:
        write_readme(table)
    return 0


def _exit_code(rows: list[Row]) -> int:
    if any(row.not_run is None and not row.is_good for row in rows):
        return FAILED
    return INCOMPLETE if any(row.not_run for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
