-- name: insert
INSERT INTO webhooks {new webhook};

-- name: get
SELECT {webhook in webhooks} FROM webhooks WHERE id = :id
{lock webhooks};

-- name: by_ids
SELECT {webhook in webhooks} FROM webhooks WHERE id = ANY(:ids::text[]) ORDER BY id
{lock webhooks};

-- name: page
SELECT {webhook in webhooks} FROM webhooks
WHERE principal = :principal AND id < coalesce(:before::text, '~')
ORDER BY id DESC LIMIT :limit;

-- Of all principals.
-- name: page_of_all
SELECT {webhook in webhooks} FROM webhooks WHERE id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT :limit;

-- Failing webhooks are few, and have an index: those whose last attempt or challenge failed, and that are not disabled.
-- name: page_of_failing
SELECT {webhook in webhooks} FROM webhooks
WHERE principal = :principal AND last_error IS NOT NULL AND state <> 'disabled' AND id < coalesce(:before::text, '~')
ORDER BY id DESC LIMIT :limit;

-- name: page_of_failing_of_all
SELECT {webhook in webhooks} FROM webhooks
WHERE last_error IS NOT NULL AND state <> 'disabled' AND id < coalesce(:before::text, '~')
ORDER BY id DESC LIMIT :limit;

-- States have no index of their own: one page visits `scan` webhooks at most. `end_of_…` returns where that scan ended.
-- name: page_of_state
SELECT {webhook in webhooks}
FROM (
    SELECT id FROM (
        SELECT id, state, last_error FROM webhooks WHERE principal = :principal AND id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE state = :state AND (:health::text IS NULL OR (last_error IS NOT NULL AND state <> 'disabled'))
    ORDER BY id DESC LIMIT :limit
) AS found
JOIN webhooks ON webhooks.id = found.id
ORDER BY webhooks.id DESC;

-- name: end_of_page_of_state
SELECT id FROM webhooks WHERE principal = :principal AND id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT 1 OFFSET :scan::bigint - 1;

-- name: page_of_state_of_all
SELECT {webhook in webhooks}
FROM (
    SELECT id FROM (
        SELECT id, state, last_error FROM webhooks WHERE id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE state = :state AND (:health::text IS NULL OR (last_error IS NOT NULL AND state <> 'disabled'))
    ORDER BY id DESC LIMIT :limit
) AS found
JOIN webhooks ON webhooks.id = found.id
ORDER BY webhooks.id DESC;

-- name: end_of_page_of_state_of_all
SELECT id FROM webhooks WHERE id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT 1 OFFSET :scan::bigint - 1;

-- The sets of filters that the principal's webhooks for these events use. Steps from one to the next of the 256 possible sets.
-- name: fields_in_use
WITH RECURSIVE sets (event_name, fields) AS (
    SELECT names.name, (
        SELECT fields FROM webhook_matches
        WHERE principal = :principal AND event_name = names.name ORDER BY fields LIMIT 1
    )
    FROM unnest(:event_names::text[]) AS names (name)
    UNION ALL
    SELECT event_name, (
        SELECT fields FROM webhook_matches
        WHERE principal = :principal AND event_name = sets.event_name AND fields > sets.fields ORDER BY fields LIMIT 1
    )
    FROM sets WHERE sets.fields IS NOT NULL
)
SELECT event_name, fields FROM sets WHERE fields IS NOT NULL;

-- Each of `keys` is an event name, a set of filters and their values; `place` is its index among the keys. The
-- URI of a resource comes from an upstream, and PostgreSQL refuses U+0000.
-- name: matching
SELECT {webhook in webhooks}, wanted.place - 1 AS place
FROM json_array_elements(replace(:keys, '\u0000', '\ufffd')::json) WITH ORDINALITY AS wanted (key, place)
JOIN webhook_matches ON webhook_matches.principal = :principal AND event_name = wanted.key ->> 0
    AND fields = (wanted.key ->> 1)::bigint AND match_key = hashtextextended((wanted.key ->> 2) COLLATE "C", 0)
    AND ends_at > :now
JOIN webhooks ON webhooks.id = webhook_matches.webhook_id
WHERE :catching_up::boolean
    OR (SELECT true FROM catch_ups WHERE catch_ups.webhook_id = webhook_matches.webhook_id) IS NULL;

-- The webhooks that belong to these calls, then those that the calls name. (The empty text keeps PostgreSQL from reading all webhooks
-- of the principal while it believes that there are none. LIMIT keeps it from beginning with all webhooks: an id has one.)
-- name: of_calls
SELECT {webhook in webhooks}, call_id AS of_call FROM webhooks
WHERE principal || '' = :principal AND call_id = ANY(:call_ids::text[]) AND origin = 'call' AND state <> 'disabled'
UNION ALL
SELECT {webhook in webhooks}, call_webhooks.call_id FROM call_webhooks
CROSS JOIN LATERAL (SELECT * FROM webhooks WHERE id = call_webhooks.webhook_id LIMIT 1) AS webhooks
WHERE call_webhooks.call_id = ANY(:call_ids::text[]) AND state <> 'disabled'
    AND (
        :catching_up::boolean
        OR (SELECT true FROM catch_ups WHERE catch_ups.webhook_id = call_webhooks.webhook_id) IS NULL
    );

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
UPDATE webhooks SET secrets = coalesce(:secrets::bytea, secrets), updated_at = :updated_at WHERE id = :id;

-- name: update_state
UPDATE webhooks SET state = :state, paused_at = :paused_at, updated_at = greatest(updated_at, :updated_at) WHERE id = :id;

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

-- As `cancel_open` of webhook_deliveries, which has cancelled most.
-- name: cancel_open_deliveries
WITH waiting AS MATERIALIZED (
    SELECT id FROM deliveries WHERE webhook_id = :id AND state IN ('held', 'pending', 'leased')
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET
    state = 'cancelled', finished_at = :now, lease_owner = NULL, lease_token = NULL, lease_until = NULL
FROM waiting WHERE deliveries.id = waiting.id;

-- Every visited webhook is a row, so that the last row is where the next scan begins. (Here and above a
-- subquery returns true instead of an EXISTS: for that, PostgreSQL may read all rows of the other table once.) The
-- locks make sure that what is deleted has still expired: a webhook that another unit changes now is skipped, and
-- PostgreSQL looks again at one that was extended before its lock.
-- name: expired
SELECT id, principal, expires_at, coalesce((
    SELECT true FROM deliveries WHERE webhook_id = webhooks.id AND state IN ('held', 'pending', 'leased') LIMIT 1
), false) AS busy
FROM webhooks
WHERE expires_at <= :now AND (expires_at, id) > (:after_instant, :after_id)
ORDER BY expires_at, id LIMIT :limit
{lock webhooks skip locked};
