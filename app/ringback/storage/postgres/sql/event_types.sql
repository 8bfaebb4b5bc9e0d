-- The types of events that principals publish.

-- name: get
SELECT {event_type in event_types} FROM event_types WHERE principal = :principal AND name = :name;

-- name: of_principal
SELECT {event_type in event_types} FROM event_types WHERE principal = :principal ORDER BY name;

-- name: save
INSERT INTO event_types {new event_type}
ON CONFLICT (principal, name) DO UPDATE SET
    description = excluded.description, payload_schema = excluded.payload_schema, updated_at = excluded.updated_at;

-- name: remove
DELETE FROM event_types WHERE principal = :principal AND name = :name;
