-- Webhooks that match change notifications of upstreams, and demands of pollers and streams for them.

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
WHERE event_name = 'upstream.changed' AND polled_until > :now
ORDER BY principal, upstream, resource_uri NULLS FIRST;
