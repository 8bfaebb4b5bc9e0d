"""The stored results, and the README's compatibility table made from them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scripts.interop_runs.catalog import CLIENTS, Client
from scripts.interop_runs.judge import Row, Verdict

RESULTS: Final = Path(__file__).with_name("results.json")
README: Final = Path(__file__).resolve().parents[2] / "README.md"
BEGIN: Final = "<!-- scripts/interop --table: begin -->"
END: Final = "<!-- scripts/interop --table: end -->"
COLUMNS: Final = ("list", "fast", "slow", "progress", "cancel", "rejoin", "callback", "restart", "kill", "beside")
"""The scenarios of the table. `beside` is `pip install ringback` in the client's environment. `slow` also stands for `typed` and `slow-40`, and `cancel` for `give up`."""
PARTS: Final[Mapping[str, Sequence[str]]] = {"slow": ("slow", "typed", "slow-40"), "cancel": ("cancel", "give up")}
MARKS: Final = {Verdict.PASSED: "✓", Verdict.FAILED: "✗", Verdict.NOT_OFFERED: "-", Verdict.NOT_RUN: "not run"}

Stored = dict[str, Any]


def read_results() -> dict[str, Stored]:
    if not RESULTS.exists():
        return {}
    stored: dict[str, Stored] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return stored


def store_results(rows: Sequence[Row], date: str) -> None:
    """Replace the stored rows of these names."""
    stored = read_results() | {row.name: {"date": date, **row.to_json()} for row in rows}
    lines = [f"  {json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in sorted(stored.items())]
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def render_table(results: Mapping[str, Stored]) -> str:
    head = ["client", "versions", *COLUMNS, "session and callback by", "tested"]
    lines = [head, ["---"] * len(head), *(_render_client(client, results.get(client.name)) for client in CLIENTS)]
    notes = [note for client in CLIENTS for note in _render_notes(client, results.get(client.name))]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([table, *(["", *notes] if notes else [])])


def write_readme(table: str) -> None:
    """Put the table between its two marks; raises `ValueError` if the README has none."""
    text = README.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no {BEGIN} … {END}")
    README.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def _render_client(client: Client, stored: Stored | None) -> list[str]:
    ways = ", ".join(f"{way}: `{how}`" if how.endswith(")") else f"{way} {how}" for way, how in client.ways.items())
    if stored is None or stored["not_run"] is not None:
        return [client.title, "", *["not run"] * len(COLUMNS), ways, ""]
    versions = ", ".join(f"{package} {version}" for package, version in stored["versions"].items())
    return [
        client.title,
        versions,
        *(_render_cell(stored["scenarios"], name) for name in COLUMNS),
        ways,
        stored["date"],
    ]


def _render_cell(scenarios: Mapping[str, Mapping[str, str]], column: str) -> str:
    verdicts = [Verdict(scenarios[name]["verdict"]) for name in PARTS.get(column, (column,)) if name in scenarios]
    if Verdict.FAILED in verdicts or "open" in scenarios:
        return MARKS[Verdict.FAILED]
    return MARKS[verdicts[0]] if verdicts else MARKS[Verdict.NOT_RUN]


def _render_notes(client: Client, stored: Stored | None) -> list[str]:
    """One line for each failure, and the reason why a client was not run."""
    if stored is None:
        return []
    if stored["not_run"] is not None:
        return [f"- {client.title}: not run: {stored['not_run']}"]
    return [
        f"- {client.title}, {name}: {each['detail']}"
        for name, each in stored["scenarios"].items()
        if each["verdict"] == Verdict.FAILED
    ]
