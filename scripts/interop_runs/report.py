"""The stored results, and the tables of scripts/INTEROP.md made from them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scripts.interop_runs import features
from scripts.interop_runs.adapters import ADAPTERS, Adapter
from scripts.interop_runs.catalog import CLIENTS, Client
from scripts.interop_runs.event_clients import EVENT_CLIENTS, EventsClient
from scripts.interop_runs.judge import Row, Verdict
from scripts.interop_runs.servers import SERVERS, Server
from scripts.interop_runs.terminal_clients import TERMINAL_CLIENTS, TerminalClient

RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = Path(__file__).resolve().parents[1] / "INTEROP.md"
BEGIN: Final = "<!-- scripts/interop --table: begin -->"
END: Final = "<!-- scripts/interop --table: end -->"
SERVER_COLUMNS: Final = (
    *("list", "fast", "slow", "40 s", "progress", "cancel"),
    *("rejoin", "callback", "restart", "kill", "server kill"),
)
COLUMNS: Final = (*SERVER_COLUMNS, "beside")
"""The scenarios of the table; `PARTS` says which of them stand for several or have another name. `beside` is
`pip install ringback` in the client's environment."""
PARTS: Final[Mapping[str, Sequence[str]]] = {
    "slow": ("slow", "typed"),
    "40 s": ("slow-40",),
    "cancel": ("cancel", "give up"),
    "several": ("several", "tool node", "own nodes"),
}
ADAPTER_COLUMNS: Final = (
    "wake",
    "typed",
    "named",
    "duplicate",
    "several",
    "at once",
    "processes",
    "died",
    "failed",
    "tool error",
    "cancelled",
    "question",
    "early",
    "edges",
    "types",
)
EVENT_COLUMNS: Final = (
    *("list", "subscribe", "event", "filter", "twice", "refused"),
    *("replay", "refresh", "restart", "unsubscribe", "legacy"),
)
TERMINAL_COLUMNS: Final = ("connect", "list", "tools", "slow", "undo")
WAYS: Final = "session and callback by"
MARKS: Final = {
    Verdict.PASSED: "✓",
    Verdict.FAILED: "✗",
    Verdict.THEIRS: "✗ theirs",
    Verdict.NOT_OFFERED: "-",
    Verdict.NOT_RUN: "not run",
}

Stored = dict[str, Any]
Entry = Client | TerminalClient | EventsClient | Server | Adapter


def read_results() -> dict[str, Stored]:
    if not RESULTS.exists():
        return {}
    stored: dict[str, Stored] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return stored


