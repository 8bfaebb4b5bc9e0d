-- name: insert
INSERT INTO webhooks (
    id, principal, url, events, upstream, resource_uri, tool, call_id, client_session_id, correlation_id, match_correlation, secrets, retries,
    include_result, "when", ordered, rate_per_second, description, state, origin, created_at, updated_at, expires_at, last_delivery_at,
    last_error, failing_since, failures, openings, paused_until, missed_from
) VALUES (
    :id, :principal, :url, :events, :upstream, :resource_uri, :tool, :call_id, :client_session_id, :correlation_id, :match_correlation, :secrets,
    :retries, :include_result, :when, :ordered, :rate_per_second, :description, :state, :origin, :created_at, :updated_at, :expires_at,
    :last_delivery_at, :last_error, :failing_since, :failures, :openings, :paused_until, :missed_from
);

-- name: get
SELECT * FROM webhooks WHERE id = :id;

-- name: by_ids
SELECT webhooks.* FROM json_each(:ids) AS wanted CROSS JOIN webhooks ON webhooks.id = wanted.value;

-- name: page
SELECT * FROM webhooks
WHERE principal = :principal AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT :limit;

-- Looks into one index: a hundred thousand webhooks of other calls and sessions are never touched.
-- name: candidates
SELECT webhooks.* FROM json_each(:call_ids) AS wanted
CROSS JOIN webhooks ON principal = :principal AND call_id = wanted.value
WHERE state <> 'disabled'
UNION ALL
SELECT * FROM webhooks
WHERE principal = :principal AND call_id IS NULL AND client_session_id IS NULL AND state <> 'disabled'
UNION ALL
SELECT webhooks.* FROM json_each(:client_session_ids) AS wanted
CROSS JOIN webhooks ON principal = :principal AND call_id IS NULL AND client_session_id = wanted.value
WHERE state <> 'disabled';

-- name: update
UPDATE webhooks SET
    url = :url, events = :events, upstream = :upstream, resource_uri = :resource_uri, tool = :tool, call_id = :call_id,
    client_session_id = :client_session_id, correlation_id = :correlation_id, match_correlation = :match_correlation,
    secrets = coalesce(:secrets, secrets), retries = :retries, include_result = :include_result, "when" = :when, ordered = :ordered,
    rate_per_second = :rate_per_second, description = :description, state = :state, updated_at = :updated_at,
    expires_at = :expires_at, last_delivery_at = :last_delivery_at, last_error = :last_error, failing_since = :failing_since,
    failures = :failures, openings = :openings, paused_until = :paused_until, missed_from = :missed_from
WHERE id = :id;

-- name: delete
DELETE FROM webhooks WHERE id = :id;

-- name: cancel_open_deliveries
UPDATE deliveries SET state = 'cancelled', finished_at = :now, lease_token = NULL, lease_until = NULL
WHERE webhook_id = :id AND state IN ('held', 'pending', 'leased');

-- A row for every one that was visited, so that the last one tells where to go on.
-- name: expired
SELECT id, expires_at, EXISTS (
    SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state IN ('held', 'pending', 'leased')
) AS busy
FROM webhooks
WHERE expires_at <= :now AND (expires_at, id) > (:after_instant, :after_id)
ORDER BY expires_at, id LIMIT :limit;
