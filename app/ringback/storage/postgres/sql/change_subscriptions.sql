-- Webhooks that match change notifications of upstreams, and demands of pollers and streams for them. A demand whose URI has U+0000,
-- which jsonb refuses, is left out: one would fail the statement for all principals. So is a webhook of earlier code with a URI of
-- more bytes than an index may hold.

-- name: all
SELECT {change_subscription in webhooks}
FROM webhooks
WHERE position('"upstream.changed"' IN events) > 0 AND upstream IS NOT NULL AND state <> 'disabled' AND expires_at IS NULL
UNION
SELECT {change_subscription in webhooks}
FROM webhooks
WHERE position('"upstream.changed"' IN events) > 0 AND upstream IS NOT NULL AND state <> 'disabled' AND expires_at > :now
UNION
SELECT principal, (arguments::jsonb ->> 'upstream') COLLATE "C" AS upstream, (arguments::jsonb ->> 'uri') COLLATE "C" AS resource_uri
FROM event_demands
WHERE event_name = 'upstream.changed' AND polled_until > :now AND arguments !~ '(?<!\\)(\\\\)*\\u0000'
ORDER BY principal, upstream, resource_uri NULLS FIRST;

-- Whether the principal watches this, an empty `resource_uri` being the lists. `topic` is that of the demand for the same.
-- name: has
SELECT 1 FROM webhooks
WHERE position('"upstream.changed"' IN events) > 0 AND upstream IS NOT NULL AND state <> 'disabled'
    AND octet_length(coalesce(resource_uri, '')) <= 2048
    AND upstream = :upstream AND coalesce(resource_uri, '') = :resource_uri AND principal = :principal
    AND (expires_at IS NULL OR expires_at > :now)
UNION ALL
SELECT 1 FROM event_demands
WHERE principal = :principal AND event_name = 'upstream.changed' AND topic = :topic AND polled_until > :now
LIMIT 1;

-- Who watches any of these. `subjects` has a row [upstream, resource_uri, topic] for each, as those of `has`.
-- name: of_subjects
SELECT watching.principal, watching.upstream, watching.resource_uri
FROM json_array_elements(:subjects::json) AS wanted (row)
CROSS JOIN LATERAL (
    SELECT principal, upstream, resource_uri FROM webhooks
    WHERE position('"upstream.changed"' IN events) > 0 AND upstream IS NOT NULL AND state <> 'disabled'
        AND octet_length(coalesce(resource_uri, '')) <= 2048
        AND upstream = wanted.row ->> 0 AND coalesce(resource_uri, '') = wanted.row ->> 1
        AND (expires_at IS NULL OR expires_at > :now)
    OFFSET 0
) AS watching
UNION
SELECT demanding.principal, wanted.row ->> 0, nullif(wanted.row ->> 1, '')
FROM json_array_elements(:subjects::json) AS wanted (row)
CROSS JOIN LATERAL (
    SELECT principal FROM event_demands
    WHERE event_name = 'upstream.changed' AND topic = wanted.row ->> 2 AND polled_until > :now
    OFFSET 0
) AS demanding;

-- Each watched resource of the upstream with one principal, or two, whose webhooks watch it, and the same for demands: it shows
-- whether more than one principal does. Steps from one resource to the next, and from one demand to the next, however many
-- principals watch each. The demands are those of all upstreams: their topics do not begin with it.
-- name: watched_resources
WITH RECURSIVE uris (uri) AS (
    SELECT ''::text COLLATE "C"
    UNION ALL
    SELECT following.uri
    FROM uris CROSS JOIN LATERAL (
        SELECT coalesce(resource_uri, '') AS uri FROM webhooks
        WHERE position('"upstream.changed"' IN events) > 0 AND upstream IS NOT NULL AND state <> 'disabled'
            AND octet_length(coalesce(resource_uri, '')) <= 2048
            AND upstream = :upstream AND coalesce(resource_uri, '') > uris.uri
        ORDER BY coalesce(resource_uri, '') LIMIT 1
    ) AS following
),
topics (topic) AS (
    SELECT ''::text COLLATE "C"
    UNION ALL
    SELECT following.topic
    FROM topics CROSS JOIN LATERAL (
        SELECT topic FROM event_demands WHERE event_name = 'upstream.changed' AND topic > topics.topic ORDER BY topic LIMIT 1
    ) AS following
)
SELECT principal, upstream, resource_uri FROM (
    SELECT first.principal, :upstream AS upstream, uris.uri AS resource_uri
    FROM uris CROSS JOIN LATERAL (
        SELECT principal FROM webhooks
        WHERE position('"upstream.changed"' IN events) > 0 AND upstream IS NOT NULL AND state <> 'disabled'
            AND octet_length(coalesce(resource_uri, '')) <= 2048
            AND upstream = :upstream AND coalesce(resource_uri, '') = uris.uri AND (expires_at IS NULL OR expires_at > :now)
        ORDER BY principal LIMIT 1
    ) AS first
    UNION
    SELECT last.principal, :upstream, uris.uri
    FROM uris CROSS JOIN LATERAL (
        SELECT principal FROM webhooks
        WHERE position('"upstream.changed"' IN events) > 0 AND upstream IS NOT NULL AND state <> 'disabled'
            AND octet_length(coalesce(resource_uri, '')) <= 2048
            AND upstream = :upstream AND coalesce(resource_uri, '') = uris.uri AND (expires_at IS NULL OR expires_at > :now)
        ORDER BY principal DESC LIMIT 1
    ) AS last
    UNION
    SELECT
        demanding.principal, (demanding.arguments::jsonb ->> 'upstream') COLLATE "C",
        (demanding.arguments::jsonb ->> 'uri') COLLATE "C"
    FROM topics CROSS JOIN LATERAL (
        SELECT principal, arguments FROM event_demands
        WHERE event_name = 'upstream.changed' AND topic = topics.topic AND polled_until > :now
            AND arguments !~ '(?<!\\)(\\\\)*\\u0000'
        ORDER BY polled_until, principal LIMIT 2
    ) AS demanding
) AS watched
WHERE upstream = :upstream AND resource_uri <> '';
