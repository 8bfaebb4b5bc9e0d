-- Webhooks that match change notifications of upstreams.

-- name: all
SELECT {change_subscription in webhooks}
FROM webhooks
WHERE position('"upstream.changed"' IN events) > 0 AND upstream IS NOT NULL AND state <> 'disabled' AND expires_at IS NULL
UNION
SELECT {change_subscription in webhooks}
FROM webhooks
WHERE position('"upstream.changed"' IN events) > 0 AND upstream IS NOT NULL AND state <> 'disabled' AND expires_at > :now
ORDER BY principal, upstream, resource_uri NULLS FIRST;
