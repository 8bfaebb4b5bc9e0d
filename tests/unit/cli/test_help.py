"""`ringback help`: the page for operators, at a terminal."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]

PAGE = Path(__file__).parents[3] / "scripts" / "deploy" / "OPERATIONS.md"
TOPICS = ("TLS", "Back up", "Restore", "Rehearse", "Upgrade", "Rotate", "Capacity", "Logs")


def test_the_operations_page_is_printed_without_the_marks_of_its_tests(run: Run) -> None:
    shown = run("help", "operations")

    assert shown.exit_code == 0
    assert "<!-- run" not in shown.stdout
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if not line.startswith("<!-- ")]
    assert shown.stdout.splitlines() == lines


@pytest.mark.parametrize("topic", TOPICS)
def test_one_section_is_printed_by_the_beginning_of_its_name(run: Run, topic: str) -> None:
    shown = run("help", "operations", topic.lower())

    assert shown.exit_code == 0
    assert shown.stdout.startswith(f"## {topic}")
    assert shown.stdout.count("\n## ") == 0


def test_the_topics_are_listed(run: Run) -> None:
    shown = run("help").stdout

    assert [topic for topic in TOPICS if f"\n  {topic}" not in shown] == []


def test_an_unknown_section_or_page_says_what_there_is(run: Run) -> None:
    section, page = run("help", "operations", "astrology"), run("help", "serve")

    assert (section.exit_code, page.exit_code) == (2, 2)
    assert "Capacity" in section.stderr
    assert "ringback serve --help" in page.stderr


def test_every_shell_snippet_of_the_page_is_run_by_a_test() -> None:
    """A test of another file runs each by its name, in quotes."""
    text = PAGE.read_text(encoding="utf-8")
    names = re.findall(r"<!-- run: ([a-z-]+) -->\n```sh\n", text)
    tests = "".join(
        file.read_text(encoding="utf-8") for file in (Path(__file__).parents[2] / "crash").glob("test_*.py")
    )

    assert text.count("```sh\n") == len(names)
    assert [name for name in names if f'"{name}"' not in tests] == []


@pytest.mark.parametrize(
    "command",
    ["call", "wait", "verify", "check-server", "keys create", "keys revoke", "events publish", "webhooks add"],
)
def test_usages_name_arguments_in_capitals(run: Run, command: str) -> None:
    usage = next(line for line in run(*command.split(), "--help").stdout.splitlines() if "Usage:" in line)

    arguments = usage.partition("[OPTIONS]")[2]
    assert arguments.strip()
    assert arguments == arguments.upper()
