"""Parsing the mcpServers file: accepted settings, and what is wrong with the others."""

import os
from pathlib import Path
from typing import Any

import pytest

from ringback.upstreams.config import (
    ConfigError,
    Isolation,
    UpstreamConfig,
    UpstreamTransport,
    load_upstreams,
    parse_upstream_option,
    parse_upstreams,
)
from tests.support.upstream_configs import CLIENT, SECRET, parse, parse_one, with_login, with_oauth


def test_a_command_is_a_stdio_upstream() -> None:
    config = parse_one({"command": "uvx", "args": ["mcp-server-git"], "env": {"A": "b"}, "cwd": "/srv"})

    assert config == UpstreamConfig(
        name="git",
        transport=UpstreamTransport.STDIO,
        command="uvx",
        args=("mcp-server-git",),
        env={"A": "b"},
        cwd="/srv",
        max_concurrent=16,
    )


@pytest.mark.parametrize(
    "declared", [{}, {"type": "http"}, {"type": "streamable-http"}, {"transport": "streamableHttp"}]
)
def test_a_url_is_an_http_upstream(declared: dict[str, str]) -> None:
    config = parse_one({"url": "https://mcp.example/mcp", "headers": {"X-Key": "k"}, **declared})

    assert (config.transport, config.url, config.max_concurrent) == (
        UpstreamTransport.HTTP,
        "https://mcp.example/mcp",
        256,
    )
    assert config.headers == {"X-Key": "k"}


def test_vs_codes_key_is_read_too() -> None:
    (config,) = parse({"git": {"type": "stdio", "command": "uvx"}}, key="servers")

    assert config.command == "uvx"


def test_unknown_settings_are_tolerated_and_disabled_servers_left_out() -> None:
    configs = parse({"git": {"command": "uvx", "alwaysAllow": ["x"]}, "off": {"command": "uvx", "disabled": True}})

    assert [config.name for config in configs] == ["git"]


def test_our_own_settings_are_read() -> None:
    assert parse_one({"command": "uvx", "ringback": {"max_concurrent": 3}}).max_concurrent == 3
    assert parse_one({"command": "uvx", "ringback": {"isolation": "call"}}).isolation is Isolation.CALL
    assert parse_one({"url": "https://mcp.example/mcp"}).isolation is Isolation.SHARED


def test_windows_are_read_for_an_upstream_and_for_single_tools() -> None:
    config = parse_one(
        {
            "command": "uvx",
            "ringback": {"inline_wait_seconds": 5, "tools": {"slow": {"inline_wait_seconds": 0.5}, "x": {}}},
        }
    )

    assert [config.get_tool_config(tool).inline_wait_seconds for tool in ("slow", "x", "any")] == [0.5, 5.0, 5.0]
    assert parse_one({"command": "uvx"}).get_tool_config("any").inline_wait_seconds is None


def test_what_a_disconnect_does_is_read_for_an_upstream_and_for_single_tools() -> None:
    config = parse_one(
        {
            "command": "uvx",
            "ringback": {"on_disconnect": "cancel", "tools": {"slow": {"on_disconnect": "keep"}, "x": {}}},
        }
    )
    single = parse_one({"command": "uvx", "ringback": {"tools": {"probe": {"on_disconnect": "cancel"}}}})

    assert [config.get_tool_config(tool).on_disconnect for tool in ("slow", "x", "any")] == ["keep", "cancel", "cancel"]
    assert [single.get_tool_config(tool).on_disconnect for tool in ("probe", "any")] == ["cancel", None]


def test_the_form_of_pending_results_is_read_for_an_upstream_and_for_single_tools() -> None:
    settings = {"pending": "error", "tools": {"plain": {"pending": "result"}, "x": {}}}
    config = parse_one({"command": "uvx", "ringback": settings})

    assert [config.get_tool_config(tool).pending for tool in ("plain", "x", "any")] == ["result", "error", "error"]
    assert parse_one({"command": "uvx"}).get_tool_config("any").pending == "result"


