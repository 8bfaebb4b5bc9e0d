-- Which webhooks hear an event is answered by one index, whatever the webhooks filter by.

-- One row for each event name that a registered webhook asks for. (The webhook that comes with a call is found by its call: it
-- is one for each call, and rows for it would cost every start.) `fields` says which of its filters are set: upstream 1, tool 2,
-- call_id 4, client_session_id 8, correlation_id (if it is to match) 16, resource_uri (of upstream.changed only) 32.
-- `match_key` joins the values of these filters. `ends_at` is the webhook's expiry, or the largest integer.
CREATE TABLE webhook_matches (
    principal  TEXT NOT NULL,
    event_name TEXT NOT NULL,
    fields     INTEGER NOT NULL,
    match_key  TEXT NOT NULL,
    ends_at    INTEGER NOT NULL,
    webhook_id TEXT NOT NULL,
    PRIMARY KEY (principal, event_name, fields, match_key, ends_at, webhook_id)
) STRICT, WITHOUT ROWID;

-- The one place that says which rows a webhook has. A disabled webhook has none.
CREATE VIEW webhook_match_keys AS
SELECT
    webhooks.principal,
    names.value AS event_name,
    (upstream IS NOT NULL)
        + 2 * (tool IS NOT NULL)
        + 4 * (call_id IS NOT NULL)
        + 8 * (client_session_id IS NOT NULL)
        + 16 * (match_correlation AND correlation_id IS NOT NULL)
        + 32 * (names.value = 'upstream.changed' AND resource_uri IS NOT NULL) AS fields,
    coalesce(upstream || char(31), '')
        || coalesce(tool || char(31), '')
        || coalesce(call_id || char(31), '')
        || coalesce(client_session_id || char(31), '')
        || coalesce(iif(match_correlation, correlation_id, NULL) || char(31), '')
        || coalesce(iif(names.value = 'upstream.changed', resource_uri, NULL) || char(31), '') AS match_key,
    coalesce(expires_at, 9223372036854775807) AS ends_at,
    webhooks.id AS webhook_id
FROM webhooks CROSS JOIN json_each(webhooks.events) AS names
WHERE state <> 'disabled' AND origin <> 'call';

CREATE TRIGGER webhooks_match_new AFTER INSERT ON webhooks WHEN NEW.origin <> 'call'
BEGIN
    INSERT INTO webhook_matches SELECT * FROM webhook_match_keys WHERE webhook_id = NEW.id;
END;

CREATE TRIGGER webhooks_match_changing
BEFORE UPDATE OF events, upstream, resource_uri, tool, call_id, client_session_id, correlation_id, match_correlation, state, expires_at
ON webhooks
WHEN OLD.origin <> 'call' AND (
    NEW.events IS NOT OLD.events OR NEW.upstream IS NOT OLD.upstream OR NEW.resource_uri IS NOT OLD.resource_uri
    OR NEW.tool IS NOT OLD.tool OR NEW.call_id IS NOT OLD.call_id OR NEW.client_session_id IS NOT OLD.client_session_id
    OR NEW.correlation_id IS NOT OLD.correlation_id OR NEW.match_correlation IS NOT OLD.match_correlation
    OR NEW.state IS NOT OLD.state OR NEW.expires_at IS NOT OLD.expires_at
)
BEGIN
    DELETE FROM webhook_matches WHERE (principal, event_name, fields, match_key, ends_at, webhook_id) IN (
        SELECT * FROM webhook_match_keys WHERE webhook_id = OLD.id
    );
END;

CREATE TRIGGER webhooks_match_changed
AFTER UPDATE OF events, upstream, resource_uri, tool, call_id, client_session_id, correlation_id, match_correlation, state, expires_at
ON webhooks
WHEN OLD.origin <> 'call' AND (
    NEW.events IS NOT OLD.events OR NEW.upstream IS NOT OLD.upstream OR NEW.resource_uri IS NOT OLD.resource_uri
    OR NEW.tool IS NOT OLD.tool OR NEW.call_id IS NOT OLD.call_id OR NEW.client_session_id IS NOT OLD.client_session_id
    OR NEW.correlation_id IS NOT OLD.correlation_id OR NEW.match_correlation IS NOT OLD.match_correlation
    OR NEW.state IS NOT OLD.state OR NEW.expires_at IS NOT OLD.expires_at
)
BEGIN
    INSERT INTO webhook_matches SELECT * FROM webhook_match_keys WHERE webhook_id = NEW.id;
END;

CREATE TRIGGER webhooks_match_gone BEFORE DELETE ON webhooks WHEN OLD.origin <> 'call'
BEGIN
    DELETE FROM webhook_matches WHERE (principal, event_name, fields, match_key, ends_at, webhook_id) IN (
        SELECT * FROM webhook_match_keys WHERE webhook_id = OLD.id
    );
END;

INSERT INTO webhook_matches SELECT * FROM webhook_match_keys;

DROP INDEX webhooks_hearing;
CREATE INDEX webhooks_of_call ON webhooks (principal, call_id) WHERE origin = 'call';

-- Webhooks that hear what the log holds already, in steps. Until one has reached the head of the log, all that it hears comes
-- this way, so that nothing overtakes what is older. `seq` is the last place that it has heard; `delivered` counts deliveries.
CREATE TABLE catch_ups (
    webhook_id TEXT PRIMARY KEY REFERENCES webhooks (id) ON DELETE CASCADE,
    principal  TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    delivered  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX catch_ups_of_principal ON catch_ups (principal, webhook_id);

CREATE TRIGGER webhooks_disabled AFTER UPDATE OF state ON webhooks WHEN NEW.state = 'disabled'
BEGIN
    DELETE FROM catch_ups WHERE webhook_id = NEW.id;
END;
