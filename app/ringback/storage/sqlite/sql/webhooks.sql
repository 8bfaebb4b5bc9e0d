-- name: insert
INSERT INTO webhooks {new webhook};

-- name: get
SELECT {webhook in webhooks} FROM webhooks WHERE id = :id;

-- name: by_ids
SELECT {webhook in webhooks} FROM json_each(:ids) AS wanted CROSS JOIN webhooks ON webhooks.id = wanted.value;

-- name: page
SELECT {webhook in webhooks} FROM webhooks
WHERE principal = :principal AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT :limit;

-- Of all principals.
-- name: page_of_all
SELECT {webhook in webhooks} FROM webhooks WHERE id < coalesce(:before, '~') ORDER BY id DESC LIMIT :limit;

-- Failing webhooks are few, and have an index: those whose last attempt or challenge failed, and that are not disabled.
-- name: page_of_failing
SELECT {webhook in webhooks} FROM webhooks
WHERE principal = :principal AND last_error IS NOT NULL AND state <> 'disabled' AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT :limit;

-- name: page_of_failing_of_all
SELECT {webhook in webhooks} FROM webhooks INDEXED BY webhooks_failing
WHERE last_error IS NOT NULL AND state <> 'disabled' AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT :limit;

-- States have no index of their own: one page visits `scan` webhooks at most. `end_of_…` returns where that scan ended.
-- name: page_of_state
SELECT {webhook in webhooks}
FROM (
    SELECT id FROM (
        SELECT id, state, last_error FROM webhooks WHERE principal = :principal AND id < coalesce(:before, '~') ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE state = :state AND (:health IS NULL OR (last_error IS NOT NULL AND state <> 'disabled'))
    LIMIT :limit
) AS found
CROSS JOIN webhooks ON webhooks.id = found.id
ORDER BY webhooks.id DESC;

-- name: end_of_page_of_state
SELECT id FROM webhooks WHERE principal = :principal AND id < coalesce(:before, '~') ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: page_of_state_of_all
SELECT {webhook in webhooks}
FROM (
    SELECT id FROM (
        SELECT id, state, last_error FROM webhooks WHERE id < coalesce(:before, '~') ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE state = :state AND (:health IS NULL OR (last_error IS NOT NULL AND state <> 'disabled'))
    LIMIT :limit
) AS found
CROSS JOIN webhooks ON webhooks.id = found.id
ORDER BY webhooks.id DESC;

-- name: end_of_page_of_state_of_all
SELECT id FROM webhooks WHERE id < coalesce(:before, '~') ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- The sets of filters that the principal's webhooks for these events use. Steps from one to the next of the 256 possible sets.
-- name: fields_in_use
WITH RECURSIVE sets (event_name, fields) AS (
    SELECT value, (SELECT min(fields) FROM webhook_matches WHERE principal = :principal AND event_name = value)
    FROM json_each(:event_names)
    UNION ALL
    SELECT event_name, (
        SELECT min(fields) FROM webhook_matches
        WHERE principal = :principal AND event_name = sets.event_name AND fields > sets.fields
    )
    FROM sets WHERE sets.fields IS NOT NULL
)
SELECT event_name, fields FROM sets WHERE fields IS NOT NULL;

-- Each of `keys` is an event name, a set of filters and their values; `place` is its index among the keys.
-- name: matching
SELECT {webhook in webhooks}, wanted.key AS place
FROM json_each(:keys) AS wanted
CROSS JOIN webhook_matches ON webhook_matches.principal = :principal AND event_name = wanted.value ->> 0
    AND fields = wanted.value ->> 1 AND match_key = wanted.value ->> 2 AND ends_at > :now
CROSS JOIN webhooks ON webhooks.id = webhook_matches.webhook_id
WHERE :catching_up OR NOT EXISTS (SELECT 1 FROM catch_ups WHERE catch_ups.webhook_id = webhook_matches.webhook_id);

-- The webhooks that belong to these calls, then those that the calls name.
-- name: of_calls
SELECT {webhook in webhooks}, wanted.value AS of_call FROM json_each(:call_ids) AS wanted
CROSS JOIN webhooks ON principal = :principal AND call_id = wanted.value AND origin = 'call'
WHERE state <> 'disabled'
UNION ALL
SELECT {webhook in webhooks}, wanted.value FROM json_each(:call_ids) AS wanted
CROSS JOIN call_webhooks ON call_webhooks.call_id = wanted.value
CROSS JOIN webhooks ON webhooks.id = call_webhooks.webhook_id
WHERE state <> 'disabled'
    AND (:catching_up OR NOT EXISTS (SELECT 1 FROM catch_ups WHERE catch_ups.webhook_id = call_webhooks.webhook_id));

-- One statement for each part of a webhook: the owner's settings, its health by the receiver's answers, and so on.

-- name: update_settings
UPDATE webhooks SET
    url = :url, events = :events, outcomes = :outcomes, upstream = :upstream, resource_uri = :resource_uri, tool = :tool, call_id = :call_id,
    client_session_id = :client_session_id, correlation_id = :correlation_id, match_correlation = :match_correlation,
    retries = :retries, retry_steps = :retry_steps, include_result = :include_result, "when" = :when, ordered = :ordered,
    rate_per_second = :rate_per_second, description = :description, message_ids = :message_ids,
    shown_event_name = :shown_event_name, created_at = :created_at, updated_at = :updated_at, expires_at = :expires_at
WHERE id = :id;

-- name: update_secrets
UPDATE webhooks SET secrets = coalesce(:secrets, secrets), updated_at = :updated_at WHERE id = :id;

-- name: update_state
UPDATE webhooks SET state = :state, paused_at = :paused_at, updated_at = max(updated_at, :updated_at) WHERE id = :id;

-- name: update_health
UPDATE webhooks SET
    last_delivery_at = :last_delivery_at, last_error = :last_error, last_error_detail = :last_error_detail,
    failing_since = :failing_since, alerted_percent = :alerted_percent, failures = :failures, openings = :openings, paused_until = :paused_until,
    counted_since = :counted_since, counted_attempts = :counted_attempts, counted_failures = :counted_failures
WHERE id = :id;

-- name: update_missed
UPDATE webhooks SET missed_from = :missed_from WHERE id = :id;

-- name: delete
DELETE FROM webhooks WHERE id = :id;

-- name: cancel_open_deliveries
UPDATE deliveries INDEXED BY deliveries_open SET
    state = 'cancelled', finished_at = :now, lease_owner = NULL, lease_token = NULL, lease_until = NULL
WHERE webhook_id = :id AND state IN ('held', 'pending', 'leased');

-- Every visited webhook is a row, so that the last row is where the next scan begins.
-- name: expired
SELECT id, principal, expires_at, EXISTS (
    SELECT 1 FROM deliveries INDEXED BY deliveries_open
    WHERE webhook_id = webhooks.id AND state IN ('held', 'pending', 'leased')
) AS busy
FROM webhooks
WHERE expires_at <= :now AND (expires_at, id) > (:after_instant, :after_id)
ORDER BY expires_at, id LIMIT :limit;