def test_the_rerun_policy_is_read_for_an_upstream_and_for_single_tools() -> None:
    settings = {"rerun_policy": "always", "tools": {"pay": {"rerun_policy": "never"}, "x": {}}}
    config = parse_one({"command": "uvx", "ringback": settings})
    safe = parse_one({"command": "uvx", "ringback": {"rerun_policy": "if_safe", "trust_annotations": True}})

    assert [config.get_tool_config(tool).rerun_policy for tool in ("pay", "x", "any")] == ["never", "always", "always"]
    assert safe.get_tool_config("any").rerun_policy == "if_safe"
    assert parse_one({"command": "uvx"}).get_tool_config("any").rerun_policy == "never"


def test_the_check_of_arguments_can_be_left_to_the_tools_of_an_upstream() -> None:
    lax = parse_one({"url": "https://mcp.example/mcp", "ringback": {"check_arguments": False}})

    assert [each.get_tool_config("any").checks_arguments for each in (lax, parse_one({"command": "uvx"}))] == [
        False,
        True,
    ]


def test_the_id_of_the_server_is_read() -> None:
    named = parse_one({"url": "https://mcp.example/mcp", "ringback": {"server_id": "billing-1.eu_west"}})

    assert (named.server_id, parse_one({"command": "uvx"}).server_id) == ("billing-1.eu_west", None)


def test_tools_that_are_called_as_tasks_only_are_read() -> None:
    config = parse_one({"command": "uvx", "ringback": {"tools": {"slow": {"task_only": True}, "x": {}}}})

    assert config.task_only_tools == {"slow"}


@pytest.mark.parametrize(
    ("ours", "passed"),
    [
        ({}, {"traceparent", "acme/tenant", "acmeish"}),
        ({"pass_meta": ["*"]}, {"traceparent", "acme/tenant", "acmeish"}),
        ({"pass_meta": ["acme*"]}, {"acme/tenant", "acmeish"}),
        ({"pass_meta": ["traceparent", "acme/*"]}, {"traceparent", "acme/tenant"}),
        ({"pass_meta": ["trace", "acme/tenant/id"]}, set[str]()),
        ({"pass_meta": []}, set[str]()),
    ],
)
def test_the_forwarded_meta_keys_of_an_upstream_are_read(ours: dict[str, Any], passed: set[str]) -> None:
    config = parse_one({"command": "uvx", "ringback": ours})

    assert {key for key in ("traceparent", "acme/tenant", "acmeish") if config.forwards_meta_key(key)} == passed


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("${TOKEN}", SECRET),
        ("${env:TOKEN}", SECRET),
        ("Bearer ${TOKEN}!", f"Bearer {SECRET}!"),
        ("${MISSING:-else}", "else"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-else}", "else"),
        ("${EMPTY}", ""),
        ("$TOKEN {TOKEN}", "$TOKEN {TOKEN}"),
    ],
)
def test_variables_are_expanded(written: str, read: str) -> None:
    assert parse_one({"url": "https://a.example", "headers": {"X": written}}).headers == {"X": read}
    assert parse_one({"command": "x", "args": [written]}).args == (read,)


def test_a_missing_variable_is_named_with_its_upstream_and_no_value_is_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_one({"command": "x", "env": {"A": "${TOKEN}", "B": "${env:ABSENT}"}})

    message = str(caught.value)
    assert "servers.json" in message
    assert "'git'" in message
    assert "'env.B'" in message
    assert "ABSENT" in message
    assert SECRET not in message


