"""The demands of MCP Events, the cases of `ringback check-server` and the tests agree."""

import re
from collections import Counter
from pathlib import Path
from typing import Final

from ringback.cli.server_checks.chapters import CASES
from tests.event_rule_tests import SHOWN
from tests.event_rules import DIVERGENCES, OFFICIAL_CHECKS, SENTENCES
from tests.interaction.gateway.test_event_checks import UNTESTABLE

TESTS: Final = Path(__file__).parents[1]
OFFICIAL_COUNT: Final = 143
"""133 of servers, and ten of clients."""
SENTENCE_LENGTH_MIN: Final = 30
CHECKED: Final = {case.case.id for case in CASES} - UNTESTABLE
"""What a case shows at the gateway."""


def list_demands() -> list[str]:
    return [*(each for checks in OFFICIAL_CHECKS.values() for each in checks), *SENTENCES]


def test_each_demand_is_listed_once() -> None:
    assert sum(map(len, OFFICIAL_CHECKS.values())) == OFFICIAL_COUNT
    assert [name for name, count in Counter(list_demands()).items() if count > 1] == []


def test_each_demand_is_checked_at_the_gateway_shown_by_a_test_or_a_written_divergence() -> None:
    assert [name for name in list_demands() if name not in CHECKED | SHOWN.keys() | DIVERGENCES.keys()] == []


def test_no_divergence_is_written_about_what_a_case_or_a_test_shows() -> None:
    assert DIVERGENCES.keys() & (CHECKED | SHOWN.keys()) == set()
    assert [name for name, reason in DIVERGENCES.items() if len(reason) < SENTENCE_LENGTH_MIN] == []


def test_no_test_or_divergence_is_about_a_demand_that_is_not_listed() -> None:
    assert (SHOWN.keys() | DIVERGENCES.keys()) - set(list_demands()) == set()


def test_each_case_of_the_command_is_a_listed_demand() -> None:
    assert {case.case.id for case in CASES} - set(list_demands()) == set()


def test_each_test_that_shows_a_demand_exists() -> None:
    missing = [node for nodes in SHOWN.values() for node in nodes if not _has_test(node)]

    assert missing == []


def _has_test(node: str) -> bool:
    path, _, name = node.partition("::")
    file = TESTS / path
    return file.exists() and re.search(rf"def {name}\(", file.read_text(encoding="utf-8")) is not None
