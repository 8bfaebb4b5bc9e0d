"""The command line of scripts/bench."""

import argparse
import json
import os
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, Final

import uvloop

from ringback.server import exempt_startup_objects_from_garbage_collection
from ringback.telemetry.logs import configure_logging
from scripts.benchmarks.calls import calls
from scripts.benchmarks.cli import cli
from scripts.benchmarks.clients import clients
from scripts.benchmarks.dashboard import ui
from scripts.benchmarks.databases import StoreKind
from scripts.benchmarks.delivery import delivery
from scripts.benchmarks.events import events
from scripts.benchmarks.full_loop import loop
from scripts.benchmarks.gateway import gateway
from scripts.benchmarks.measurement import Json
from scripts.benchmarks.nodes import nodes
from scripts.benchmarks.scale import scale
from scripts.benchmarks.sealing import seal
from scripts.benchmarks.tracing import traces


def main() -> None:
    options = _options()
    if options.quick:
        options.rounds, options.seconds = 1, 0.2
    exempt_startup_objects_from_garbage_collection()  # as `ringback serve` does: otherwise a collection takes 0.1 s
    with _logging_as_in_production():
        measured = cli(rounds=options.rounds) if options.what == "cli" else uvloop.run(RUNS[options.what](options))
    print(json.dumps(measured) if options.json else _format_readable(measured))


RUNS: Final[Mapping[str, Callable[[argparse.Namespace], Coroutine[Any, Any, Json]]]] = {
    "delivery": lambda o: delivery(o.store, rounds=o.rounds, seconds=o.seconds, quick=o.quick),
    "scale": lambda o: scale(o.store, rounds=o.rounds, quick=o.quick, deep=o.deep),
    "events": lambda o: events(o.store, rounds=o.rounds, quick=o.quick),
    "nodes": lambda o: nodes(rounds=o.rounds, seconds=o.seconds, quick=o.quick),
    "clients": lambda o: clients(rounds=o.rounds, seconds=o.seconds),
    "calls": lambda o: calls(rounds=o.rounds, seconds=o.seconds, quick=o.quick),
    "gateway": lambda o: gateway(rounds=o.rounds, seconds=o.seconds),
    "loop": lambda o: loop(rounds=o.rounds, seconds=o.seconds),
    "seal": lambda o: seal(rounds=o.rounds, seconds=o.seconds),
    "traces": lambda o: traces(rounds=o.rounds, seconds=o.seconds),
    "ui": lambda o: ui(o.store, rounds=o.rounds, seconds=o.seconds, quick=o.quick),
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench")
    parser.add_argument("what", choices=[*RUNS, "cli"])
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds; each runs every variant (7)")
    parser.add_argument("--seconds", type=float, default=2.0, help="approximate time of each variant in each round (2)")
    parser.add_argument(
        "--store", type=StoreKind, default=StoreKind.SQLITE, help="sqlite or postgres: delivery, scale, events, ui"
    )
    parser.add_argument("--deep", action="store_true", help="a million rows, for scale")
    parser.add_argument("--quick", action="store_true", help="one short round with small numbers, as a smoke test")
    parser.add_argument("--json", action="store_true", help="one JSON object on one line")
    return parser.parse_args()


@contextmanager
def _logging_as_in_production() -> Generator[None]:
    """Format and write every log line to nowhere, so that logging costs what it costs in production."""
    with Path(os.devnull).open("w", encoding="utf-8") as null_device:
        with redirect_stderr(null_device):
            configure_logging(level="info", log_format="text")
        yield


def _format_readable(measured: Json, indent: str = "") -> str:
    return "\n".join(_line(name, value, indent) for name, value in measured.items())


def _line(name: str, value: Any, indent: str) -> str:
    if not isinstance(value, dict):
        return f"{indent}{name:<32} {value}"
    if value.keys() == {"median", "min", "max"}:
        return f"{indent}{name:<32} {value['median']}  ({value['min']} to {value['max']})"
    return f"{indent}{name}\n{_format_readable(value, indent + '  ')}"  # pyright: ignore[reportUnknownArgumentType] - JSON


if __name__ == "__main__":
    main()
