"""Prefixes of URLs that stand for a proof: where they end, and what no prefix covers."""

import pytest

from ringback.domain.errors import InvalidCallbackUrl
from ringback.notifier.http.target import parse_target
from ringback.notifier.verification import (
    RECEIVER_PREFIXES_MAX,
    CallbackAllowlist,
    parse_receiver_list,
    prefix_covers_path,
)
from tests.support.resolvers import PUBLIC_POLICY


@pytest.mark.parametrize(
    ("prefix", "path"),
    [
        ("/", "/"),
        ("/", "/anything?at=all"),
        ("/hooks", "/hooks"),
        ("/hooks", "/hooks?a=/../b"),
        ("/hooks", "/hooks/a"),
        ("/hooks/", "/hooks/"),
        ("/hooks/", "/hooks/a/b"),
        ("/hooks", "/hooks/..a"),
    ],
)
def test_a_prefix_covers_what_lies_in_its_segments(prefix: str, path: str) -> None:
    assert prefix_covers_path(prefix, path)


@pytest.mark.parametrize(
    ("prefix", "path"),
    [
        ("/hooks", "/"),
        ("/hooks", "/hooks-of-others"),
        ("/hooks", "/Hooks"),
        ("/hooks/", "/hooks"),
        ("/hooks", "/other?/hooks"),
        ("/hooks", "/hooks/../admin"),
        ("/hooks", "/hooks/./a"),
        ("/hooks", "/hooks/%2e%2E/admin"),
        ("/hooks", "/hooks/..%2fadmin"),
        ("/hooks", "/hooks/..%5cadmin"),
        ("/hooks", "/hooks/%252e%252e/admin"),
        ("/hooks", "/hooks/..;a=1/admin"),
    ],
)
def test_a_prefix_covers_nothing_that_could_lead_out_of_it(prefix: str, path: str) -> None:
    assert not prefix_covers_path(prefix, path)


def test_an_allowlist_names_an_origin_and_a_prefix() -> None:
    allowlist = CallbackAllowlist(["https://Hooks.example/in", "https://other.example:8443/"], PUBLIC_POLICY)

    def allows(url: str) -> bool:
        return allowlist.allows_target(parse_target(url, PUBLIC_POLICY))

    assert allows("https://hooks.example:443/in/a?b=c")
    assert allows("https://other.example:8443/x")
    assert not allows("https://hooks.example/out")
    assert not allows("https://hooks.example:8443/in")
    assert not allows("https://other.example/x")
    assert not allows("https://hooks.example.evil.example/in")
    assert not CallbackAllowlist([], PUBLIC_POLICY).allows_target(
        parse_target("https://hooks.example/in", PUBLIC_POLICY)
    )


@pytest.mark.parametrize(
    "prefix", ["hooks.example", "http://hooks.example/", "https://h.example/?a", "https://h.example/a/../b"]
)
def test_a_prefix_that_no_callback_could_have_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidCallbackUrl):
        CallbackAllowlist([prefix], PUBLIC_POLICY)


def test_a_published_list_names_path_prefixes() -> None:
    assert parse_receiver_list(b'{"receivers": ["/hooks/", "/b"], "more": 1}') == ("/hooks/", "/b")
    assert parse_receiver_list(b'{"receivers": ["https://elsewhere.example/", 5, null, "/c"]}') == ("/c",)


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"receivers": "/"}', b'{"receivers": {"/": 1}}', b"\xff"])
def test_an_invalid_receiver_list_allows_nothing(document: bytes) -> None:
    assert parse_receiver_list(document) == ()


def test_only_the_first_entries_of_an_endless_receiver_list_count() -> None:
    document = b'{"receivers": [' + b",".join(b'"/%d"' % number for number in range(RECEIVER_PREFIXES_MAX + 1)) + b"]}"

    assert len(parse_receiver_list(document)) == RECEIVER_PREFIXES_MAX
