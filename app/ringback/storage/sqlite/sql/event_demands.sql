-- Which events of upstreams principals asked for. A webhook's demand is current as long as the webhook matches events: then it has
-- a row in webhook_matches, which ends with it.

-- name: get
SELECT {event_demand in event_demands} FROM event_demands
WHERE principal = :principal AND event_name = :event_name AND topic = :topic;

-- name: save
INSERT INTO event_demands {new event_demand}
ON CONFLICT (principal, event_name, topic) DO UPDATE SET
    polled_until = max(event_demands.polled_until, excluded.polled_until);

-- name: mark_gap
UPDATE event_demands SET gap_seq = max(gap_seq, :seq)
WHERE principal = :principal AND event_name = :event_name AND topic = :topic;

-- name: count_of_principal
SELECT count(*) AS demands FROM event_demands WHERE principal = :principal;

-- Without the demands for changes of upstreams (`change_subscriptions`).
-- name: current
SELECT {event_demand in event_demands} FROM event_demands
WHERE event_name <> 'upstream.changed' AND (polled_until > :now OR EXISTS (
    SELECT 1 FROM webhook_matches JOIN webhooks ON webhooks.id = webhook_matches.webhook_id
    WHERE webhook_matches.principal = event_demands.principal AND webhook_matches.event_name = event_demands.event_name
        AND webhook_matches.ends_at > :now AND coalesce(webhooks.topic, '') = event_demands.topic
))
ORDER BY principal, event_name, topic;

-- One of the current demands with each name and topic.
-- name: different
SELECT {event_demand in event_demands} FROM event_demands
WHERE event_name <> 'upstream.changed' AND (polled_until > :now OR EXISTS (
    SELECT 1 FROM webhook_matches JOIN webhooks ON webhooks.id = webhook_matches.webhook_id
    WHERE webhook_matches.principal = event_demands.principal AND webhook_matches.event_name = event_demands.event_name
        AND webhook_matches.ends_at > :now AND coalesce(webhooks.topic, '') = event_demands.topic
))
GROUP BY event_name, topic
ORDER BY event_name, topic;

-- name: is_current
SELECT 1 FROM event_demands
WHERE principal = :principal AND event_name = :event_name AND topic = :topic AND (polled_until > :now OR EXISTS (
    SELECT 1 FROM webhook_matches JOIN webhooks ON webhooks.id = webhook_matches.webhook_id
    WHERE webhook_matches.principal = event_demands.principal AND webhook_matches.event_name = event_demands.event_name
        AND webhook_matches.ends_at > :now AND coalesce(webhooks.topic, '') = event_demands.topic
));

-- The names of an upstream's types begin with its name and a slash. Steps from one name and topic to the next, however many
-- principals demand each, or have demanded it until a moment ago. A webhook without a topic has other bits than 128 in `fields`.
-- name: of_upstream
WITH RECURSIVE names (event_name) AS (
    SELECT min(event_name) FROM event_demands WHERE event_name > :first_name AND event_name < :end_name
    UNION ALL
    SELECT (SELECT min(event_name) FROM event_demands WHERE event_name > names.event_name AND event_name < :end_name)
    FROM names WHERE names.event_name IS NOT NULL
),
topics (event_name, topic) AS (
    SELECT event_name, (SELECT min(topic) FROM event_demands WHERE event_name = names.event_name)
    FROM names WHERE names.event_name IS NOT NULL
    UNION ALL
    SELECT event_name, (
        SELECT min(topic) FROM event_demands WHERE event_name = topics.event_name AND topic > topics.topic
    )
    FROM topics WHERE topics.topic IS NOT NULL
)
SELECT topics.event_name, topics.topic, EXISTS (
    SELECT 1 FROM event_demands
    WHERE principal = :principal AND event_name = topics.event_name AND topic = topics.topic AND polled_until > :now
) OR EXISTS (
    SELECT 1 FROM webhook_matches
    WHERE principal = :principal AND event_name = topics.event_name AND topics.topic = '' AND fields < 128 AND ends_at > :now
) OR EXISTS (
    SELECT 1 FROM webhook_matches
    WHERE principal = :principal AND event_name = topics.event_name AND fields = 128 AND match_key = topics.topic || char(31)
        AND ends_at > :now
) AS is_own
FROM topics
WHERE topics.topic IS NOT NULL AND (EXISTS (
    SELECT 1 FROM event_demands
    WHERE event_name = topics.event_name AND topic = topics.topic AND polled_until > :now
) OR EXISTS (
    SELECT 1 FROM webhook_matches INDEXED BY webhook_matches_of_upstreams
    WHERE instr(event_name, '/') > 0 AND event_name = topics.event_name AND topics.topic = '' AND fields < 128
        AND ends_at > :now
) OR EXISTS (
    SELECT 1 FROM webhook_matches INDEXED BY webhook_matches_of_upstreams
    WHERE instr(event_name, '/') > 0 AND event_name = topics.event_name AND fields = 128
        AND match_key = topics.topic || char(31) AND ends_at > :now
));

-- name: principals
SELECT principal FROM event_demands WHERE event_name = :event_name AND topic = :topic AND polled_until > :now
UNION
SELECT principal FROM webhook_matches INDEXED BY webhook_matches_of_upstreams
WHERE instr(event_name, '/') > 0 AND event_name = :event_name AND :topic = '' AND fields < 128 AND ends_at > :now
UNION
SELECT principal FROM webhook_matches INDEXED BY webhook_matches_of_upstreams
WHERE instr(event_name, '/') > 0 AND event_name = :event_name AND fields = 128 AND match_key = :topic || char(31)
    AND ends_at > :now
ORDER BY principal;

-- From the row after these three values on.
-- name: ended
SELECT principal, event_name, topic FROM event_demands
WHERE (principal, event_name, topic) > (:after_principal, :after_event_name, :after_topic) AND polled_until <= :now AND NOT EXISTS (
    SELECT 1 FROM webhook_matches JOIN webhooks ON webhooks.id = webhook_matches.webhook_id
    WHERE webhook_matches.principal = event_demands.principal AND webhook_matches.event_name = event_demands.event_name
        AND webhook_matches.ends_at > :now AND coalesce(webhooks.topic, '') = event_demands.topic
)
ORDER BY principal, event_name, topic LIMIT :limit;

-- name: remove_ended
DELETE FROM event_demands
WHERE principal = :principal AND event_name = :event_name AND topic = :topic AND polled_until <= :now AND NOT EXISTS (
    SELECT 1 FROM webhook_matches JOIN webhooks ON webhooks.id = webhook_matches.webhook_id
    WHERE webhook_matches.principal = event_demands.principal AND webhook_matches.event_name = event_demands.event_name
        AND webhook_matches.ends_at > :now AND coalesce(webhooks.topic, '') = event_demands.topic
);

-- name: remove_unwanted_followings
DELETE FROM event_followings WHERE NOT EXISTS (
    SELECT 1 FROM event_demands
    WHERE event_demands.event_name = event_followings.event_name AND event_demands.topic = event_followings.topic
);
