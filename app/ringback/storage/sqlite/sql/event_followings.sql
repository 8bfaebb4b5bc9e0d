-- How far the events of upstreams were read.

-- name: get
SELECT {event_following in event_followings} FROM event_followings WHERE event_name = :event_name AND topic = :topic;

-- name: save
INSERT INTO event_followings {new event_following}
ON CONFLICT (event_name, topic) DO UPDATE SET cursor = excluded.cursor, updated_at = excluded.updated_at;
