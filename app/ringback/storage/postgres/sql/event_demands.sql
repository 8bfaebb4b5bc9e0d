-- Which events of upstreams principals asked for. A webhook's demand is current as long as the webhook matches events: then it has
-- a row in webhook_matches, which ends with it.

-- name: get
SELECT {event_demand in event_demands} FROM event_demands
WHERE principal = :principal AND event_name = :event_name AND topic = :topic;

-- name: save
INSERT INTO event_demands {new event_demand}
ON CONFLICT (principal, event_name, topic) DO UPDATE SET
    polled_until = greatest(event_demands.polled_until, excluded.polled_until);

-- name: mark_gap
UPDATE event_demands SET gap_seq = greatest(gap_seq, :seq)
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
SELECT DISTINCT ON (event_name, topic) {event_demand in event_demands} FROM event_demands
WHERE event_name <> 'upstream.changed' AND (polled_until > :now OR EXISTS (
    SELECT 1 FROM webhook_matches JOIN webhooks ON webhooks.id = webhook_matches.webhook_id
    WHERE webhook_matches.principal = event_demands.principal AND webhook_matches.event_name = event_demands.event_name
        AND webhook_matches.ends_at > :now AND coalesce(webhooks.topic, '') = event_demands.topic
))
ORDER BY event_name, topic, principal;

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
WITH RECURSIVE topics (event_name, topic) AS (
    SELECT :first_name::text COLLATE "C", ''::text COLLATE "C"
    UNION ALL
    SELECT following.event_name, following.topic
    FROM topics CROSS JOIN LATERAL (
        SELECT event_name, topic FROM event_demands
        WHERE (event_name, topic) > (topics.event_name, topics.topic) AND event_name < :end_name
        ORDER BY event_name, topic LIMIT 1
    ) AS following
)
SELECT topics.event_name, topics.topic, coalesce((
    SELECT true FROM event_demands
    WHERE principal = :principal AND event_name = topics.event_name AND topic = topics.topic AND polled_until > :now LIMIT 1
), (
    SELECT true FROM webhook_matches
    WHERE principal = :principal AND event_name = topics.event_name AND topics.topic = '' AND fields < 128 AND ends_at > :now
    LIMIT 1
), (
    SELECT true FROM webhook_matches
    WHERE principal = :principal AND event_name = topics.event_name AND fields = 128
        AND match_key = hashtextextended((topics.topic || E'\x1f') COLLATE "C", 0) AND ends_at > :now
    LIMIT 1
), false) AS is_own
FROM topics
WHERE coalesce((
    SELECT true FROM event_demands
    WHERE event_name = topics.event_name AND topic = topics.topic AND polled_until > :now LIMIT 1
), (
    SELECT true FROM webhook_matches
    WHERE position('/' IN event_name) > 0 AND event_name = topics.event_name AND topics.topic = '' AND fields < 128
        AND ends_at > :now
    LIMIT 1
), (
    SELECT true FROM webhook_matches
    WHERE position('/' IN event_name) > 0 AND event_name = topics.event_name AND fields = 128
        AND match_key = hashtextextended((topics.topic || E'\x1f') COLLATE "C", 0) AND ends_at > :now
    LIMIT 1
));

-- name: principals
SELECT principal FROM event_demands WHERE event_name = :event_name AND topic = :topic AND polled_until > :now
UNION
SELECT principal FROM webhook_matches
WHERE position('/' IN event_name) > 0 AND event_name = :event_name AND :topic = '' AND fields < 128 AND ends_at > :now
UNION
SELECT principal FROM webhook_matches
WHERE position('/' IN event_name) > 0 AND event_name = :event_name AND fields = 128
    AND match_key = hashtextextended((:topic::text || E'\x1f') COLLATE "C", 0) AND ends_at > :now
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
