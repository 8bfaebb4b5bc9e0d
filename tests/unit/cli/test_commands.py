"""The commands and options, which scripts depend on."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from typer.testing import Result

from ringback import __version__

Run = Callable[..., Result]

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OPERATOR_OPTIONS: Final = ("--principal", "--all-principals")

COMMANDS: dict[tuple[str, ...], set[str]] = {
    (): {
        *("--version", "--install-completion", "--show-completion"),
        *("serve", "dev", "keys", "call", "join", "wait", "calls", "events", "listen", "webhooks", "deliveries"),
        *("trigger", "verify", "migrate", "copy", "doctor", "upstreams", "tools", "audit"),
    },
    ("serve",): {
        *(
            "--dev",
            "--config",
            "--strict-config",
            "--upstream",
            "--database",
            "--roles",
            "--host",
            "--port",
            "--strict-config",
            "--log-level",
            "--log-format",
        ),
    },
    ("keys",): {"create", "list", "revoke", "rotate-api-key", "ring"},
    ("keys", "create"): {"--name", "--scope", "--upstream", "--expires", "--create", "--json", "--database"},
    ("keys", "rotate-api-key"): {"--overlap", "--expires", "--json", "--database"},
    ("keys", "list"): {"--json", "--database"},
    ("keys", "revoke"): {"--json", "--database"},
    ("keys", "ring"): {"--json"},
    ("call",): {
        "--arg",
        "--json-args",
        "--wait",
        "--wait-seconds",
        "--wait-for-input",
        "--session",
        "--correlation",
        "--callback",
        "--idempotency-key",
        "--not-before",
        "--timeout-seconds",
        "--accepts-input",
        "--json",
        "--url",
        "--api-key",
    },
    ("upstreams",): {"--json", "--url", "--api-key", "reload"},
    ("upstreams", "reload"): {"--json", "--url", "--api-key"},
    ("tools",): {"--json", "--url", "--api-key"},
    ("join",): {"--wait-seconds", "--wait-for-input", "--json", "--url", "--api-key"},
    ("wait",): {
        *("--session", "--correlation", "--upstream", "--tool", "--since"),
        *("--any", "--wait-seconds", "--json", "--url", "--api-key"),
    },
    ("calls",): {
        *("--session", "--correlation", "--status", "--outcome", "--upstream", "--tool", "--limit"),
        *("--queued", "--failed", "--since", "--until", "--id", "--min-runs", "--min-delivery-attempts"),
        *("--json", "--url", "--api-key", "show", "cancel", "answer"),
        *OPERATOR_OPTIONS,
    },
    ("calls", "show"): {"--url", "--api-key", *OPERATOR_OPTIONS},
    ("calls", "cancel"): {"--json", "--url", "--api-key", *OPERATOR_OPTIONS},
    ("calls", "erase"): {"--cancel", "--json", "--url", "--api-key", *OPERATOR_OPTIONS},
    ("top",): {"--every", "--once", "--json", "--url", "--api-key", *OPERATOR_OPTIONS},
    ("audit",): {"--limit", "--json", "--url", "--api-key", *OPERATOR_OPTIONS},
    ("usage",): {"--principal", "--json", "--url", "--api-key"},
    ("sessions",): {"erase"},
    ("sessions", "erase"): {"--cancel", "--json", "--url", "--api-key", "--principal"},
    ("principals",): {"erase"},
    ("principals", "erase"): {"--yes", "--cancel", "--json", "--url", "--api-key"},
    ("erasure",): {"--json", "--url", "--api-key"},
    ("calls", "answer"): {"--arg", "--accept", "--decline", "--key", "--json", "--url", "--api-key"},
    ("events",): {
        *("--follow", "--cursor", "--name", "--call", "--session", "--correlation", "--json", "--url", "--api-key"),
        "--limit",
        *OPERATOR_OPTIONS,
    },
    ("trigger",): {"--wait-seconds", "--json", "--url", "--api-key"},
    ("verify",): {"--secret", "--jwks", "--body", "--header", "--max-age", "--json"},
    ("dev",): {"--name", "--port", "--keep", "--log-level"},
    ("listen",): {
        *("--forward-to", "--exec", "--session", "--correlation", "--event", "--state", "--from-start"),
        *(
            "--retry-given-up",
            "--notify",
            "--attempts",
            "--parallel",
            "--exec-timeout",
            "--notify",
            "--json",
            "--secret",
            "--port",
            "--url",
            "--api-key",
        ),
    },
    ("webhooks",): {
        "list",
        "add",
        "show",
        "remove",
        "test",
        "rotate-secret",
        "replay",
        "enable",
        "disable",
        "pause",
        "resume",
    },
    ("webhooks", "add"): {
        *("--event", "--outcome", "--name", "--upstream", "--resource", "--tool", "--session", "--correlation"),
        *(
            "--match-correlation",
            "--secret",
            "--include-result",
            "--detached",
            "--ordered",
            "--rate-per-second",
            "--header",
            "--retry",
            "--description",
            "--json",
            "--url",
            "--api-key",
        ),
    },
    ("webhooks", "rotate-secret"): {"--secret", "--overlap-seconds", "--json", "--url", "--api-key"},
    ("webhooks", "list"): {"--failing", "--state", "--json", "--url", "--api-key", *OPERATOR_OPTIONS},
    ("webhooks", "replay"): {
        "--since",
        "--cursor",
        "--dead",
        "--dry-run",
        "--json",
        "--url",
        "--api-key",
        *OPERATOR_OPTIONS,
    },
    ("deliveries",): {"list", "show", "redeliver"},
    ("deliveries", "list"): {
        *("--state", "--webhook", "--call", "--limit", "--json", "--url", "--api-key"),
        *("--category", "--min-attempts", "--latest", "--since", "--until", "--id"),
        *OPERATOR_OPTIONS,
    },
    ("migrate",): {"--check", "--database", "--json"},
    ("copy",): {"--from", "--to", "--json"},
    ("doctor",): {
        *("--config", "--upstream", "--database", "--url", "--callbacks", "--api-key", "--json"),
        *("--accept-lost-keys", "--accept-restore"),
    },
}


def test_a_mistyped_command_gets_a_suggestion(run: Run) -> None:
    refused = run("cals")

    assert refused.exit_code == 2
    assert "Did you mean" in refused.stderr
    assert "'call" in refused.stderr


def test_who_resumes_a_call_is_shown_the_command_that_joins_it(run: Run) -> None:
    assert "'join'" in run("resume", "the.token").stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command) or "ringback")
def test_help_names_every_option_and_command(run: Run, command: tuple[str, ...]) -> None:
    shown = run(*command, "--help")

    names = {word.split(",")[0] for line in shown.stdout.splitlines() for word in line.strip("│ *").split()[:1]}
    assert shown.exit_code == 0
    assert {name for name in names if name.startswith("--")} - {"--help"} == {
        name for name in COMMANDS[command] if name.startswith("--")
    }
    assert COMMANDS[command] <= names


@pytest.mark.parametrize(
    "command",
    ["call", "wait", "mcp", "listen", "calls", "calls cancel-all", "events", "events publish", "deliveries redeliver"],
)
def test_each_command_with_a_session_takes_both_names_of_the_option(run: Run, command: str) -> None:
    shown = run(*command.split(), "--help").stdout

    assert "--session,--client-session-id" in shown
    assert "--correlation,--correlation-id" in shown


def test_version_is_the_package_s(run: Run) -> None:
    assert run("--version").stdout == f"ringback {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("call", "demo", "count_primes", "--url", "ftp://nowhere"), "http://127.0.0.1:8090"),
        (("call", "demo", "count_primes", "--api-key", "two words\n"), "API key"),
        (("call", "demo", "count_primes", "--url", "http://127.0.0.1:1", "--json-args", "["), "--json-args"),
        (("call", "demo", "count_primes", "--timeout-seconds", "inf"), "finite number"),
        (("webhooks", "add", "https://example.com/", "--rate-per-second", "nan"), "finite number"),
        (("webhooks", "rotate-secret", "wh_1", "--overlap-seconds", "1e999"), "finite number"),
        (("calls", "show", "call_" + "0" * 70_000), "too long"),
        (("webhooks", "list", "--principal", "a" * 70_000), "too long"),
        (("doctor", "--url", "\udcff"), "is not a URL"),
        (("connect", "cursor", "--url", "\udcff"), "is not a URL"),
        (("mcp", "--url", "\udcff"), "give the whole URL"),
        (("webhooks", "add", "https://example.com/", "--header", "X-A: 1", "--header", "x-a: 2"), "x-a is given twice"),
        (("listen", "--port", "0"), "--secret"),
        (("listen", "--port", "0", "--secret", SECRET, "--exec", "true"), "--exec does not go with --port"),
        (("listen", "--port", "0", "--secret", SECRET, "--session", "s1"), "--session does not go with --port"),
        (("listen", "--exec", "true", "--forward-to", "http://127.0.0.1:1/"), "not both"),
        (("listen", "--exec", "true", "--json"), "--json"),
        (("listen", "--secret", SECRET), "--forward-to"),
        (("listen", "--forward-to", "127.0.0.1:9000"), "http://HOST:PORT/PATH"),
        (("listen", "--url", "http://127.0.0.1:1", "--state", "s.db"), "No server responds"),
        (("dev", "--name", "No Name", "npx", "-y", "server"), "a-z"),
        (("listen", "--port", "0", "--secret", "whsec_short"), "--secret"),
        (("listen", "--port", "70000", "--secret", "whsec_short"), "--port"),
        (("dial",), "dial"),
    ],
)
def test_an_invalid_command_line_is_rejected_before_any_request(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    refused = run(*arguments)

    assert refused.exit_code == 2
    assert words in refused.stderr
    assert refused.stdout == ""


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("ringback tri", "trigger"),
        ("ringback webhooks rot", "rotate-secret"),
        ("ringback calls --outc", "--outcome"),
        ("ringback calls --outcome tool", "tool_error"),
        ("ringback join --wait", "--wait-seconds"),
    ],
)
def test_the_shell_completes_commands_options_and_values(
    run: Run, monkeypatch: pytest.MonkeyPatch, typed: str, completed: str
) -> None:
    monkeypatch.setenv("_RINGBACK_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", typed)

    assert f'"{completed}"' in run().stdout


def test_a_proxy_that_needs_a_package_is_an_error_of_usage(run: Run) -> None:
    proxy = {"ALL_PROXY": "socks5://127.0.0.1:1"}

    refused = run("upstreams", "--url", "https://ringback.example", env=proxy)

    assert refused.exit_code == 2
    assert "SOCKS proxy" in refused.stderr


@pytest.mark.parametrize("option", ["--api-key", "--session", "--event", "--forward-to"])
def test_an_argument_of_a_listener_that_is_no_text_is_an_error(run: Run, tmp_path: Path, option: str) -> None:
    text = {"--forward-to": "http://127.0.0.1:1/\udcff"}.get(option, "\udcff")
    ran = run("listen", option, text, "--url", "http://127.0.0.1:1", env={"XDG_STATE_HOME": str(tmp_path)})

    assert ran.exit_code == 2
    assert "Error: One of the arguments contains half a character" in ran.stderr
