-- oldest code: 4
-- Events of upstreams that offer MCP Events, and events that clients publish. A node of an older version reads no event and no
-- webhook with such a name: publish events, and subscribe to those of upstreams, once all nodes have this version.
-- `occurred_at` is set for external events only. `topic` is the digest of the arguments for which an upstream sent the event.
ALTER TABLE events ADD COLUMN occurred_at bigint, ADD COLUMN topic text COLLATE "C";

-- An external event is in a log once for each topic, however often its source sends it.
CREATE UNIQUE INDEX events_external ON events (principal, id, coalesce(topic, '')) WHERE occurred_at IS NOT NULL;

-- The topic that a subscription asks an upstream for, and the name of the event in its callbacks, if it is not the log's.
ALTER TABLE webhooks ADD COLUMN topic text COLLATE "C", ADD COLUMN shown_event_name text COLLATE "C";

-- A webhook with a topic has the bit 128 in `fields`. The rows of other webhooks stay as they are.
CREATE OR REPLACE VIEW webhook_match_keys AS
SELECT
    webhooks.principal,
    names.name AS event_name,
    (upstream IS NOT NULL)::int
        + 2 * (tool IS NOT NULL)::int
        + 4 * (call_id IS NOT NULL)::int
        + 8 * (client_session_id IS NOT NULL)::int
        + 16 * (match_correlation AND correlation_id IS NOT NULL)::int
        + 32 * (names.name = 'upstream.changed' AND resource_uri IS NOT NULL)::int
        + 64 * (names.name = 'call.finished' AND outcomes IS NOT NULL)::int
        + 128 * (topic IS NOT NULL)::int AS fields,
    hashtextextended((
        coalesce(upstream || E'\x1f', '')
        || coalesce(tool || E'\x1f', '')
        || coalesce(call_id || E'\x1f', '')
        || coalesce(client_session_id || E'\x1f', '')
        || coalesce(CASE WHEN match_correlation THEN correlation_id END || E'\x1f', '')
        || coalesce(CASE WHEN names.name = 'upstream.changed' THEN resource_uri END || E'\x1f', '')
        || coalesce(accepted.outcome || E'\x1f', '')
        || coalesce(topic || E'\x1f', '')
    ) COLLATE "C", 0) AS match_key,
    coalesce(expires_at, 9223372036854775807) AS ends_at,
    webhooks.id AS webhook_id
FROM webhooks
CROSS JOIN LATERAL json_array_elements_text(webhooks.events::json) AS names (name)
LEFT JOIN LATERAL json_array_elements_text(
    CASE WHEN names.name = 'call.finished' THEN webhooks.outcomes END::json
) AS accepted (outcome) ON true
WHERE state <> 'disabled' AND origin <> 'call';

-- The types of events that a principal publishes.
CREATE TABLE event_types (
    principal      text COLLATE "C" NOT NULL,
    name           text COLLATE "C" NOT NULL,
    description    text COLLATE "C" NOT NULL,
    payload_schema text COLLATE "C" NOT NULL,
    created_at     bigint NOT NULL,
    updated_at     bigint NOT NULL,
    PRIMARY KEY (principal, name)
);

-- Which events of upstreams a principal asked for: those of a type, for arguments. `polled_until` is the end of a poller's demand;
-- a webhook's demand is the webhook itself. `gap_seq` is the place in the log at which the upstream had lost events; 0 for none.
CREATE TABLE event_demands (
    principal    text COLLATE "C" NOT NULL,
    event_name   text COLLATE "C" NOT NULL,
    topic        text COLLATE "C" NOT NULL,
    arguments    text COLLATE "C" NOT NULL,
    polled_until bigint NOT NULL,
    gap_seq      bigint NOT NULL,
    PRIMARY KEY (principal, event_name, topic)
);

CREATE INDEX event_demands_of_event ON event_demands (event_name, topic, principal);

-- How far the events of a type were read at their upstream, for arguments. `cursor` is the upstream's.
CREATE TABLE event_followings (
    event_name text COLLATE "C" NOT NULL,
    topic      text COLLATE "C" NOT NULL,
    cursor     text COLLATE "C",
    updated_at bigint NOT NULL,
    PRIMARY KEY (event_name, topic)
);
