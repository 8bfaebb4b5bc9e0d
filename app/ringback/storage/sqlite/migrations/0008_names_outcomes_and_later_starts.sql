-- Calls that start later: the runner queues a scheduled call when its time has come.
ALTER TABLE calls ADD COLUMN not_before INTEGER;

CREATE INDEX calls_scheduled ON calls (not_before) WHERE phase = 'scheduled';

-- A webhook with a name is registered once, however often its owner asks for it. So is one with an idempotency key, as long as it
-- exists. `outcomes` is a JSON list of the outcomes of which the webhook receives call.finished; NULL is all of them.
ALTER TABLE webhooks ADD COLUMN name TEXT;
ALTER TABLE webhooks ADD COLUMN idempotency_key TEXT;
ALTER TABLE webhooks ADD COLUMN request_hash TEXT;
ALTER TABLE webhooks ADD COLUMN outcomes TEXT;

CREATE UNIQUE INDEX webhooks_by_name ON webhooks (principal, name) WHERE name IS NOT NULL;
CREATE UNIQUE INDEX webhooks_idempotency ON webhooks (principal, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- A webhook with outcomes has one row for each of them, and the bit 64 in `fields`. The rows of other webhooks stay as they are.
DROP VIEW webhook_match_keys;
CREATE VIEW webhook_match_keys AS
SELECT
    webhooks.principal,
    names.value AS event_name,
    (upstream IS NOT NULL)
        + 2 * (tool IS NOT NULL)
        + 4 * (call_id IS NOT NULL)
        + 8 * (client_session_id IS NOT NULL)
        + 16 * (match_correlation AND correlation_id IS NOT NULL)
        + 32 * (names.value = 'upstream.changed' AND resource_uri IS NOT NULL)
        + 64 * (names.value = 'call.finished' AND outcomes IS NOT NULL) AS fields,
    coalesce(upstream || char(31), '')
        || coalesce(tool || char(31), '')
        || coalesce(call_id || char(31), '')
        || coalesce(client_session_id || char(31), '')
        || coalesce(iif(match_correlation, correlation_id, NULL) || char(31), '')
        || coalesce(iif(names.value = 'upstream.changed', resource_uri, NULL) || char(31), '')
        || coalesce(accepted.value || char(31), '') AS match_key,
    coalesce(expires_at, 9223372036854775807) AS ends_at,
    webhooks.id AS webhook_id
FROM webhooks
CROSS JOIN json_each(webhooks.events) AS names
LEFT JOIN json_each(iif(names.value = 'call.finished', webhooks.outcomes, NULL)) AS accepted
WHERE state <> 'disabled' AND origin <> 'call';

DROP TRIGGER webhooks_match_changing;
CREATE TRIGGER webhooks_match_changing
BEFORE UPDATE OF events, outcomes, upstream, resource_uri, tool, call_id, client_session_id, correlation_id, match_correlation, state,
    expires_at
ON webhooks
WHEN OLD.origin <> 'call' AND (
    NEW.events IS NOT OLD.events OR NEW.outcomes IS NOT OLD.outcomes OR NEW.upstream IS NOT OLD.upstream
    OR NEW.resource_uri IS NOT OLD.resource_uri OR NEW.tool IS NOT OLD.tool OR NEW.call_id IS NOT OLD.call_id
    OR NEW.client_session_id IS NOT OLD.client_session_id OR NEW.correlation_id IS NOT OLD.correlation_id
    OR NEW.match_correlation IS NOT OLD.match_correlation OR NEW.state IS NOT OLD.state OR NEW.expires_at IS NOT OLD.expires_at
)
BEGIN
    DELETE FROM webhook_matches WHERE (principal, event_name, fields, match_key, ends_at, webhook_id) IN (
        SELECT * FROM webhook_match_keys WHERE webhook_id = OLD.id
    );
END;

DROP TRIGGER webhooks_match_changed;
CREATE TRIGGER webhooks_match_changed
AFTER UPDATE OF events, outcomes, upstream, resource_uri, tool, call_id, client_session_id, correlation_id, match_correlation, state,
    expires_at
ON webhooks
WHEN OLD.origin <> 'call' AND (
    NEW.events IS NOT OLD.events OR NEW.outcomes IS NOT OLD.outcomes OR NEW.upstream IS NOT OLD.upstream
    OR NEW.resource_uri IS NOT OLD.resource_uri OR NEW.tool IS NOT OLD.tool OR NEW.call_id IS NOT OLD.call_id
    OR NEW.client_session_id IS NOT OLD.client_session_id OR NEW.correlation_id IS NOT OLD.correlation_id
    OR NEW.match_correlation IS NOT OLD.match_correlation OR NEW.state IS NOT OLD.state OR NEW.expires_at IS NOT OLD.expires_at
)
BEGIN
    INSERT INTO webhook_matches SELECT * FROM webhook_match_keys WHERE webhook_id = NEW.id;
END;
