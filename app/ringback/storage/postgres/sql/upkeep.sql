-- Each column reads one entry of the index of its task: one statement finds what the janitor of an idle node has to do.
-- name: first
SELECT
    CASE WHEN EXISTS (SELECT 1 FROM calls WHERE phase = 'running' AND lease_until IS NULL) THEN 0 ELSE (
        SELECT lease_until FROM calls WHERE phase = 'running' ORDER BY lease_until LIMIT 1
    ) END AS call_leases,
    (
        SELECT deadline_at FROM calls WHERE phase IN ('queued', 'parked') ORDER BY deadline_at LIMIT 1
    ) AS call_deadlines,
    (SELECT not_before FROM calls WHERE phase = 'scheduled' ORDER BY not_before LIMIT 1) AS scheduled_calls,
    (SELECT 0 FROM login_resumptions ORDER BY worked_at LIMIT 1) AS login_resumptions,
    (
        SELECT CASE WHEN due_at > :latest THEN 0 ELSE due_at END
        FROM (SELECT due_at FROM login_checks ORDER BY due_at LIMIT 1) AS next_check
    ) AS login_checks,
    (SELECT lease_until FROM deliveries WHERE state = 'leased' ORDER BY lease_until LIMIT 1) AS delivery_leases,
    (
        SELECT 0 FROM deliveries WHERE state = 'pending' AND due_at > :due_after ORDER BY due_at DESC LIMIT 1
    ) AS late_deliveries,
    coalesce(
        (SELECT 0 FROM calls WHERE phase = 'running' AND lease_until > :latest ORDER BY lease_until DESC LIMIT 1),
        (
            SELECT 0 FROM deliveries
            WHERE state = 'leased' AND lease_until > :latest ORDER BY lease_until DESC LIMIT 1
        )
    ) AS late_leases,
    (SELECT give_up_at FROM deliveries WHERE state = 'held' ORDER BY give_up_at LIMIT 1) AS held_deliveries,
    (
        SELECT 0 FROM subscriptions WHERE ended_at IS NULL AND key_id IS NOT NULL ORDER BY key_id LIMIT 1
    ) AS subscriptions,
    (
        SELECT 0 FROM webhooks WHERE last_error IS NOT NULL AND state <> 'disabled' ORDER BY id LIMIT 1
    ) AS failing_webhooks,
    (SELECT expires_at FROM webhooks WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1) AS webhook_expiries,
    (SELECT 0 FROM erasures WHERE finished_at IS NULL ORDER BY is_waiting LIMIT 1) AS open_erasures,
    (SELECT expires_at FROM calls WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1) AS call_expiries,
    (
        SELECT finished_at FROM deliveries WHERE state IN ('delivered', 'dead', 'cancelled') AND finished_at IS NOT NULL ORDER BY finished_at LIMIT 1
    ) AS ended_deliveries,
    (SELECT created_at FROM events ORDER BY created_at LIMIT 1) AS events,
    (SELECT changed_at FROM origins ORDER BY changed_at LIMIT 1) AS origins,
    (SELECT expired_at FROM tombstones ORDER BY expired_at LIMIT 1) AS tombstones,
    (
        SELECT ended_at FROM subscriptions WHERE ended_at IS NOT NULL ORDER BY ended_at LIMIT 1
    ) AS ended_subscriptions,
    (
        SELECT finished_at FROM erasures WHERE finished_at IS NOT NULL ORDER BY finished_at LIMIT 1
    ) AS finished_erasures,
    (SELECT proven_at FROM proofs ORDER BY proven_at LIMIT 1) AS proofs,
    (SELECT sent_at FROM challenges_sent ORDER BY sent_at LIMIT 1) AS sent_challenges,
    (SELECT expires_at FROM mcp_sessions ORDER BY expires_at LIMIT 1) AS mcp_sessions,
    (SELECT expires_at FROM upstream_logins ORDER BY expires_at LIMIT 1) AS upstream_logins,
    (SELECT unused_since FROM unused_logins ORDER BY unused_since LIMIT 1) AS unused_logins,
    (SELECT expires_at FROM sign_ins ORDER BY expires_at LIMIT 1) AS sign_ins,
    (SELECT expires_at FROM portal_links ORDER BY expires_at LIMIT 1) AS portal_links,
    (SELECT at FROM audit_entries ORDER BY at LIMIT 1) AS audit_entries,
    (SELECT hour FROM insight_hours ORDER BY hour LIMIT 1) AS hours;

-- name: shorten_call_leases
WITH late AS MATERIALIZED (
    SELECT id FROM calls WHERE phase = 'running' AND lease_until > :ends_after ORDER BY lease_until LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE calls SET lease_until = :until FROM late WHERE calls.id = late.id;

-- name: shorten_delivery_leases
WITH late AS MATERIALIZED (
    SELECT id FROM deliveries WHERE state = 'leased' AND lease_until > :ends_after ORDER BY lease_until LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET lease_until = :until FROM late WHERE deliveries.id = late.id;
