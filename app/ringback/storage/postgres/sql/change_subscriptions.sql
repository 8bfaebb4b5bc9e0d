-- Webhooks that match change notifications of upstreams, and demands of pollers and streams for them. A demand whose URI has U+0000,
-- which jsonb refuses, is left out: one would fail the statement for all principals.

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
