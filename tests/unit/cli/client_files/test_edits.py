"""Edits of texts: any document stays as it is but for the entries that change."""

import json
import string
import tomllib
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringback.cli.client_files.clients import Client, find_client
from ringback.cli.client_files.configuration import Configuration
from ringback.cli.client_files.documents import JsonDocument, Replacement, TomlDocument
from ringback.cli.client_files.json_spans import parse_json
from ringback.cli.client_files.text_edits import Edit, UnreadableDocument, apply_edits
from ringback.cli.client_files.toml_spans import format_toml_value
from tests.support.json_documents import GAPS, TEXTS, VALUES, documents

REMOVED: Final = frozenset({"command", "args", "url"})
ADDED: Final = {"url": "http://127.0.0.1:8090/mcp/x", "headers": {"A": "b"}}


def cut_entries(text: str, names: set[str]) -> str:
    """The text without the values of these servers."""
    root = parse_json(text, allows_comments=True)
    nodes = (root.find_node(("mcpServers", name)) for name in names)
    return apply_edits(text, [Edit(node.start, node.end, "") for node in nodes if node is not None])


@given(documents())
def test_the_parser_of_spans_reads_the_value_of_any_json_with_comments(document: tuple[str, Any]) -> None:
    text, value = document

    assert parse_json(text, allows_comments=True).value == value


@given(VALUES.map(lambda value: json.dumps(value, indent=2)))
def test_the_parser_of_spans_reads_what_the_library_reads(text: str) -> None:
    assert parse_json(text, allows_comments=False).value == json.loads(text)


@given(st.text(alphabet='{}[]:,"\\/*ntu01.e- \n', max_size=20))
@example('{"a": 1,}')
@example("[1,]")
@example("[,]")
@example('{"a" 1}')
@example("01")
def test_the_parser_of_spans_rejects_what_the_library_rejects(text: str) -> None:
    try:
        expected: Any = json.loads(text)
    except ValueError:
        expected = UnreadableDocument
    try:
        found: Any = parse_json(text, allows_comments=False).value
    except UnreadableDocument:
        found = UnreadableDocument

    assert found == expected


@given(documents(), st.data())
def test_only_the_replaced_entries_of_any_document_change(document: tuple[str, Any], data: st.DataObject) -> None:
    text, value = document
    chosen = data.draw(st.sets(st.sampled_from(sorted(value["mcpServers"]))) if value["mcpServers"] else st.just(set()))
    replacements = [Replacement(path=("mcpServers", name), remove=REMOVED, add=ADDED) for name in chosen]

    changed = JsonDocument(text, allows_comments=True).replace(replacements)

    expected = {
        name: {**{key: each for key, each in entry.items() if key not in REMOVED}, **ADDED} if name in chosen else entry
        for name, entry in value["mcpServers"].items()
    }
    assert parse_json(changed, allows_comments=True).value == {**value, "mcpServers": expected}
    assert cut_entries(changed, chosen) == cut_entries(text, chosen)


@given(st.dictionaries(st.text(string.ascii_lowercase, min_size=1), st.dictionaries(TEXTS, VALUES), max_size=4), GAPS)
def test_servers_that_were_added_to_the_configuration_are_removed_again(entries: dict[str, Any], gap: str) -> None:
    before = f'{{{gap}"mcpServers": {{"-kept-": {{}}{gap}}}}}'

    added = Configuration(before).add_servers(entries)

    assert Configuration(added).servers == {"-kept-": {}, **entries}
    assert Configuration(Configuration(added).remove_servers(entries) or "").value == {"mcpServers": {"-kept-": {}}}


