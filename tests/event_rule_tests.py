"""The tests that show demands of MCP Events which requests to a gateway cannot show. `event_rules` has the demands."""

from collections.abc import Mapping, Sequence
from typing import Final

_ENGINE: Final = "interaction/engine/test_"
_ENDPOINT: Final = "unit/protocol/mcp_events/test_endpoint.py::test_"
_MODES: Final = "unit/protocol/mcp_events/test_delivery_modes.py::test_"
_SUBSCRIPTIONS: Final = f"{_ENGINE}event_subscriptions.py::test_"
_SUBSCRIPTION_CHALLENGES: Final = f"{_ENGINE}event_subscription_challenges.py::test_"
_SUBSCRIPTION_REFRESHES: Final = f"{_ENGINE}event_subscription_refreshes.py::test_"
_DELIVERIES: Final = f"{_ENGINE}subscription_deliveries.py::test_"
_ENDINGS: Final = f"{_ENGINE}subscription_endings.py::test_"
_ENDS: Final = f"{_ENGINE}subscription_ends.py::test_"
_GUARD: Final = "interaction/sender/test_guard.py::test_"
_REGISTRY: Final = "unit/receiver/test_subscription_registry.py::test_"
_GATEWAY: Final = "interaction/gateway/test_event_"
_TYPE_CHANGES: Final = f"{_GATEWAY}type_changes.py::test_"
_THREE_MODES: Final = (
    f"{_GATEWAY}subscriptions.py::test_a_webhook_a_poll_and_a_stream_have_the_same_events_in_the_same_order"
)
_RESTART: Final = f"{_SUBSCRIPTIONS}a_new_subscription_gets_the_events_after_it_and_an_id_that_a_restart_keeps"
_FORBIDDEN: Final = f"{_SUBSCRIPTION_CHALLENGES}a_caller_without_the_scope_or_the_upstream_is_forbidden"
_REMOVED: Final = f"{_ENDINGS}the_receivers_of_a_removed_event_type_learn_that_it_does_not_exist"
_REMOVED_PUSH: Final = f"{_ENDPOINT}a_subscription_that_ends_is_terminated_with_its_error"
_MODE: Final = f"{_ENDPOINT}an_unknown_event_type_is_not_found_and_a_mode_that_it_lacks_is_unsupported"
_REVOKED: Final = f"{_ENDS}a_revoked_key_ends_its_subscriptions_and_notifies_their_receivers"
_GATEWAY_CHECKS: Final = f"{_GATEWAY}checks.py::test_the_gateway_passes_every_check_of_a_server_with_events"

_FOLLOWING: Final = "unit/upstreams/test_following.py::test_"
_POLLS: Final = f"{_FOLLOWING}polls_follow_each_other_as_the_upstream_asks_and_carry_the_cursor_of_the_last_result"
_SUBSCRIBER: Final = "unit/receiver/test_event_subscriber.py::test_"
_SILENT: Final = f"{_FOLLOWING}a_stream_whose_heartbeats_end_is_opened_again_at_the_cursor_of_the_last_one"

