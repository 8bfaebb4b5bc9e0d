"""Entries that name the service itself, and ids by which a handshake does."""

import json
from typing import Any

import pytest

from ringback.domain.meta import add_meta
from ringback.domain.upstreams import SkipReason
from ringback.upstreams.config import parse_upstreams
from ringback.upstreams.instances import IDS_MAX, InstanceIds, LeadsBackHere, read_instance_ids
from ringback.upstreams.own_address import OwnAddress

OWN = OwnAddress({"https://ringback.example.com/base", "http://127.0.0.1:8090"})
A, B, C = ("a" * 32, "b" * 32, "c" * 32)


def is_refused(entry: dict[str, Any]) -> bool:
    (config,) = parse_upstreams(json.dumps({"mcpServers": {"Me": entry}}), source="f", environment={}).configs
    skipped = OWN.judge_config(config)
    if skipped is not None:
        assert (skipped.name, skipped.configured_name) == ("me", "Me")
        assert skipped.reason is SkipReason.RINGBACK_ITSELF
    return skipped is not None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8090/mcp",
        "http://localhost:8090/mcp/git?wait=3",
        "http://[::1]:8090/mcp/",
        "https://RINGBACK.example.com/base/mcp",
        "https://ringback.example.com:443/base/mcp/git",
    ],
)
def test_the_services_own_urls_are_refused(url: str) -> None:
    assert is_refused({"url": url})
    assert is_refused({"command": "ringback", "args": ["mcp", "--url", url.partition("/mcp")[0]]})


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8091/mcp",
        "http://127.0.0.1:8090/other",
        "http://127.0.0.1:8090/mcp-server",
        "http://127.0.0.2.example:8090/mcp",
        "https://ringback.example.com/mcp",
        "https://other.example.com/base/mcp",
    ],
)
def test_other_servers_are_not_refused(url: str) -> None:
    assert not is_refused({"url": url})


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("ringback", ["mcp"]),
        ("/usr/local/bin/ringback", ["mcp", "--upstream", "git"]),
        ("ringback.exe", ["mcp"]),
        ("uvx", ["ringback", "mcp"]),
        ("uvx", ["--from", "ringback[server]", "ringback", "mcp"]),
        ("uvx", ["ringback[server]@latest", "mcp"]),
        ("pipx", ["run", "ringback==1.0", "mcp"]),
        ("python3", ["-m", "ringback", "mcp", "--wait", "3"]),
    ],
)
def test_the_services_own_bridge_is_refused_however_it_is_started(command: str, args: list[str]) -> None:
    assert is_refused({"command": command, "args": args})


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (["mcp", "--url", "https://other.example.com"], {}),
        (["mcp", "--url=https://other.example.com"], {}),
        (["mcp"], {"RINGBACK_URL": "https://other.example.com"}),
        (["serve"], {}),
    ],
)
def test_the_bridge_to_another_ringback_is_not_refused(args: list[str], env: dict[str, str]) -> None:
    assert not is_refused({"command": "ringback", "args": args, "env": env})
    assert not is_refused({"command": "mcp-server-git", "args": ["mcp"]})


@pytest.mark.parametrize("url", ["http://[bad", "http://\u2100.example", "http://h:99999999", "x"])
def test_a_bridge_to_what_is_no_url_is_an_entry_like_any_other(url: str) -> None:
    assert not is_refused({"command": "ringback", "args": ["mcp", "--url", url]})


def test_a_service_names_itself_and_what_is_behind_it_while_that_is_connected() -> None:
    ids = InstanceIds(A)
    with ids.session_to("b", make_result(B, C)), ids.session_to("b", make_result(B)):
        with ids.session_to("c", make_result(C)):
            assert ids.list_ids(None) == [A, B, C]
            assert ids.list_ids("c") == [A, C]
        assert ids.list_ids("b") == [A, B, C]

    assert ids.list_ids(None) == [A]


def test_sessions_of_an_upstream_that_names_no_ringback_end_one_after_the_other() -> None:
    ids = InstanceIds(A)
    with ids.session_to("b", {}), ids.session_to("b", {}), ids.session_to("b", make_result(B)):
        assert ids.list_ids("b") == [A, B]

    assert ids.list_ids("b") == [A]


def test_a_service_that_finds_itself_refuses_the_session_and_counts_nothing() -> None:
    ids = InstanceIds(A)
    with pytest.raises(LeadsBackHere), ids.session_to("b", make_result(B, A)):
        raise AssertionError
    with pytest.raises(LeadsBackHere):
        ids.require_elsewhere(make_result(A))

    assert ids.list_ids(None) == [A]


@pytest.mark.parametrize(
    "meta", [None, 1, [], {"ringback/instances": A}, {"ringback/instances": [1, None, "x", A.upper(), A + "0"]}]
)
def test_what_is_no_list_of_ids_is_ignored(meta: object) -> None:
    assert read_instance_ids({"_meta": meta}) == []
    assert read_instance_ids({}) == []


def test_the_ids_of_an_upstream_are_bounded() -> None:
    named = [f"{number:032x}" for number in range(1000)]
    ids = InstanceIds(A)

    with ids.session_to("b", make_result(*named)):
        assert len(ids.list_ids(None)) == IDS_MAX


def test_other_members_of_meta_are_kept() -> None:
    assert add_meta({"x": 1, "_meta": {"y": 2}}, "k", [A]) == {"x": 1, "_meta": {"y": 2, "k": [A]}}
    assert add_meta({"_meta": None}, "k", 1) == {"_meta": {"k": 1}}


def make_result(*ids: str) -> dict[str, Any]:
    return {"_meta": {"ringback/instances": list(ids)}}
