-- Webhooks that match change notifications of upstreams, and demands of pollers and streams for them.

-- name: all
SELECT {change_subscription in webhooks}
FROM webhooks
WHERE instr(events, '"upstream.changed"') > 0 AND upstream IS NOT NULL AND state <> 'disabled' AND expires_at IS NULL
UNION
SELECT {change_subscription in webhooks}
FROM webhooks
WHERE instr(events, '"upstream.changed"') > 0 AND upstream IS NOT NULL AND state <> 'disabled' AND expires_at > :now
UNION
SELECT principal, json_extract(arguments, '$.upstream') AS upstream, json_extract(arguments, '$.uri') AS resource_uri
FROM event_demands
WHERE event_name = 'upstream.changed' AND polled_until > :now
ORDER BY principal, upstream, resource_uri;

-- Whether the principal watches this, an empty `resource_uri` being the lists. `topic` is that of the demand for the same.
-- name: has
SELECT 1 FROM webhooks INDEXED BY webhooks_watched
WHERE instr(events, '"upstream.changed"') > 0 AND upstream IS NOT NULL AND state <> 'disabled'
    AND upstream = :upstream AND coalesce(resource_uri, '') = :resource_uri AND principal = :principal
    AND (expires_at IS NULL OR expires_at > :now)
UNION ALL
SELECT 1 FROM event_demands
WHERE principal = :principal AND event_name = 'upstream.changed' AND topic = :topic AND polled_until > :now
LIMIT 1;

-- Who watches any of these. `subjects` has a row [upstream, resource_uri, topic] for each, as those of `has`.
-- name: of_subjects
SELECT webhooks.principal, webhooks.upstream, webhooks.resource_uri
FROM json_each(:subjects) AS wanted
CROSS JOIN webhooks INDEXED BY webhooks_watched
    ON instr(events, '"upstream.changed"') > 0 AND upstream IS NOT NULL AND state <> 'disabled'
    AND upstream = wanted.value ->> 0 AND coalesce(resource_uri, '') = wanted.value ->> 1
    AND (expires_at IS NULL OR expires_at > :now)
UNION
SELECT event_demands.principal, wanted.value ->> 0, nullif(wanted.value ->> 1, '')
FROM json_each(:subjects) AS wanted
CROSS JOIN event_demands
    ON event_name = 'upstream.changed' AND topic = wanted.value ->> 2 AND polled_until > :now;

-- Each watched resource of the upstream with one principal, or two, whose webhooks watch it, and the same for demands: it shows
-- whether more than one principal does. Steps from one resource to the next, and from one demand to the next, however many
-- principals watch each. The demands are those of all upstreams: their topics do not begin with it.
-- name: watched_resources
WITH RECURSIVE uris (uri) AS (
    SELECT ''
    UNION ALL
    SELECT (
        SELECT coalesce(resource_uri, '') FROM webhooks INDEXED BY webhooks_watched
        WHERE instr(events, '"upstream.changed"') > 0 AND upstream IS NOT NULL AND state <> 'disabled'
            AND upstream = :upstream AND coalesce(resource_uri, '') > uris.uri
        ORDER BY coalesce(resource_uri, '') LIMIT 1
    )
    FROM uris WHERE uri IS NOT NULL
),
topics (topic) AS (
    SELECT ''
    UNION ALL
    SELECT (
        SELECT topic FROM event_demands WHERE event_name = 'upstream.changed' AND topic > topics.topic ORDER BY topic LIMIT 1
    )
    FROM topics WHERE topic IS NOT NULL
)
SELECT principal, upstream, resource_uri FROM (
    SELECT (
        SELECT principal FROM webhooks INDEXED BY webhooks_watched
        WHERE instr(events, '"upstream.changed"') > 0 AND upstream IS NOT NULL AND state <> 'disabled'
            AND upstream = :upstream AND coalesce(resource_uri, '') = uris.uri AND (expires_at IS NULL OR expires_at > :now)
        ORDER BY principal LIMIT 1
    ) AS principal, :upstream AS upstream, uri AS resource_uri
    FROM uris WHERE uri <> ''
    UNION
    SELECT (
        SELECT principal FROM webhooks INDEXED BY webhooks_watched
        WHERE instr(events, '"upstream.changed"') > 0 AND upstream IS NOT NULL AND state <> 'disabled'
            AND upstream = :upstream AND coalesce(resource_uri, '') = uris.uri AND (expires_at IS NULL OR expires_at > :now)
        ORDER BY principal DESC LIMIT 1
    ), :upstream, uri
    FROM uris WHERE uri <> ''
    UNION
    SELECT demanding.principal, json_extract(arguments, '$.upstream'), json_extract(arguments, '$.uri')
    FROM (
        SELECT topic, (
            SELECT principal FROM event_demands
            WHERE event_name = 'upstream.changed' AND topic = topics.topic AND polled_until > :now
            ORDER BY polled_until, principal LIMIT 1
        ) AS principal
        FROM topics
        UNION ALL
        SELECT topic, (
            SELECT principal FROM event_demands
            WHERE event_name = 'upstream.changed' AND topic = topics.topic AND polled_until > :now
            ORDER BY polled_until, principal LIMIT 1 OFFSET 1
        )
        FROM topics
    ) AS demanding
    CROSS JOIN event_demands
        ON event_demands.principal = demanding.principal AND event_name = 'upstream.changed' AND event_demands.topic = demanding.topic
)
WHERE principal IS NOT NULL AND upstream = :upstream AND resource_uri IS NOT NULL;
