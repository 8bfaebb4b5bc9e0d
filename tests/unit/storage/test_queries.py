"""Named statements."""

import pytest

from ringback.storage.queries import load_statements, parameters, parse_statements
from ringback.storage.rows.columns import RECORDS

TEXT = """\
-- About the file.

-- name: one
SELECT 1;

-- Why two is as it is.
-- name: two
SELECT 2
    -- in the middle
    + :more;
"""


def test_each_name_begins_a_statement_that_ends_before_the_next() -> None:
    statements = parse_statements(TEXT)

    assert list(statements) == ["one", "two"]
    assert statements["one"].startswith("SELECT 1;")
    assert statements["two"] == "SELECT 2\n    -- in the middle\n    + :more;"


def test_a_repeated_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'one'"):
        parse_statements(TEXT + TEXT)


def test_a_fragment_stands_for_its_line_with_the_indent_of_that_line() -> None:
    text = """\
-- fragment: filters
WHERE a = :a
    AND b = 1

-- name: all
SELECT 1 FROM t
-- include: filters
ORDER BY a;

-- name: nested
SELECT * FROM (
    SELECT 1 FROM t
    -- include: filters
);
"""

    assert parse_statements(text) == {
        "all": "SELECT 1 FROM t\nWHERE a = :a\n    AND b = 1\nORDER BY a;",
        "nested": "SELECT * FROM (\n    SELECT 1 FROM t\n    WHERE a = :a\n        AND b = 1\n);",
    }


def test_a_fragment_of_another_file_is_named_with_its_noun() -> None:
    others = {"hooks": "-- fragment: filters\nWHERE a = 1\n-- name: not_this\nSELECT 2;"}

    statements = parse_statements("-- name: one\nSELECT 1\n-- include: filters of hooks", others.__getitem__)

    assert statements == {"one": "SELECT 1\nWHERE a = 1"}


def test_a_missing_or_repeated_fragment_is_refused() -> None:
    with pytest.raises(ValueError, match="'filters'"):
        parse_statements("-- name: one\nSELECT 1\n-- include: filters")
    with pytest.raises(ValueError, match="fragments are named 'a'"):
        parse_statements("-- fragment: a\n1\n-- fragment: a\n2\n-- name: one\n-- include: a")


@pytest.mark.parametrize(
    "line", ["--include: filters", "-- Include: filters", "-- include filters", "WHERE true -- include: filters"]
)
def test_an_include_that_would_be_a_comment_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="includes a fragment"):
        parse_statements(f"-- fragment: filters\nWHERE a = 1\n-- name: one\nSELECT 1 FROM t\n{line}")
    with pytest.raises(ValueError, match="includes a fragment"):
        parse_statements(f"-- fragment: outer\n{line}\n-- name: one\nSELECT 1 FROM t\n-- include: outer")


def test_statements_are_found_inside_the_package_and_cannot_be_changed() -> None:
    statements = load_statements("ringback.storage.sqlite", "sql/call_webhooks.sql", RECORDS.by_name())

    assert set(statements) == {"add", "any_call", "naming_calls", "same_target"}
    with pytest.raises(TypeError):
        statements["add"] = "DROP TABLE call_webhooks"  # pyright: ignore[reportIndexIssue] - that is what is tested


def test_the_parameters_of_a_statement_are_found_by_their_names() -> None:
    assert parameters(parse_statements(TEXT)["two"]) == {"more"}
    assert parameters("UPDATE a SET b = :b2, c=:c WHERE d = :b2 AND e = 'x'") == {"b2", "c"}