def test_a_configuration_does_not_show_its_secrets() -> None:
    shown = repr(
        parse(
            {
                "a": {"command": "x", "args": ["${TOKEN}"], "env": {"A": "${TOKEN}"}},
                "b": {"url": "https://a.example/?key=${TOKEN}", "headers": {"X": "${TOKEN}"}},
            }
        )
    )

    assert SECRET not in shown


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"url": "https://a.example/sse", "type": "sse"}, "retired"),
        ({"command": "x", "args": ["${input:key}"]}, "a service cannot prompt a user"),
        ({"command": "x", "args": ["${command:pick}"]}, "${NAME}"),
        ({"type": "carrier-pigeon", "url": "https://a.example"}, "must be one of stdio"),
        ({"type": 3, "url": "https://a.example"}, "must be one of stdio"),
        ({}, "either a 'command'"),
        ({"command": "x", "url": "https://a.example"}, "either a 'command'"),
        ({"type": "http", "command": "x"}, "'url' must be a text"),
        ({"command": ""}, "'command' must be a text"),
        ({"comand": "x", "args": []}, "a 'url' (HTTP), or say which with 'type'. Is 'comand' a misspelled 'command'?"),
        ({"timeout": 3, "URL": "https://a.example"}, "Is 'URL' a misspelled 'url'?"),
        ({"command": "x", "args": "y"}, "'args' must be a list"),
        ({"command": "x", "args": [1]}, "quote numbers"),
        ({"command": "x", "env": {"A": 1}}, "quote numbers"),
        ({"command": "x\0y"}, "NUL"),
        ({"url": "ftp://a.example"}, "http:// or https://"),
        ({"url": "https://"}, "http:// or https://"),
        ({"url": "https://[::1"}, "http:// or https://"),
        ({"url": "https://a.example/ b"}, "http:// or https://"),
        ({"url": "https://a.example", "headers": {"X": "a\r\nb"}}, "no valid HTTP header"),
        ({"url": "https://a.example", "headers": {"X Y": "a"}}, "no valid HTTP header"),
        ({"command": "x", "ringback": 1}, "must be an object"),
        ({"command": "x", "ringback": {"max_concurent": 1}}, "no setting 'max_concurent'"),
        ({"command": "x", "ringback": {"max_concurrent": 0}}, "from 1 to"),
        ({"command": "x", "ringback": {"isolation": "process"}}, "one of shared, principal, call"),
        *(
            ({"command": "x", "ringback": {"server_id": each}}, "'ringback.server_id' must be 1 to 64 letters")
            for each in ("", 1, "a b", "-a", "a" * 65, "a\n", "${SERVER}", "ü")
        ),
        ({"command": "x", "ringback": {"isolation": []}}, "one of shared, principal, call"),
        (
            {"command": "x", "ringback": {"on_disconnect": "stop"}},
            "'ringback.on_disconnect' must be one of keep, cancel",
        ),
        ({"command": "x", "ringback": {"tools": {"t": {"on_disconnect": True}}}}, "must be one of keep, cancel"),
        ({"command": "x", "ringback": {"max_concurrent": True}}, "from 1 to"),
        (
            {"command": "x", "ringback": {"trust_annotations": "yes"}},
            "'ringback.trust_annotations' must be true or false",
        ),
        ({"command": "x", "ringback": {"inline_wait_seconds": 61}}, "from 0 to 60"),
        ({"command": "x", "ringback": {"inline_wait_seconds": True}}, "from 0 to 60"),
        ({"command": "x", "ringback": {"pending": "null"}}, "'ringback.pending' must be one of result, error"),
        ({"command": "x", "ringback": {"tools": {"t": {"pending": 1}}}}, "tools.t.pending' must be one of result"),
        (
            {"command": "x", "ringback": {"rerun_policy": "yes"}},
            "'ringback.rerun_policy' must be one of never, if_safe",
        ),
        ({"command": "x", "ringback": {"rerun_policy": "if_safe"}}, "needs 'trust_annotations': true"),
        (
            {"command": "x", "ringback": {"tools": {"t": {"rerun_policy": "if_safe"}}}},
            "needs 'trust_annotations': true",
        ),
        ({"command": "x", "ringback": {"tools": {"t": 1}}}, "'ringback.tools.t' must be an object"),
        ({"command": "x", "ringback": {"tools": {"t": {"wait": 1}}}}, "'ringback.tools.t' has no setting 'wait'"),
        ({"command": "x", "ringback": {"tools": {"t": {"inline_wait_seconds": -1}}}}, "tools.t.inline_wait_seconds'"),
        ({"command": "x", "ringback": {"tools": {"t": {"task_only": 1}}}}, "tools.t.task_only' must be true or false"),
        ({"command": "x", "ringback": {"pass_meta": "*"}}, "'ringback.pass_meta' must be a list of texts"),
        ({"command": "x", "ringback": {"pass_meta": [""]}}, "'ringback.pass_meta' holds ''"),
        ({"command": "x", "ringback": {"pass_meta": ["*/tenant"]}}, "holds '*/tenant'; write keys, or how they begin"),
        ({"command": "x", "ringback": {"pass_meta": ["progressToken"]}}, "'progressToken', which never goes upstream"),
        ({"command": "x", "ringback": {"pass_meta": ["ringback/*"]}}, "'ringback/*', which never goes upstream"),
        ({"command": "x", "ringback": {"pass_meta": ["io.modelcontextprotocol/*"]}}, "which never goes upstream"),
        ({"command": "x", "ringback": {"oauth": CLIENT}}, "for upstreams with a 'url'"),
        ({"command": "x", "cwd": None}, "'cwd' must be a text"),
        ({"url": "https://a.example", "ringback": {"oauth": None}}, "'ringback.oauth' must be an object"),
        (with_oauth(scope=None), "'ringback.oauth.scope' must be a text"),
        (with_oauth(client_id=""), "'ringback.oauth.client_id' must be a text"),
        (with_oauth(client_secret="${ABSENT}"), "'ringback.oauth.client_secret' needs the environment variable ABSENT"),
        (with_oauth(token_url="http://login.example/token"), "'ringback.oauth.token_url' must be https://"),
        (with_oauth(token_url="ftp://login.example"), "'ringback.oauth.token_url' must be an http:// or https://"),
        (with_oauth(auth_method="private_key_jwt"), "one of client_secret_basic, client_secret_post"),
        (with_oauth(issuer="https://login.example"), "'ringback.oauth' has no setting 'issuer'"),
        (with_login(client_secret="s"), "has a 'client_secret' without its 'client_id'"),
        (
            with_login(client_id="c", client_secret="s"),
            "'client_secret' without the 'issuer' that it belongs to; give the URL",
        ),
        (with_oauth() | {"headers": {"authorization": "Bearer x"}}, "either an 'Authorization' header or"),
        ("uvx", "must be an object"),
    ],
)
def test_unsupported_settings_are_refused(settings: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match="upstream 'git'") as caught:
        parse_one(settings)

    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("My Server", "my-server"),
        ("git_tools", "git-tools"),
        ("", "upstream-1"),
        ("a" * 25, "a" * 24),
        ("ß", "upstream-1"),
    ],
)
def test_a_strict_configuration_gets_a_better_name_proposed(name: str, better: str) -> None:
    with pytest.raises(ConfigError, match=f"'{better}'"):
        parse({name: {"command": "x"}})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"mcpServers": []}',
        '{"mcpServers": {}, "servers": {}}',
        '{"mcpServers": {}} mine',
        " " * 1024**2 + "{}",
    ],
)
def test_a_document_that_is_no_mcp_servers_file_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"servers\.json"):
        parse_upstreams(text, source="servers.json", environment={})


