"""The tables of scripts/INTEROP.md, made from stored results."""

from pathlib import Path

import pytest

from scripts.interop_runs import report
from scripts.interop_runs.adapters import ADAPTERS
from scripts.interop_runs.catalog import CLIENTS
from scripts.interop_runs.event_clients import EVENT_CLIENTS
from scripts.interop_runs.features import FEATURES
from scripts.interop_runs.judge import Answer, Judgement, Row, Verdict, judge_patience
from scripts.interop_runs.report import (
    ADAPTER_COLUMNS,
    BEGIN,
    COLUMNS,
    END,
    EVENT_COLUMNS,
    read_results,
    render_table,
    store_results,
    write_page,
)
from scripts.interop_runs.servers import SERVERS

CLIENT, ANOTHER = CLIENTS[0], CLIENTS[1]
STORED, PAGE = report.RESULTS, report.PAGE
GAVE_UP = Answer(raised="McpError: timed out", seconds=5.01)
PASSED = Judgement(Verdict.PASSED)
JUDGEMENTS = {
    "list": PASSED,
    "slow": PASSED,
    "slow-40": Judgement(Verdict.FAILED, "raised ReadTimeout"),
    "typed": Judgement(Verdict.FAILED, "raised ValueError: null"),
    "progress": Judgement(Verdict.NOT_OFFERED),
    "kill": Judgement(Verdict.THEIRS, "its SDK closes the client"),
}


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(report, "PAGE", tmp_path / "INTEROP.md")


def line_of(title: str) -> list[str]:
    """The cells of the last row with this title: that of a client's runs follows that of its features."""
    lines = [line for line in render_table(read_results()).splitlines() if line.startswith(f"| {title}")]
    return [cell.strip() for cell in lines[-1].split("|")[1:-1]]


def test_the_features_of_a_client_are_verdicts_of_runs_and_what_its_source_says() -> None:
    langchain = next(client for client in CLIENTS if client.name == "langchain")
    store_results(
        [
            Row(name="langchain", versions={}, judgements={"slow": PASSED, "patience": judge_patience(GAVE_UP, 70)}),
            Row(name="adapter-langgraph", versions={}, judgements={"wake": PASSED}),
        ],
        "2026-11-22",
    )

    first = next(line for line in render_table(read_results()).splitlines() if line.startswith(f"| {langchain.title}"))

    assert first == f"| {langchain.title} | - | - | in its API | ✓ | ✓ | 5 s | 2026-11-22 |"


def test_features_are_those_of_clients_and_adapters_of_the_matrix() -> None:
    assert FEATURES.keys() <= {client.name for client in CLIENTS}
    assert {each.adapter for each in FEATURES.values()} - {None} <= {adapter.name for adapter in ADAPTERS}


def test_a_client_has_events_if_its_run_with_events_passed() -> None:
    events = EVENT_CLIENTS[0]
    client = next(client for client in CLIENTS if client.name == events.client)
    rows = [f"| {client.title} | ", f"| {events.title} "]
    before = [line for line in render_table(read_results()).splitlines() if line.startswith(rows[0])]
    store_results(
        [Row(name=events.name, versions={"mcp": "2.0"}, judgements={"event": PASSED, "list": PASSED})], "2026-11-22"
    )
    after = [line for line in render_table(read_results()).splitlines() if line.startswith(rows[0])]

    cells = line_of(events.title)

    assert [line.split("|")[3].strip() for line in (before[0], after[0])] == ["not run", "✓"]
    assert cells[0] == f"{events.title} 2.0"
    assert cells[1 + EVENT_COLUMNS.index("event")] == "✓"
    assert cells[1 + EVENT_COLUMNS.index("restart")] == "-"


def test_a_cell_fails_if_one_of_its_scenarios_fails_and_every_failure_has_a_line() -> None:
    store_results([Row(name=CLIENT.name, versions={"mcp": "1.9.4"}, judgements=JUDGEMENTS)], "2026-11-22")

    cells = line_of(CLIENT.title)
    table = render_table(read_results())

    assert cells[:6] == [f"{CLIENT.title} 1.9.4", "✓", "-", "✗", "✗", "-"]
    assert cells[1 + COLUMNS.index("kill")] == "✗ theirs"
    assert cells[-1] == "2026-11-22"
    assert f"- {CLIENT.title}, typed: raised ValueError: null" in table
    assert f"- {CLIENT.title}, kill: its SDK closes the client" in table


def test_the_cell_of_an_adapter_stands_for_its_further_graphs() -> None:
    adapter = next(adapter for adapter in ADAPTERS if adapter.graphs)
    judgements = {"wake": PASSED, "several": PASSED, adapter.graphs[0]: Judgement(Verdict.FAILED, "said nothing")}
    store_results([Row(name=adapter.name, versions={"framework": "1.2"}, judgements=judgements)], "2026-11-22")

    cells = line_of(f"{adapter.title} 1.2")

    assert cells[1] == "✓"
    assert cells[1 + ADAPTER_COLUMNS.index("several")] == "✗"
    assert f"- {adapter.title}, {adapter.graphs[0]}: said nothing" in render_table(read_results())


def test_a_client_that_was_not_run_is_never_green() -> None:
    store_results([Row(name=ANOTHER.name, versions={"mcp": "1.12.4"}, not_run="no such version")], "2026-11-22")

    assert set(line_of(CLIENT.title)[1:10]) == {"not run"}
    assert set(line_of(ANOTHER.title)[1:10]) == {"not run"}
    assert f"- {ANOTHER.title}: not run: no such version" in render_table(read_results())


def test_a_new_result_replaces_only_its_own_row() -> None:
    store_results(
        [Row(name=CLIENT.name, versions={}, judgements={"list": Judgement(Verdict.FAILED, "empty")})], "2026-11-21"
    )
    store_results([Row(name=SERVERS[0].name, versions={}, judgements={"list": PASSED})], "2026-11-22")
    store_results([Row(name=CLIENT.name, versions={}, judgements={"list": PASSED})], "2026-11-22")

    assert [row["date"] for row in read_results().values()] == ["2026-11-22", "2026-11-22"]
    assert line_of(CLIENT.title)[1] == "✓"


def test_a_partial_result_replaces_its_scenarios_in_a_row_of_the_same_versions_only() -> None:
    store_results([Row(name=CLIENT.name, versions={"mcp": "1"}, judgements=JUDGEMENTS)], "2026-11-21")
    killed = Row(name=CLIENT.name, versions={"mcp": "1"}, judgements={"kill": PASSED})

    store_results([killed], "2026-11-22", partial=True)
    merged = read_results()[CLIENT.name]
    store_results(
        [Row(name=CLIENT.name, versions={"mcp": "2"}, judgements=killed.judgements)], "2026-11-22", partial=True
    )
    replaced = read_results()[CLIENT.name]

    assert merged["date"] == "2026-11-21"
    assert merged["scenarios"].keys() == JUDGEMENTS.keys()
    assert merged["scenarios"]["kill"]["verdict"] == "passed"
    assert replaced["scenarios"].keys() == {"kill"}


def test_the_page_has_the_table_of_the_stored_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", STORED)

    assert render_table(read_results()) in PAGE.read_text(encoding="utf-8"), "run scripts/interop --table --write"


def test_the_table_is_put_between_its_marks_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "INTEROP.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")

    write_page("| new |")

    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n\n| new |\n\n{END}\nafter\n"
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="has no"):
        write_page("| new |")
