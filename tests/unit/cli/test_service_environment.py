"""The file of variables of the user's own service: its form, which is systemd's, and what the service does with it."""

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.cli.embedded_service.environment_file import FILE_BYTES_MAX, parse_variables, read_environment_file
from ringback.cli.embedded_service.paths import ServicePaths
from ringback.cli.embedded_service.service_environment import ServiceEnvironment
from ringback.domain.upstreams import SkippedUpstream
from ringback.upstreams.config import ConfigError, UpstreamConfig


@pytest.fixture
def paths(tmp_path: Path) -> ServicePaths:
    return ServicePaths(config=tmp_path / "mcp.json", folder=tmp_path / "state")


def write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=b", "b"),
        ("  A = b c \t\nB=x", "b c"),
        ("A=", ""),
        ("A=#b", "#b"),
        ("A=it's", "it's"),
        ("A=b\\\nc", "bc"),
        (r"A=b\ \"\\", 'b "\\'),
        ('A=" b "', " b "),
        (r'A="\"\\\$\`\n"', '"\\$`\\n'),
        ('A="b\\\nc\nd"', "bc\nd"),
        (r"A='b\"$c'", r"b\"$c"),
        ("A='-----BEGIN\nEND'", "-----BEGIN\nEND"),
        ("A='b'\"c\"d", "bcd"),
        ("A=b\r\nB=c\r\n", "b"),
        ("A=first\nA=b", "b"),
        ("# A=x\n; A=y\n\nA=${HOME}", "${HOME}"),
    ],
)
def test_values_are_read_as_systemd_reads_them(text: str, value: str) -> None:
    variables, ignored = parse_variables(text)

    assert variables["A"] == value
    assert ignored == ()


def test_a_named_pipe_in_the_place_of_the_file_is_refused_at_once(paths: ServicePaths) -> None:
    """The service reads the file on its event loop, and would hang until another process writes to the pipe."""
    paths.environment.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(paths.environment)

    with pytest.raises(ConfigError, match="Not a regular file"):
        read_environment_file(paths.environment)


@pytest.mark.parametrize("line", ["export A=b", "A", "=b", "1A=b", "A-B=c", 'A="b', "A='b", "A=\0", "A=b\\"])
def test_a_line_that_assigns_no_variable_is_named_and_the_others_are_read(line: str) -> None:
    ended = line if line.endswith("\\") else f"{line}\nC=d\n"

    variables, ignored = parse_variables(f"B=c\n\n{ended}")

    assert ignored == (3,)
    assert variables == {"B": "c"} if line.endswith("\\") else {"B": "c", "C": "d"}


@given(st.text(alphabet="A=b'\"\\ \n#\t\r$", max_size=60))
def test_any_text_has_variables_and_ignored_lines(text: str) -> None:
    variables, ignored = parse_variables(text)

    assert all(name.isidentifier() for name in variables)
    assert list(ignored) == sorted(set(ignored))


@given(st.text(st.characters(exclude_characters="'\0\r", exclude_categories=["Cs"])))
def test_any_value_between_single_quotes_is_kept(value: str) -> None:
    assert parse_variables(f"A='{value}'") == ({"A": value}, ())


def test_a_file_that_others_may_read_and_lines_without_a_variable_are_logged_without_values(
    paths: ServicePaths, caplog: pytest.LogCaptureFixture
) -> None:
    paths.environment.write_text("TOKEN=secret\nexport KEY=secret\n")
    paths.environment.chmod(0o644)

    with caplog.at_level(logging.WARNING):
        environment = ServiceEnvironment(paths, {})
        environment.read_entries(is_strict=False)
        assert not caplog.records, "the log is not open yet"
        environment.begin_to_log_faults()
        environment.read_entries(is_strict=False)

    assert [record.message for record in caplog.records] == [
        "environment.lines_ignored",
        "environment.readable_by_others",
    ]
    assert caplog.records[0].__dict__["lines"] == "2"
    assert "secret" not in repr([record.__dict__ for record in caplog.records])
    assert "secret" not in repr(read_environment_file(paths.environment))


@pytest.mark.parametrize(
    ("content", "problem"), [(b"A=\xff", "is not UTF-8"), (b"#" * (FILE_BYTES_MAX + 1), "is larger than")]
)
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(
    paths: ServicePaths, content: bytes, problem: str
) -> None:
    paths.environment.write_bytes(content)

    with pytest.raises(ConfigError, match=f"environment: {problem}"):
        read_environment_file(paths.environment)


def test_the_file_replaces_the_variables_of_the_client_that_started_the_service(paths: ServicePaths) -> None:
    write_private(paths.environment, "TOKEN=new\nRINGBACK_LOG_LEVEL=debug\nRINGBACK_PORT=1\n")
    process = {"TOKEN": "old", "PATH": "/bin", "RINGBACK_API_KEY": "rbk_client"}

    ServiceEnvironment(paths, process).apply()

    assert process == {"TOKEN": "new", "PATH": "/bin", "RINGBACK_LOG_LEVEL": "debug"}


def test_a_missing_variable_is_served_once_it_stands_in_the_file(paths: ServicePaths) -> None:
    paths.config.write_text('{"mcpServers": {"a": {"command": "x", "env": {"K": "${TOKEN}", "H": "${HOME}"}}}}')
    environment = ServiceEnvironment(paths, {"HOME": "/home/a"})
    environment.apply()

    (skipped,) = environment.read_entries(is_strict=False)
    write_private(paths.environment, "TOKEN=t")
    (served,) = environment.read_entries(is_strict=False)

    assert isinstance(skipped, SkippedUpstream)
    assert skipped.advice.endswith(
        f"needs the environment variable TOKEN, which is not set; add it as NAME=VALUE to {paths.environment}."
    )
    assert isinstance(served, UpstreamConfig)


def test_a_variable_that_left_the_file_has_the_value_of_the_process_again(paths: ServicePaths) -> None:
    paths.config.write_text('{"mcpServers": {"a": {"url": "https://${HOST}/mcp"}}}')
    write_private(paths.environment, "HOST=file.example\n")
    environment = ServiceEnvironment(paths, {"HOST": "process.example"})
    environment.apply()

    (before,) = environment.read_entries(is_strict=False)
    paths.environment.unlink()
    (after,) = environment.read_entries(is_strict=False)

    assert isinstance(before, UpstreamConfig)
    assert isinstance(after, UpstreamConfig)
    assert (before.url, after.url) == ("https://file.example/mcp", "https://process.example/mcp")