SHOWN: Final[Mapping[str, Sequence[str]]] = {
    "client-no-events-without-extension": (
        "unit/upstreams/test_event_catalog.py::test_an_upstream_that_does_not_declare_events_is_not_asked_for_them",
    ),
    "client-poll-drain-on-has-more": (_POLLS,),
    "client-poll-respects-next-poll-ms": (_POLLS,),
    "client-poll-floor": (_POLLS,),
    "client-truncated-persists-fresh-cursor": (_POLLS,),
    "client-cursor-absent-tolerated": (_POLLS,),
    "client-relist-on-list-changed": (
        "interaction/loop/test_upstream_events.py::test_an_event_type_that_an_upstream_adds_is_offered_at_once",
    ),
    "client-stream-reconnect-with-cursor": (_SILENT,),
    "client-null-cursor-not-replayed": (_SILENT, _POLLS),
    "client-refresh-before-expiry": (
        f"{_SUBSCRIBER}a_subscription_is_refreshed_at_half_of_its_lifetime_with_the_same_secret",
    ),
    "list-changed-notification": (
        f"{_TYPE_CHANGES}a_client_that_listens_is_notified_of_the_changed_event_types_of_its_upstream",
    ),
    "removal-terminates-subscriptions": (_REMOVED, _REMOVED_PUSH),
    "removal-error-not-found": (_REMOVED, _REMOVED_PUSH),
    "error-forbidden": (_FORBIDDEN, f"{_MODES}an_unauthenticated_caller_may_poll_and_stream_and_not_subscribe"),
    "error-resource-exhausted": (f"{_SUBSCRIPTION_CHALLENGES}a_quota_is_checked_before_the_challenge",),
    "error-unsupported": (_MODE, f"{_ENDPOINT}the_first_fault_in_the_order_of_the_specification_decides"),
    "poll-mode-unsupported": (_MODE,),
    "stream-mode-unsupported": (
        f"{_MODES}a_stream_of_a_type_that_does_not_offer_push_is_unsupported_and_sends_nothing",
    ),
    "replay-ceiling-sets-truncated": (
        "interaction/rest/test_events.py::test_a_cursor_whose_events_expired_returns_truncated_and_the_remaining_events",
    ),
    "stream-error-is-recoverable": (f"{_ENDPOINT}a_stream_has_the_frames_of_its_pages_and_a_final_result",),
    "stream-terminated-ends-subscription": (_REMOVED_PUSH,),
    "stream-gap-resends-active": (f"{_ENDPOINT}a_stream_has_the_frames_of_its_pages_and_a_final_result",),
    "stream-final-result-shape": (f"{_ENDPOINT}a_stream_has_the_frames_of_its_pages_and_a_final_result",),
    "stream-final-result-empty": (f"{_ENDPOINT}a_stream_has_the_frames_of_its_pages_and_a_final_result",),
    "subscribe-refresh-reactivates": (
        f"{_SUBSCRIPTION_REFRESHES}a_refresh_makes_a_suspended_subscription_active_and_sends_what_was_held",
    ),
    "ttl-long-grant-retained": (_RESTART,),
    "ttl-no-expiry-persisted": (_RESTART,),
    "verification-persisted-for-no-expiry": (_RESTART,),
    "ttl-no-expiry-gc-terminated": (
        f"{_ENDINGS}a_subscription_without_expiry_whose_receiver_fails_for_a_week_is_ended",
    ),
    "ssrf-validate-callback-url": (f"{_GUARD}a_blocked_url_is_refused_when_registered_and_opens_no_socket_when_sent",),
    "ssrf-validate-at-delivery-time": (
        f"{_GUARD}an_answer_that_was_good_at_registration_is_judged_again_when_sent",
        f"{_GUARD}a_name_that_changes_with_every_lookup_never_reaches_a_blocked_address",
    ),
    "verification-uses-ssrf-hardened-path": (
        f"{_SUBSCRIPTION_CHALLENGES}a_callback_that_fails_its_challenge_leaves_nothing",
        f"{_GUARD}the_socket_is_guarded_even_if_the_resolver_were_not",
    ),
    "server-identity-key-discovery": (
        "interaction/loop/test_verified_callbacks.py::test_a_receiver_with_the_published_key_needs_no_secret",
    ),
    "envelope-gap": (
        "interaction/rest/test_restored_backup.py::test_a_webhook_with_a_lost_cursor_gets_a_gap_and_then_new_events",
    ),
    "envelope-gap-string-cursor": (
        f"{_ENGINE}held_deliveries.py::test_ten_thousand_deliveries_are_held_and_the_rest_becomes_one_gap",
    ),
    "envelope-terminated": (f"{_DELIVERIES}the_receiver_of_an_ended_subscription_gets_a_signed_terminated_envelope",),
    "authz-subscribe-time": (_FORBIDDEN,),
    "authz-delivery-time-reverify": (
        _REVOKED,
        f"{_ENDS}an_expired_key_ends_its_subscriptions_unless_another_key_has_refreshed_them",
    ),
    "payload-minimality": (f"{_GATEWAY}checks.py::test_an_event_names_its_call_and_does_not_carry_the_result",),
    "client-declares-nothing": (_GATEWAY_CHECKS,),
    "list-discoverable-only": (
        "interaction/rest/test_published_events.py::test_another_principals_event_type_looks_like_an_unknown_one",
    ),
    "occurrence-same-ids-in-order": (_THREE_MODES,),
    "poll-long-poll": (f"{_ENDPOINT}the_options_of_a_poll_are_bounded",),
    "poll-unauthenticated": (f"{_MODES}an_unauthenticated_caller_may_poll_and_stream_and_not_subscribe",),
    "subscribe-order-of-checks": (
        f"{_ENDPOINT}the_first_fault_in_the_order_of_the_specification_decides",
        f"{_ENDPOINT}arguments_secret_and_url_are_checked_in_this_order_before_the_backend",
        f"{_SUBSCRIPTION_CHALLENGES}a_quota_is_checked_before_the_challenge",
    ),
    "subscribe-cursor": (
        f"{_SUBSCRIPTIONS}a_cursor_replays_and_a_maximum_age_skips",
        f"{_SUBSCRIPTION_REFRESHES}a_lapsed_subscription_replays_what_it_had_already_under_the_same_message_ids",
    ),
    "subscribe-failure-leaves-nothing": (
        f"{_SUBSCRIPTION_CHALLENGES}a_callback_that_fails_its_challenge_leaves_nothing",
    ),
    "subscribe-result-first": (f"{_SUBSCRIPTIONS}no_delivery_leaves_before_the_client_has_the_result",),
    "subscribe-mode-absent": (f"{_MODES}a_subscribe_without_a_mode_is_one_by_webhook",),
    "unsubscribe-arguments-unchecked": (
        f"{_ENDPOINT}unsubscribing_takes_the_mode_or_not_and_does_not_validate_the_arguments",
    ),
    "error-codes-by-request": (
        f"{_GATEWAY}subscriptions.py::test_unsubscribing_what_never_was_is_not_found_in_the_codes_of_the_client",
    ),
    "error-codes-of-envelopes": (f"{_ENDINGS}the_receiver_of_a_removed_subscription_gets_the_codes_of_its_client",),
    "delivery-webhook-id-of-message": (
        f"{_DELIVERIES}the_webhook_id_is_the_event_id_or_an_id_of_the_message_and_never_changes",
        f"{_ENDINGS}only_a_client_that_declares_the_extension_gets_ids_of_messages",
    ),
    "delivery-first-retry-short": (
        f"{_DELIVERIES}an_event_is_retried_after_seconds_within_bounds_with_equal_bodies_and_fresh_signatures",
    ),
    "delivery-retry-after": ("interaction/sender/test_senders.py::test_retry_after_is_returned_in_seconds",),
    "delivery-suspension": (
        "unit/domain/test_failure_rate.py::test_more_than_95_percent_of_at_least_100_attempts_are_too_many",
    ),
    "delivery-suspended-time": (f"{_DELIVERIES}time_in_suspension_does_not_count_against_the_retry_window",),
    "verification-rate-limited": (
        f"{_SUBSCRIPTION_CHALLENGES}receivers_that_do_not_answer_are_challenged_a_few_times_a_minute_at_most",
    ),
    "verification-before-id": (
        f"{_REGISTRY}a_verification_before_the_id_is_known_is_echoed_and_binds_the_secret_that_signed_it",
    ),
    "envelope-not-counted": (
        f"{_DELIVERIES}a_terminated_envelope_that_fails_is_retried_within_bounds_and_counts_against_nobody",
    ),
    "cursor-recovers-a-loss": (
        f"{_GATEWAY}subscriptions.py::test_a_lost_callback_is_found_by_polling_from_the_cursor_of_the_last_body",
    ),
}
"""The tests, under `tests/`, of what the gateway cannot be made to do by requests alone."""
