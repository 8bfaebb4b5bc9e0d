-- oldest code: 13
-- Events of upstreams that offer MCP Events, and events that clients publish. A node of an older version reads no event and no
-- webhook with such a name: publish events, and subscribe to those of upstreams, once all nodes have this version.
-- `occurred_at` is set for external events only. `topic` is the digest of the arguments for which an upstream sent the event.
ALTER TABLE events ADD COLUMN occurred_at INTEGER;
ALTER TABLE events ADD COLUMN topic TEXT;

-- An external event is in a log once for each topic, however often its source sends it.
CREATE UNIQUE INDEX events_external ON events (principal, id, coalesce(topic, '')) WHERE occurred_at IS NOT NULL;

-- The topic that a subscription asks an upstream for, and the name of the event in its callbacks, if it is not the log's.
ALTER TABLE webhooks ADD COLUMN topic TEXT;
ALTER TABLE webhooks ADD COLUMN shown_event_name TEXT;

-- A webhook with a topic has the bit 128 in `fields`. The rows of other webhooks stay as they are.
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
        + 64 * (names.value = 'call.finished' AND outcomes IS NOT NULL)
        + 128 * (topic IS NOT NULL) AS fields,
    coalesce(upstream || char(31), '')
        || coalesce(tool || char(31), '')
        || coalesce(call_id || char(31), '')
        || coalesce(client_session_id || char(31), '')
        || coalesce(iif(match_correlation, correlation_id, NULL) || char(31), '')
        || coalesce(iif(names.value = 'upstream.changed', resource_uri, NULL) || char(31), '')
        || coalesce(accepted.value || char(31), '')
        || coalesce(topic || char(31), '') AS match_key,
    coalesce(expires_at, 9223372036854775807) AS ends_at,
    webhooks.id AS webhook_id
FROM webhooks
CROSS JOIN json_each(webhooks.events) AS names
LEFT JOIN json_each(iif(names.value = 'call.finished', webhooks.outcomes, NULL)) AS accepted
WHERE state <> 'disabled' AND origin <> 'call';

-- The types of events that a principal publishes.
CREATE TABLE event_types (
    principal      TEXT NOT NULL,
    name           TEXT NOT NULL,
    description    TEXT NOT NULL,
    payload_schema TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    PRIMARY KEY (principal, name)
) STRICT, WITHOUT ROWID;

-- Which events of upstreams a principal asked for: those of a type, for arguments. `polled_until` is the end of a poller's demand;
-- a webhook's demand is the webhook itself. `gap_seq` is the place in the log at which the upstream had lost events; 0 for none.
CREATE TABLE event_demands (
    principal    TEXT NOT NULL,
    event_name   TEXT NOT NULL,
    topic        TEXT NOT NULL,
    arguments    TEXT NOT NULL,
    polled_until INTEGER NOT NULL,
    gap_seq      INTEGER NOT NULL,
    PRIMARY KEY (principal, event_name, topic)
) STRICT, WITHOUT ROWID;

CREATE INDEX event_demands_of_event ON event_demands (event_name, topic, principal);

-- How far the events of a type were read at their upstream, for arguments. `cursor` is the upstream's.
CREATE TABLE event_followings (
    event_name TEXT NOT NULL,
    topic      TEXT NOT NULL,
    cursor     TEXT,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (event_name, topic)
) STRICT, WITHOUT ROWID;
