"""The command line of scripts/interop."""

import argparse
import json
import signal
import sys
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from ringback.domain.clock import SystemClock
from scripts.interop_runs.adapters import Adapter
from scripts.interop_runs.catalog import Client
from scripts.interop_runs.environments import CACHE_VARIABLE, default_cache
from scripts.interop_runs.event_clients import EventsClient
from scripts.interop_runs.judge import Row
from scripts.interop_runs.parallel_rows import ParallelRows
from scripts.interop_runs.pins import Ecosystem, LookUpFailed, update_pins
from scripts.interop_runs.report import read_results, render_table, store_results, write_page
from scripts.interop_runs.rows import Entry, RunOptions, find_entries, read_versions, run_row
from scripts.interop_runs.scenarios import SLOW_SECONDS
from scripts.interop_runs.servers import Server
from scripts.interop_runs.terminal_clients import TerminalClient

FAILED: Final = 1
"""The exit code if a client or a server failed."""
INCOMPLETE: Final = 2
"""The exit code if one could not be installed, or a registry did not answer."""
INTERRUPTED: Final = 130
"""The exit code after Ctrl-C or SIGTERM, as shells give it."""


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the processes of the stage, as Ctrl-C does
    options = _options()
    if options.list:
        return _print_list()
    if options.update:
        return _update()
    if options.table:
        return _print_table(write=options.write)
    if options.store and options.quick:
        print("interop: --store needs the tool of 40 s; leave --quick out", file=sys.stderr)
        return INCOMPLETE
    return _run(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/interop")
    parser.add_argument("name", nargs="*", help="clients, servers and adapters; default: all")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--list", action="store_true", help="print the names, the versions, and what each can set")
    parser.add_argument("--update", action="store_true", help="pin the newest versions, and run nothing")
    parser.add_argument(
        "--table", action="store_true", help="print the tables of scripts/INTEROP.md from the stored results"
    )
    parser.add_argument("--write", action="store_true", help="with --table: put them into that page")
    parser.add_argument("--store", action="store_true", help="store the results for the table; with --only: these")
    parser.add_argument("--quick", action="store_true", help="without the tool of 40 s")
    parser.add_argument("--only", action="append", default=[], metavar="SCENARIO", help="may be repeated; default: all")
    parser.add_argument("--jobs", type=int, default=1, help="rows that run at once, each in a process of its own (1)")
    parser.add_argument("--slow", type=float, default=SLOW_SECONDS, help="seconds of the slow tool (7)")
    where = f"the folder of the environments ({CACHE_VARIABLE}, or ~/.cache/ringback-interop)"
    parser.add_argument("--cache", type=Path, default=default_cache(), help=where)
    return parser.parse_args()


def _run(options: argparse.Namespace) -> int:
    try:
        entries = find_entries(options.name)
    except KeyError as unknown:
        print(f"interop: no client, server or adapter is called {unknown}; see --list", file=sys.stderr)
        return INCOMPLETE
    rows: list[Row] = []
    for row in _run_in_turn(entries, options) if options.jobs == 1 else _run_side_by_side(entries, options):
        rows.append(row)
        if options.store:
            store_results(rows[-1:], SystemClock().now().date().isoformat(), partial=bool(options.only))
    if options.json:
        print(json.dumps({row.name: row.to_json() for row in rows}, ensure_ascii=False))
    return _exit_code(rows)


def _run_in_turn(entries: Sequence[Entry], options: argparse.Namespace) -> Generator[Row]:
    note = partial(print, file=sys.stderr if options.json else sys.stdout, flush=True)
    run_options = RunOptions(
        cache=options.cache, slow_seconds=options.slow, quick=options.quick, only=options.only, note=note
    )
    for entry in entries:
        yield run_row(entry, run_options)


def _run_side_by_side(entries: Sequence[Entry], options: argparse.Namespace) -> Generator[Row]:
    repeated = [word for scenario in options.only for word in ("--only", scenario)]
    given = ["--cache", str(options.cache), "--slow", str(options.slow), *(["--quick"] if options.quick else [])]
    return ParallelRows([*given, *repeated], jobs=options.jobs).run(entries)


def _print_list() -> int:
    for entry in find_entries([]):
        versions = ", ".join(f"{package} {version}" for package, version in read_versions(entry).items())
        print(f"{entry.name:<26} {versions:<60} {_describe(entry)}")
    return 0


def _describe(entry: Entry) -> str:
    match entry:
        case Client():
            return "; ".join(f"{way}: {how}" for way, how in entry.ways.items())
        case TerminalClient():
            return "an agent in a terminal, with a scripted model"
        case EventsClient():
            return "subscribes to MCP Events"
        case Server():
            return "a server"
        case Adapter():
            return f"the adapter ringback.agents.{entry.module}"


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
        write_page(table)
    return 0


def _exit_code(rows: Sequence[Row]) -> int:
    if any(row.not_run is None and not row.is_good for row in rows):
        return FAILED
    return INCOMPLETE if any(row.not_run for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
