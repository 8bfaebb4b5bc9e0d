"""Shorter leases in this process, so that a test need not wait 50 seconds until another node takes over the work of a dead one.

The proportions are the product's own. A process calls `shorten_leases` before it builds its application.
"""

from collections.abc import Callable
from typing import Any, Final

from ringback.janitor import recovery
from ringback.janitor.config import JanitorConfig
from ringback.notifier import dispatcher
from ringback.notifier.dispatcher import DispatcherConfig
from ringback.runner.leasing import RunnerConfig
from ringback.storage.postgres import driver, notifications

SHORTENED_BY: Final = 5.0
"""Leases of six seconds. Beside twenty busy processes, a node that lives loses shorter ones again and again."""
TAKEOVER_SECONDS: Final = 60.0 / SHORTENED_BY
"""After this the work of a dead node has been taken over: its lease, the janitor's grace, and two of its rounds."""


def shorten_leases() -> None:
    """Divide the lengths of leases, and of all waits that must be shorter or longer than leases."""
    for config in (RunnerConfig, DispatcherConfig, JanitorConfig):
        defaults = _keyword_defaults(config.__init__)
        for name in defaults.keys() & {
            "lease_seconds",
            "heartbeat_seconds",
            "lease_margin_seconds",
            "interval_seconds",
        }:
            defaults[name] /= SHORTENED_BY
    recovery.LEASE_GRACE_SECONDS /= SHORTENED_BY  # pyright: ignore[reportConstantRedefinition, reportAttributeAccessIssue]
    recovery.RESUME_GRACE_SECONDS /= SHORTENED_BY  # pyright: ignore[reportConstantRedefinition, reportAttributeAccessIssue]
    dispatcher.ATTEMPT_SECONDS /= SHORTENED_BY  # pyright: ignore[reportConstantRedefinition, reportAttributeAccessIssue, reportPrivateImportUsage]
    notifications.CHECK_SECONDS /= SHORTENED_BY  # pyright: ignore[reportConstantRedefinition, reportAttributeAccessIssue]
    for name in ("answer_timeout_seconds", "transaction_seconds"):
        _keyword_defaults(driver.connect)[name] /= SHORTENED_BY
    for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        seconds = float(driver.SERVER_SETTINGS[name].removesuffix("s"))
        driver.SERVER_SETTINGS[name] = f"{1000 * seconds / SHORTENED_BY:.0f}ms"


def _keyword_defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The defaults themselves: a change of the dictionary changes the function."""
    defaults: dict[str, Any] = getattr(function, "__kwdefaults__")  # noqa: B009 - a Callable need not have it
    return defaults
