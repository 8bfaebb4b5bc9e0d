-- oldest code: 26
-- What a current demand for events of upstreams is found by. Until they are removed, ended demands stand beside it: as many as
-- principals demanded the same.
DROP INDEX event_demands_of_event;
CREATE INDEX event_demands_current ON event_demands (event_name, topic, polled_until, principal);

-- The same for demands of webhooks. Names of upstreams' events have a slash. A webhook with a topic has `fields` 128 and the topic
-- as its key (a hash of it): arguments of these events are no filters.
CREATE INDEX webhook_matches_of_upstreams ON webhook_matches (event_name, fields, match_key, ends_at)
    WHERE position('/' IN event_name) > 0;

-- Who watches a resource of an upstream, or its lists (an empty text). An entry of an index has 2,704 bytes at most, and earlier code
-- accepted longer URIs: without the last condition, one such row would end the migration.
CREATE INDEX webhooks_watched ON webhooks (upstream, coalesce(resource_uri, ''), principal, expires_at)
    WHERE position('"upstream.changed"' IN events) > 0 AND upstream IS NOT NULL AND state <> 'disabled'
    AND octet_length(coalesce(resource_uri, '')) <= 2048;
