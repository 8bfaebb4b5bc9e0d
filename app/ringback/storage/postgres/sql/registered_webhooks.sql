-- Webhooks by what their owner gave them at the registration.

-- name: by_name
SELECT {webhook in webhooks} FROM webhooks WHERE principal = :principal AND name = :name
{lock webhooks};

-- name: by_idempotency_key
SELECT {webhook in webhooks} FROM webhooks WHERE principal = :principal AND idempotency_key = :key
{lock webhooks};
