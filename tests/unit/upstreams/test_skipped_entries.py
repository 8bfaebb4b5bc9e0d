"""Entries of an mcpServers file that cannot be served: each is skipped with its reason, and the others are served."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.upstreams import SkippedUpstream, SkipReason
from ringback.upstreams.config import ConfigError, LoadedUpstreams, parse_upstreams

SECRET = "hunter2-hunter2"
SSE_URL = {"url": "https://a.example/sse"}
BAD_ENTRIES: list[tuple[Any, SkipReason, str]] = [
    (SSE_URL, SkipReason.RETIRED_TRANSPORT, '"type": "http"'),
    ({"serverUrl": "https://a.example/v1/sse/"}, SkipReason.RETIRED_TRANSPORT, "streamable HTTP URL"),
    ({"url": "https://a.example/x", "type": "sse"}, SkipReason.RETIRED_TRANSPORT, "retired"),
    ({"command": "x", "env": {"K": "${ABSENT}"}}, SkipReason.MISSING_VARIABLE, "variable ABSENT"),
    ({"url": "https://a.example/${TOKEN}", "headers": {"A": "${NONE}"}}, SkipReason.MISSING_VARIABLE, "NONE"),
    ({"command": "x", "args": ["${input:key}"]}, SkipReason.INVALID_ENTRY, "cannot prompt a user"),
    ({"command": "x", "ringback": {"max_concurent": 1}}, SkipReason.INVALID_ENTRY, "no setting 'max_concurent'"),
    ({"command": 7}, SkipReason.INVALID_ENTRY, "'command' must be a text"),
    ({"command": "x", "args": "y"}, SkipReason.INVALID_ENTRY, "'args' must be a list"),
    ({"url": "ftp://a.example"}, SkipReason.INVALID_ENTRY, "http:// or https://"),
    ({"url": "https://[::1"}, SkipReason.INVALID_ENTRY, "http:// or https://"),
    ({"httpUrl": 1}, SkipReason.INVALID_ENTRY, "'url' must be a text"),
    ({"type": "carrier-pigeon"}, SkipReason.INVALID_ENTRY, "must be one of stdio"),
    ({}, SkipReason.INVALID_ENTRY, "either a 'command'"),
    ("uvx", SkipReason.INVALID_ENTRY, "must be an object"),
    (None, SkipReason.INVALID_ENTRY, "must be an object"),
]
GOOD_ENTRIES: list[dict[str, Any]] = [
    {"command": "uvx", "args": ["x"]},
    {"url": "https://a.example/mcp"},
    {"serverUrl": "https://a.example/mcp"},
    {"httpUrl": "https://a.example/mcp", "url": "https://a.example/sse"},
    {"type": "http", "url": "https://a.example/sse"},
]


def load(servers: dict[str, Any]) -> LoadedUpstreams:
    return parse_upstreams(json.dumps({"mcpServers": servers}), source="f.json", environment={"TOKEN": SECRET})


def load_skipped(name: str, entry: Any) -> SkippedUpstream:
    loaded = load({name: entry, "good": {"command": "x"}})
    assert [config.name for config in loaded.configs] == ["good"]
    (skipped,) = loaded.skipped
    return skipped


@pytest.mark.parametrize(("entry", "reason", "words"), BAD_ENTRIES)
def test_an_entry_that_cannot_be_served_is_skipped_with_its_reason(entry: Any, reason: SkipReason, words: str) -> None:
    skipped = load_skipped("git", entry)

    assert (skipped.name, skipped.configured_name, skipped.reason) == ("git", "git", reason)
    assert words in skipped.advice
    assert skipped.advice.endswith(".")
    assert SECRET not in repr(skipped)


@pytest.mark.parametrize(
    ("configured", "name"),
    [
        ("GitHub", "github"),
        ("my server", "my-server"),
        ("foo_bar", "foo-bar"),
        ("com.example/Thing", "com-example-thing"),
        ("Café", "cafe"),
        ("a" * 30, "a" * 24),
    ],
)
def test_a_name_that_a_url_cannot_contain_is_mapped_and_kept(configured: str, name: str) -> None:
    (config,) = load({configured: {"command": "x"}}).configs

    assert (config.name, config.configured_name) == (name, configured)


@pytest.mark.parametrize("configured", ["", "日本", "-_-", "\x1b[2J"[:1]])
def test_a_name_without_a_letter_is_skipped(configured: str) -> None:
    skipped = load_skipped(configured, {"command": "x"})

    assert skipped.reason is SkipReason.INVALID_NAME
    assert skipped.configured_name.isprintable()


def test_of_two_names_that_become_one_the_exact_one_is_served() -> None:
    loaded = load({"GitHub": {"command": "a"}, "github": {"command": "b"}, "git_hub": {"command": "c"}})

    assert [(config.name, config.command) for config in loaded.configs] == [("github", "b"), ("git-hub", "c")]
    assert [(each.configured_name, each.reason) for each in loaded.skipped] == [("GitHub", SkipReason.NAME_CONFLICT)]
    assert [each.name for each in loaded.skipped] == ["GitHub"], "no second upstream has the name that is taken"


def test_an_entry_with_a_fault_does_not_leave_its_name_to_another_server() -> None:
    loaded = load({"GitHub": {"command": "other-account"}, "github": {"command": "x", "env": {"A": "${ABSENT}"}}})

    assert loaded.configs == ()
    assert [each.reason for each in loaded.skipped] == [SkipReason.NAME_CONFLICT, SkipReason.MISSING_VARIABLE]


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ({"serverUrl": "https://a.example/1"}, "https://a.example/1"),
        ({"httpUrl": "https://a.example/2"}, "https://a.example/2"),
        ({"httpUrl": "https://a.example/2", "url": "https://a.example/sse"}, "https://a.example/2"),
        ({"url": "https://a.example/sse", "serverUrl": "https://a.example/mcp"}, "https://a.example/mcp"),
        ({"type": "streamable-http", "url": "https://a.example/sse"}, "https://a.example/sse"),
    ],
)
def test_every_hosts_key_for_a_url_is_understood(entry: dict[str, Any], url: str) -> None:
    (config,) = load({"a": entry}).configs

    assert config.url == url


def test_entries_that_a_host_has_switched_off_are_left_out() -> None:
    loaded = load({"a": {"command": "x", "disabled": True}, "b": {"command": "x", "enabled": False}, "c": 1})

    assert [entry.name for entry in loaded.entries] == ["c"]


def test_comments_and_trailing_commas_are_read_and_texts_stay_as_they_are() -> None:
    text = """\N{ZERO WIDTH NO-BREAK SPACE}// VS Code
    {
      /* several
         lines, } */
      "servers": {
        "a": {"command": "x // y", "args": ["/* z */", "\\\\\\"//", ",]",],}, // the last
      },
    }"""
    (config,) = parse_upstreams(text.encode(), source="mcp.json", environment={}).configs

    assert (config.command, config.args) == ("x // y", ("/* z */", '\\"//', ",]"))


@pytest.mark.parametrize("text", ['{"mcpServers": {}, /* open', '{"mcpServers": {"a": 1,, }}', '{"mcpServers"', "\xff"])
def test_a_text_that_is_no_json_stays_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"f\.json: not valid JSON"):
        parse_upstreams(text.encode("latin-1"), source="f.json", environment={})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"mcpServers": {"git": {"command": "a"}, "git": {"command": "b"}}}', "git"),
        ('{"mcpServers": {"git": {"command": "a", "env": {"KEY": "1", "KEY": "2"}}}}', "KEY"),
        ('{"mcpServers": {}, "mcpServers": {"git": {"command": "a"}}}', "mcpServers"),
    ],
)
def test_two_members_of_one_name_are_an_error_that_names_them(text: str, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"f\.json: has two members named '{name}' in one object"):
        parse_upstreams(text, source="f.json", environment={})


def test_a_file_of_very_many_levels_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"f\.json: (has too many levels|'mcpServers' must be an object)"):
        parse_upstreams('{"mcpServers": ' + "[" * 1000 + "]" * 1000 + "}", source="f.json", environment={})


def test_a_strict_reader_refuses_what_is_skipped() -> None:
    loaded = load({"a": {"command": "x"}, "b": SSE_URL})

    with pytest.raises(ConfigError, match=r"f\.json: upstream 'b': its URL ends in /sse"):
        loaded.require_all()


@given(
    st.dictionaries(
        st.text(alphabet="abcdef0123456789-", min_size=1, max_size=24),
        st.one_of(
            st.sampled_from(GOOD_ENTRIES).map(lambda entry: (True, entry)),
            st.sampled_from([entry for entry, _, _ in BAD_ENTRIES]).map(lambda entry: (False, entry)),
            st.recursive(st.integers() | st.text() | st.none(), st.lists).map(lambda entry: (False, entry)),
        ),
        max_size=12,
    )
)
def test_any_mix_of_entries_serves_all_good_ones(entries: dict[str, tuple[bool, Any]]) -> None:
    loaded = load({name: entry for name, (_, entry) in entries.items()})

    assert [config.name for config in loaded.configs] == [name for name, (is_good, _) in entries.items() if is_good]
    assert [each.name for each in loaded.skipped] == [name for name, (is_good, _) in entries.items() if not is_good]


@given(st.lists(st.text(max_size=40), unique=True, max_size=12))
def test_no_two_upstreams_have_one_name_whatever_the_file_calls_them(names: list[str]) -> None:
    loaded = load({name: {"command": "x"} for name in names})

    served = [config.name for config in loaded.configs]
    assert len(set(served)) == len(served)
    assert len(loaded.entries) == len(names)
