-- name: notify
SELECT pg_notify(:channel, :payload);