# -- examples ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param('{"a":{"command":"x","args":["y"]}}', '{"a":{"url": "u"}}', id="on one line"),
        pytest.param(
            '{"a": {"command": "x", "env": {}, "args": []}}', '{"a": {"url": "u", "env": {}}}', id="in between"
        ),
        pytest.param(
            '{"a": {"env": {}, "command": "x", "args": []}}', '{"a": {"env": {}, "url": "u"}}', id="at the end"
        ),
        pytest.param(
            '{\n\t"a": {\n\t\t"command": "x", // c\n\t\t"args": [] // d\n\t}\n}',
            '{\n\t"a": {\n\t\t"url": "u" // c\n // d\n\t}\n}',
            id="comments stay",
        ),
        pytest.param(
            '{\r\n "a": {\r\n  "args": [],\r\n  "command": "x",\r\n  "t": 1,\r\n },\r\n}',
            '{\r\n "a": {\r\n  "url": "u",\r\n  "t": 1,\r\n },\r\n}',
            id="carriage returns and trailing commas",
        ),
        pytest.param(
            '{"a": {"command": "x", "command": "y"}}', '{"a": {"url": "u"}}', id="a key twice within an entry"
        ),
        pytest.param(
            '{"a": {"command": "x"}, "a": {"command": "y"}}',
            '{"a": {"command": "x"}, "a": {"url": "u"}}',
            id="an entry twice: parsers read the last",
        ),
    ],
)
def test_an_entry_is_replaced_in_its_style(before: str, after: str) -> None:
    document = JsonDocument(before, allows_comments=True)

    assert document.replace([Replacement(path=("a",), remove=REMOVED, add={"url": "u"})]) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param('[s.a]\ncommand = "x"\n', '[s.a]\nurl = "u"\n', id="a table"),
        pytest.param('[s]\na = { command = "x", t = 1 }\n', '[s]\na = { url = "u", t = 1 }\n', id="an inline table"),
        pytest.param('s.a.command = "x"\ns.a.args = []\nz = 1\n', 's.a.url = "u"\nz = 1\n', id="dotted keys"),
        pytest.param('[s]\na.command = "x" # c\n', '[s]\na.url = "u" # c\n', id="a dotted key in a table"),
        pytest.param('[ s . "a" ]\n\'command\'="x"', '[ s . "a" ]\nurl = "u"', id="quoted keys"),
        pytest.param(
            '[s.a.args]\nx = 1\n\n[s.a]\r\ncommand = """\n[s.a]\n"""\r\nt = 1979-05-27 07:32:00\r\n',
            '\n[s.a]\r\nurl = "u"\r\nt = 1979-05-27 07:32:00\r\n',
            id="a table of a removed key before its own",
        ),
        pytest.param(
            "[s.a]\nargs = [ # one\n  '#',  # two ]\n  [1, {a = \"]\"}],\n]\ncommand = 'x'\n",
            '[s.a]\nurl = "u"\n',
            id="a list over several lines",
        ),
    ],
)
def test_a_table_is_replaced_in_its_style(before: str, after: str) -> None:
    document = TomlDocument(before)

    assert document.replace([Replacement(path=("s", "a"), remove=REMOVED, add={"url": "u"})]) == after


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not valid JSON: line 1, column 1"),
        ('{"a": 1}\n}', "is not valid JSON: line 2, column 1"),
        ('{"a": "x\ny"}', "is not valid JSON: line 1, column 7"),
        ('{"a": 1} // c', "is not valid JSON: line 1, column 10"),
        ("[" * 65 + "]" * 65, "nests more than 64 levels deep"),
        ("[]", "has no object at its top"),
    ],
)
def test_a_broken_json_document_is_refused_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(UnreadableDocument) as refused:
        JsonDocument(text, allows_comments=False)

    assert str(refused.value) == problem


def test_a_broken_toml_document_is_refused_with_the_place() -> None:
    with pytest.raises(UnreadableDocument) as refused:
        TomlDocument('[a]\nb = "c"\nb = "d"\n')

    assert str(refused.value) == "is not valid TOML: line 3, column 8"


@given(
    st.dictionaries(
        TEXTS, st.recursive(TEXTS | st.booleans() | st.integers(0, 2**40), st.lists, max_leaves=4), max_size=4
    )
)
def test_any_value_is_written_as_toml(value: dict[str, Any]) -> None:
    assert tomllib.loads(f"x = {format_toml_value(value)}")["x"] == value


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_file_of_a_megabyte_is_planned_once_per_character(name: str) -> None:
    """The parsers visit each character a bounded number of times: the patterns do not backtrack."""
    client = find_client(name)
    assert isinstance(client, Client)
    hostile = ['{"a": "' + "\\" * 200_001, '{"a": ' + "/*" * 100_000, "{" + " " * 200_000, '{"' + "//\n" * 60_000]

    for text in hostile:
        with pytest.raises(UnreadableDocument):
            JsonDocument(text, allows_comments=True)
