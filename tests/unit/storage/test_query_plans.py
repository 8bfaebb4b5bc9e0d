"""No hot statement reads a whole table: each uses an index."""

import re
import sqlite3
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import closing
from importlib import resources
from typing import Any

import pytest

from ringback.storage.sqlite.database import connect
from ringback.storage.sqlite.statements import load_sql
from tests.support.shared_setup import create_tables

NOUNS = [
    "api_keys",
    "audit_entries",
    "call_completions",
    "call_deliveries",
    "call_histories",
    "call_queue",
    "call_resumes",
    "call_webhooks",
    "calls",
    "catalog",
    "catch_ups",
    "change_subscriptions",
    "commit_count",
    "deliveries",
    "delivery_maintenance",
    "delivery_queue",
    "ended_deliveries",
    "event_demands",
    "event_followings",
    "event_log",
    "event_types",
    "erased_deliveries",
    "erased_rows",
    "erasures",
    "events",
    "client_sessions",
    "insights",
    "key_owners",
    "leaders",
    "open_work",
    "mcp_sessions",
    "oauth_clients",
    "origin_breakers",
    "owned_catalog",
    "portal_links",
    "registered_webhooks",
    "scheduled_calls",
    "scheduling_time",
    "sealed_values",
    "sealing_keys",
    "sign_ins",
    "subscriptions",
    "tombstones",
    "tool_aliases",
    "unused_logins",
    "upkeep",
    "upstream_controls",
    "login_checks",
    "login_waits",
    "upstream_logins",
    "upstream_tokens",
    "usage",
    "verification",
    "webhook_deliveries",
    "webhook_rates",
    "webhooks",
    "write_probe",
]
WHOLE_TABLE_ON_PURPOSE = {
    ("catalog", "all"),  # five rows an upstream, read at start
    ("catalog", "remove_other_upstreams"),
    ("event_demands", "current"),  # a bounded number for each principal, and none that ended over a minute ago
    ("event_demands", "different"),
    ("event_demands", "ended"),
    ("event_demands", "remove_unwanted_followings"),  # a row for each different demand
    ("tool_aliases", "all"),  # the few that are too long or have odd characters
    ("api_keys", "all"),  # a handful of rows
    ("upstream_controls", "all"),  # the upstreams that are paused or drained now
    ("oauth_clients", "remove_oldest"),  # a thousand rows, when a client is registered
    ("usage", "calls_by_status"),  # five rows a principal
    ("usage", "count_events"),  # one row a principal
    ("usage", "count_subscriptions"),  # one row a principal
    ("sealing_keys", "all"),  # a row for each key of the last rotations
    ("write_probe", "file"),  # no table
}

BOUNDED = (
    r"waiting|last|upstreams|webhook_ids|keys|names|topics|uris|sets|json_each|wanted|counted|updated|ended|found|dead|halves|scanned|retried|candidates|numbered|"
    r"CONSTANT ROW|\(subquery"
)
"""Rows of no table: those of a list in the parameters, or of a query within the statement that a parameter bounds."""


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Generator[sqlite3.Connection]:
    """One for all tests, which only ask it for plans: the migrations take 20 ms."""
    with closing(connect(tmp_path_factory.mktemp("plans") / "ringback.db", lock_wait_seconds=0)) as connection:
        create_tables(connection)
        yield connection


def plan(connection: sqlite3.Connection, noun: str, name: str) -> list[str]:
    statement = load_sql(noun)[name]
    parameters: defaultdict[str, Any] = defaultdict(lambda: None)
    return [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]


def test_every_statement_file_is_covered() -> None:
    folder = resources.files("ringback.storage.sqlite") / "sql"

    assert {file.name.removesuffix(".sql") for file in folder.iterdir()} == {*NOUNS, "session", "migrator"}


@pytest.mark.parametrize("noun", NOUNS)
def test_no_statement_reads_a_whole_table(connection: sqlite3.Connection, noun: str) -> None:
    names = [name for name in load_sql(noun) if (noun, name) not in WHOLE_TABLE_ON_PURPOSE]
    scans = {name: find_scans(plan(connection, noun, name)) for name in names}

    assert {name: found for name, found in scans.items() if found} == {}


def find_scans(steps: Sequence[str]) -> Sequence[str]:
    """The steps of a plan that read a whole table."""
    scans = [step for step in steps if re.match(rf"SCAN (?!{BOUNDED})", step)]
    return [step for step in scans if "USING" not in step or "VIRTUAL" in step]