def store_results(rows: Sequence[Row], date: str, *, partial: bool = False) -> None:
    """Replace the stored rows of these names. `partial` rows replace only their scenarios in a row of the same versions."""
    stored = read_results()
    for row in rows:
        new = {"date": date, **row.to_json()}
        stored[row.name] = _merge(stored[row.name], new) if partial and row.name in stored else new
    lines = [f"  {json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in sorted(stored.items())]
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _merge(old: Stored, new: Stored) -> Stored:
    """The old row, with its date, and the new row's scenarios. A row of other versions, or without a run, is replaced."""
    if old["versions"] != new["versions"] or old["not_run"] or new["not_run"]:
        return new
    return old | {"scenarios": {**old["scenarios"], **new["scenarios"]}}


def render_table(results: Mapping[str, Stored]) -> str:
    """Markdown: what each client can use, the runs (clients, agents, servers, adapters), and one line a failure."""
    entries = (*CLIENTS, *TERMINAL_CLIENTS, *EVENT_CLIENTS, *SERVERS, *ADAPTERS)
    notes = [note for entry in entries for note in _render_notes(entry, results.get(entry.name))]
    clients = _render_rows("client", [*COLUMNS, WAYS], CLIENTS, results)
    terminals = _render_rows("agent in a terminal", TERMINAL_COLUMNS, TERMINAL_CLIENTS, results)
    servers = _render_rows("server", SERVER_COLUMNS, SERVERS, results)
    events = _render_rows("client of MCP Events", EVENT_COLUMNS, EVENT_CLIENTS, results)
    adapters = _render_rows("adapter", ADAPTER_COLUMNS, ADAPTERS, results)
    usable = _render_features(results)
    return "\n".join(
        [
            *usable,
            "",
            *clients,
            "",
            *terminals,
            "",
            *events,
            "",
            *servers,
            "",
            *adapters,
            *(["", *notes] if notes else []),
        ]
    )


def _render_features(results: Mapping[str, Stored]) -> list[str]:
    lines = [["client", *features.COLUMNS, "own time-out", "run"], ["---"] * (len(features.COLUMNS) + 3)]
    lines += [_render_client_features(client, results) for client in CLIENTS]
    return [f"| {' | '.join(line)} |" for line in lines]


def _render_client_features(client: Client, results: Mapping[str, Stored]) -> list[str]:
    known, stored = features.get_features(client.name), results.get(client.name)
    tools = _render_cell({} if stored is None else stored["scenarios"], "slow")
    adapter = "-"
    if known.adapter is not None:
        run = results.get(known.adapter)
        adapter = _render_cell({} if run is None else run["scenarios"], "wake")
    date = "" if stored is None else stored["date"]
    return [
        client.title,
        known.tasks,
        _render_events(client, results),
        known.pending_resource,
        tools,
        adapter,
        _render_patience(stored),
        date,
    ]


def _render_patience(stored: Stored | None) -> str:
    """After how many seconds the client gives up a tool by itself."""
    scenarios: Mapping[str, Mapping[str, str]] = {} if stored is None else stored["scenarios"]
    patience = scenarios.get("patience", {})
    return patience["detail"] if patience.get("verdict") == Verdict.PASSED else "-"


def _render_events(client: Client, results: Mapping[str, Stored]) -> str:
    """Whether the client's events reach its webhook handler. A client without a row of its own has none."""
    runs = [results.get(each.name) for each in EVENT_CLIENTS if each.client == client.name]
    return _render_cell({} if runs[0] is None else runs[0]["scenarios"], "event") if runs else features.Support.NONE


def _render_rows(
    first: str, columns: Sequence[str], entries: Sequence[Entry], results: Mapping[str, Stored]
) -> list[str]:
    lines = [[first, *columns, "tested"], ["---"] * (len(columns) + 2)]
    lines += [_render_row(entry, columns, results.get(entry.name)) for entry in entries]
    return [f"| {' | '.join(line)} |" for line in lines]


def write_page(table: str) -> None:
    """Put the table between its two marks; raises `ValueError` if the page has none."""
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"INTEROP.md has no {BEGIN} … {END}")
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")


def _render_row(entry: Entry, columns: Sequence[str], stored: Stored | None) -> list[str]:
    scenarios: Mapping[str, Mapping[str, str]] = {} if stored is None else stored["scenarios"]
    versions = "" if stored is None else " ".join(stored["versions"].values())
    cells = [_render_ways(entry) if column == WAYS else _render_cell(scenarios, column) for column in columns]
    return [f"{entry.title} {versions}".strip(), *cells, "" if stored is None else stored["date"]]


def _render_ways(entry: Entry) -> str:
    return "; ".join(f"{way}: {how}" for way, how in entry.ways.items()) if isinstance(entry, Client) else ""


def _render_cell(scenarios: Mapping[str, Mapping[str, str]], column: str) -> str:
    verdicts = [Verdict(scenarios[name]["verdict"]) for name in PARTS.get(column, (column,)) if name in scenarios]
    if Verdict.FAILED in verdicts or "open" in scenarios:
        return MARKS[Verdict.FAILED]
    if Verdict.THEIRS in verdicts:
        return MARKS[Verdict.THEIRS]
    missing = Verdict.NOT_OFFERED if scenarios else Verdict.NOT_RUN
    return MARKS[verdicts[0] if verdicts else missing]


def _render_notes(entry: Entry, stored: Stored | None) -> list[str]:
    """One line for each failure, and the reason why a client was not run."""
    if stored is None:
        return []
    if stored["not_run"] is not None:
        return [f"- {entry.title}: not run: {stored['not_run']}"]
    return [
        f"- {entry.title}, {name}: {each['detail']}"
        for name, each in stored["scenarios"].items()
        if each["verdict"] in {Verdict.FAILED, Verdict.THEIRS}
    ]