def test_more_upstreams_than_are_served_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 200"):
        parse({f"u{number}": {"command": "x"} for number in range(201)})


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text('{"mcpServers": {"git": {"command": "uvx"}}}', encoding="utf-8")

    (config,) = load_upstreams(file, {}).configs

    assert config.name == "git"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.json: cannot be read"):
        load_upstreams(tmp_path / "absent.json", {})


def test_a_named_pipe_in_the_place_of_the_file_is_refused_at_once(tmp_path: Path) -> None:
    """The service reads the file on its event loop, and would hang until another process writes to the pipe."""
    pipe = tmp_path / "mcp.json"
    os.mkfifo(pipe)

    with pytest.raises(ConfigError, match=r"mcp\.json: cannot be read \(Not a regular file\)"):
        load_upstreams(pipe, {})


def test_an_option_is_a_command_or_a_url() -> None:
    command = parse_upstream_option("git=uvx mcp-server-git --repository '/srv/my repo'")
    url = parse_upstream_option("web=http://127.0.0.1:9000/mcp?a=b")

    assert (command.command, command.args) == ("uvx", ("mcp-server-git", "--repository", "/srv/my repo"))
    assert (url.transport, url.url) == (UpstreamTransport.HTTP, "http://127.0.0.1:9000/mcp?a=b")


def test_an_option_was_expanded_by_the_shell_and_is_not_expanded_again() -> None:
    assert parse_upstream_option("a=echo '${TOKEN}'").args == ("${TOKEN}",)


@pytest.mark.parametrize("option", ["git", "git=", "=uvx", "git=uvx 'open", "Git=uvx", "git=  "])
def test_an_option_that_says_too_little_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="--upstream"):
        parse_upstream_option(option)