@pytest.mark.parametrize(
    ("noun", "name", "index"),
    [
        ("call_queue", "queued_upstreams", "calls_queued"),
        ("call_queue", "queued", "calls_queued"),
        ("scheduled_calls", "queue_due", "calls_scheduled"),
        ("scheduled_calls", "next", "calls_scheduled"),
        ("registered_webhooks", "by_name", "webhooks_by_name"),
        ("registered_webhooks", "by_idempotency_key", "webhooks_idempotency"),
        ("call_queue", "lease_expired", "calls_running"),
        ("call_queue", "leased", "calls_running"),
        ("call_queue", "past_deadline", "calls_waiting_deadline"),
        ("calls", "page_of_session", "calls_of_session"),
        ("calls", "page_of_correlation", "calls_of_correlation"),
        ("calls", "by_idempotency_key", "calls_idempotency"),
        ("events", "after_of_call", "events_of_call"),
        ("catch_ups", "next", "catch_ups_of_principal"),
        ("catch_ups", "next_of_principal", "catch_ups_of_principal"),
        ("webhooks", "of_calls", "webhooks_of_call"),
        ("call_webhooks", "same_target", "webhooks_of_target"),
        ("call_webhooks", "any_call", "call_webhooks_of_webhook"),
        ("calls", "page_of_status", "calls_of_status"),
        ("calls", "page_of_unsuccessful", "calls_unsuccessful"),
        ("calls", "page_of_all_unsuccessful", "calls_unsuccessful_of_all"),
        ("calls", "page_of_all_awaiting_input", "calls_awaiting_input_of_all"),
        ("calls", "end_of_page_of_all_awaiting_input", "calls_awaiting_input_of_all"),
        ("deliveries", "page_of_all_dead", "deliveries_dead_of_all"),
        ("deliveries", "end_of_page_of_all_dead", "deliveries_dead_of_all"),
        ("call_queue", "take_turns", "turns_last"),
        ("call_queue", "free_turn", "turns_last"),
        ("call_queue", "free_turn", "calls_queued"),
        ("webhooks", "expired", "webhooks_expiring"),
        ("change_subscriptions", "all", "webhooks_watching"),
        ("change_subscriptions", "has", "webhooks_watched"),
        ("change_subscriptions", "of_subjects", "webhooks_watched"),
        ("change_subscriptions", "of_subjects", "event_demands_current"),
        ("change_subscriptions", "watched_resources", "webhooks_watched"),
        ("change_subscriptions", "watched_resources", "event_demands_current"),
        ("event_demands", "of_upstream", "event_demands_current"),
        ("event_demands", "of_upstream", "webhook_matches_of_upstreams"),
        ("event_demands", "principals", "event_demands_current"),
        ("event_demands", "principals", "webhook_matches_of_upstreams"),
        ("deliveries", "watermarks", "deliveries_open"),
        ("deliveries", "undelivered", "deliveries_dead_of_webhook"),
        ("deliveries", "page_of_dead", "deliveries_dead"),
        ("deliveries", "page_of_webhook", "deliveries_of_webhook"),
        ("deliveries", "page_of_dead_of_webhook", "deliveries_dead_of_webhook"),
        ("webhook_deliveries", "dead", "deliveries_dead_of_webhook"),
        ("webhook_deliveries", "release_held", "deliveries_held"),
        ("webhook_deliveries", "hold_pending", "deliveries_lanes"),
        ("webhook_deliveries", "suspend_pending", "deliveries_lanes"),
        ("webhook_deliveries", "cancel_due", "deliveries_lanes"),
        ("webhook_deliveries", "cancel_open", "deliveries_open"),
        ("webhooks", "expired", "deliveries_open"),
        ("webhooks", "cancel_open_deliveries", "deliveries_open"),
        ("verification", "due_challenges", "challenges_due"),
        ("verification", "recent_of_origin", "challenges_sent_to"),
        ("verification", "recent_of_principal", "challenges_sent_for"),
        ("verification", "remove_sent", "challenges_sent_when"),
        ("tombstones", "expire_own_webhook", "webhooks_of_call"),
        ("usage", "count_webhooks", "webhooks_counted"),
        ("usage", "queued_calls", "calls_queued"),
        ("usage", "queued_calls_of_principal", "calls_queued"),
        ("insights", "ends", "events_created"),
        ("insights", "deliveries", "deliveries_finished"),
        ("insights", "attempts", "attempts_in_order"),
        ("insights", "remove", "insight_hours_by_age"),
        ("client_sessions", "page", "calls_of_principal"),
        ("client_sessions", "page", "calls_of_session"),
        ("client_sessions", "count_calls", "calls_of_session"),
        ("client_sessions", "ends_of_session", "calls_of_session"),
        ("open_work", "queued_calls", "calls_queued"),
        ("open_work", "queued_calls_of_principal", "calls_queued"),
        ("open_work", "scheduled_calls", "calls_scheduled"),
        ("open_work", "scheduled_calls_of_principal", "calls_of_status"),
        ("open_work", "deliveries_of_principal", "webhooks_counted"),
        ("open_work", "deliveries_of_principal", "deliveries_lanes"),
        ("open_work", "deliveries_of_principal", "deliveries_leased_to"),
        ("open_work", "dead_deliveries_of_principal", "deliveries_dead"),
        ("open_work", "failing_webhooks_of_principal", "webhooks_failing_of_principal"),
        ("subscriptions", "keys", "subscriptions_of_key"),
        ("subscriptions", "of_key", "subscriptions_of_key"),
        ("subscriptions", "event_names", "subscriptions_of_event"),
        ("subscriptions", "of_event", "subscriptions_of_event"),
        ("subscriptions", "remove_ended", "subscriptions_ended"),
        ("erased_rows", "newer_of_session", "subscribed_webhooks_of_session"),
        ("erased_rows", "newer_of_principal", "subscriptions_of_principal"),
        ("delivery_queue", "oldest_due", "deliveries_due"),
        ("delivery_queue", "due_webhooks", "deliveries_lanes"),
        ("delivery_queue", "due", "deliveries_lanes"),
        ("delivery_queue", "due_in_order", "deliveries_ordered"),
        ("delivery_queue", "give_up", "deliveries_pending_age"),
        ("delivery_maintenance", "release_expired_leases", "deliveries_leased"),
        ("delivery_maintenance", "release_leases", "deliveries_leased"),
        ("delivery_maintenance", "give_up_held", "deliveries_held_age"),
        ("delivery_maintenance", "webhooks_to_give_up", "deliveries_pending_age"),
        ("delivery_maintenance", "webhooks_to_release", "deliveries_held"),
        ("delivery_maintenance", "webhooks_to_probe", "deliveries_held"),
        ("delivery_queue", "due_without_key", "deliveries_without_key"),
        ("delivery_queue", "due_in_order", "deliveries_leased_to"),
        ("delivery_maintenance", "webhooks_to_probe", "deliveries_leased_to"),
        ("call_deliveries", "cancel_superseded_progress", "deliveries_waiting_of_call"),
        ("call_deliveries", "cancel_detached", "deliveries_waiting_of_call"),
        ("call_deliveries", "has_unsent", "deliveries_waiting_of_call"),
        ("delivery_queue", "next_due", "deliveries_due"),
        ("mcp_sessions", "count", "mcp_sessions_of_principal"),
        ("mcp_sessions", "list_expiries", "mcp_sessions_of_principal"),
        ("mcp_sessions", "remove_expired", "mcp_sessions_expiring"),
        ("login_checks", "due", "login_checks_due"),
        ("login_checks", "late", "login_checks_due"),
        ("unused_logins", "due", "unused_logins_due"),
        ("login_checks", "resume_others", "login_waits_of_owner"),
        ("login_waits", "waiting", "login_waits_of_owner"),
        ("login_waits", "mark_orphans", "login_waits_of_owner"),
        ("login_waits", "resume_orphans", "login_waits_of_owner"),
        ("login_waits", "next_resumption", "login_resumptions_in_turn"),
        ("sign_ins", "by_hash", "sign_ins_of_secret"),
        ("sign_ins", "remove_oldest", "sign_ins_of_principal"),
        ("sign_ins", "remove_expired", "sign_ins_expiring"),
        ("portal_links", "by_hash", "portal_links_of_secret"),
        ("portal_links", "page_of_principal", "portal_links_of_principal"),
        ("portal_links", "count", "portal_links_of_principal"),
        ("portal_links", "delete_of_session", "portal_links_of_principal"),
        ("portal_links", "remove_expired", "portal_links_expiring"),
        ("audit_entries", "page_of_owner", "audit_entries_of_owner"),
        ("audit_entries", "remove_beyond", "audit_entries_of_owner"),
        ("audit_entries", "remove", "audit_entries_by_age"),
        ("upstream_logins", "by_state", "upstream_logins_of_state"),
        ("upstream_logins", "count", "upstream_logins_of_principal"),
        ("upstream_logins", "remove_expired", "upstream_logins_expiring"),
        ("upstream_tokens", "all_owned", "upstream_tokens_of_owner"),
        ("erased_deliveries", "delete_logins", "upstream_logins_of_principal"),
        ("erased_deliveries", "delete_tokens", "upstream_tokens_of_owner"),
        ("erased_deliveries", "forget_logged_in_by", "upstream_tokens_of_owner"),
        ("api_keys", "page_of_principal", "api_keys_of_principal"),
        ("erasures", "next", "erasures_in_turns"),
        ("erasures", "next_waiting", "erasures_in_turns"),
        ("erasures", "open_of_target", "erasures_open_of_target"),
        ("erasures", "remove", "erasures_finished"),
        ("erased_rows", "calls_of_session", "calls_of_session"),
        ("erased_rows", "calls_of_principal", "calls_of_principal"),
        ("erased_rows", "open_calls", "calls_of_status"),
        ("erased_rows", "webhooks_of_session", "webhooks_of_session"),
        ("erased_rows", "webhooks_of_principal", "webhooks_of_principal"),
        ("erased_rows", "webhooks_of_calls", "webhooks_of_call"),
        ("erased_rows", "events_of_calls", "events_of_call"),
        ("erased_rows", "newer_of_session", "calls_of_session"),
        ("erased_rows", "newer_of_session", "webhooks_of_session"),
        ("erased_rows", "newer_of_principal", "calls_of_principal"),
        ("erased_rows", "newer_of_principal", "webhooks_of_principal"),
        ("erased_rows", "newer_of_principal", "api_keys_of_principal"),
        ("erased_deliveries", "delete_of_calls", "deliveries_of_call"),
        ("erased_deliveries", "delete_of_webhooks", "deliveries_of_webhook"),
        ("erased_deliveries", "delete_of_principal", "deliveries_of_principal"),
        ("erased_deliveries", "first_of_calls", "deliveries_of_call"),
        ("erased_deliveries", "first_of_webhooks", "deliveries_of_webhook"),
        ("erased_deliveries", "first_of_principal", "deliveries_of_principal"),
        ("erased_deliveries", "delete_keys", "api_keys_of_principal"),
        ("erased_deliveries", "delete_sessions", "mcp_sessions_of_principal"),
    ],
)
def test_a_hot_statement_uses_the_index_made_for_it(
    connection: sqlite3.Connection, noun: str, name: str, index: str
) -> None:
    assert any(re.search(rf"INDEX {index}\b", step) for step in plan(connection, noun, name))


@pytest.mark.parametrize(
    ("noun", "name"),
    [
        ("events", "after"),
        ("events", "after_of_call"),
        ("events", "end_of_latest"),
        ("calls", "end_of_page"),
        ("calls", "end_of_page_of_session"),
        ("calls", "end_of_page_of_status"),
        ("deliveries", "end_of_page"),
        ("deliveries", "end_of_page_of_dead"),
        ("deliveries", "end_of_page_of_dead_of_webhook"),
        ("calls", "end_of_page_of_unsuccessful"),
        ("calls", "end_of_page_of_all_unsuccessful"),
        ("calls", "end_of_page_of_all_awaiting_input"),
        ("deliveries", "end_of_page_of_all_dead"),
        ("webhook_deliveries", "end_of_dead"),
        ("delivery_queue", "oldest_due"),
        ("webhooks", "page"),
        ("insights", "starts"),
        ("insights", "deliveries"),
        ("insights", "hours"),
        ("client_sessions", "end_of_page"),
    ],
)
def test_a_page_is_read_in_order_without_sorting(connection: sqlite3.Connection, noun: str, name: str) -> None:
    assert not any("ORDER BY" in step for step in plan(connection, noun, name))


@pytest.mark.parametrize(
    ("noun", "name"),
    [
        *(("calls", f"page{of}") for of in ("", "_of_session", "_of_correlation", "_of_status", "_of_unsuccessful")),
        *(("deliveries", f"page{of}") for of in ("", "_of_call", "_of_webhook", "_of_dead", "_of_dead_of_webhook")),
        ("webhook_deliveries", "dead"),
        ("events", "latest"),
    ],
)
def test_a_bounded_page_reads_its_index_in_order_and_sorts_only_its_rows(
    connection: sqlite3.Connection, noun: str, name: str
) -> None:
    """The inner SELECTs follow the order of the index; only the outermost one sorts, a page at most."""
    steps = plan(connection, noun, name)

    assert sum("ORDER BY" in step for step in steps) == 1
    assert steps[-1] == "USE TEMP B-TREE FOR ORDER BY"
