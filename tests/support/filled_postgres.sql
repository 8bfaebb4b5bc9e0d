-- The rows of filled_database.sql, in PostgreSQL's dialect. The statements run in this order.

-- name: calls
INSERT INTO calls (
    id, principal, upstream, tool, client_session_id, correlation_id, idempotency_key, request_hash, status, phase, handle,
    input_round, accepts_input, rerun_policy, rerun_allowed, cancel_requested, lease_owner, lease_token, lease_until, runs,
    token_version, created_at, updated_at, deadline_at, expires_at, argument_bytes
)
SELECT 'call_' || to_char(n, 'FM000000000'), CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, 'busy', 'common', 'crowd', 'crowd',
    'key-' || n, 'hash',
    CASE n % 4 WHEN 0 THEN 'completed' WHEN 3 THEN 'input_required' ELSE 'working' END,
    CASE n % 4 WHEN 0 THEN 'ended' WHEN 1 THEN 'queued' WHEN 2 THEN 'running' ELSE 'parked' END,
    CASE WHEN n % 2 = 0 THEN '["task",{"task_id":"task-' || n || '"}]' END,
    0, false, 'never', false, false, 'other', 'lease', CASE WHEN n % 4 = 2 THEN :future END,
    CASE WHEN n % 10 = 0 THEN 2 ELSE 0 END,
    0, :past, :past, :future, CASE WHEN n % 4 = 0 THEN :future END, 4
FROM generate_series(0, :rows - 1) AS n;

-- name: scheduled calls
INSERT INTO calls (
    id, principal, upstream, tool, request_hash, status, phase, input_round, accepts_input, rerun_policy, rerun_allowed,
    cancel_requested, runs, token_version, created_at, updated_at, not_before, deadline_at, argument_bytes
)
SELECT 'call_later' || to_char(n, 'FM000000000'), CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, 'busy', 'common', 'hash',
    'working', 'scheduled', 0, false, 'never', false, false, 0, 0, :past, :past, :future, :future, 4
FROM generate_series(0, :rows - 1) AS n;

-- name: events
INSERT INTO events (principal, seq, id, name, call_id, client_session_id, correlation_id, upstream, tool, data, created_at)
SELECT CASE WHEN n < :rows * 9 / 10 THEN 'alice' ELSE 'bob' END, n + 1, 'evt_' || n, 'call.progress', 'call_talkative', 'crowd',
    'crowd', 'busy', 'common', '{}', :past + n
FROM generate_series(0, :rows - 1) AS n;

-- name: deliveries
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, order_key,
    lease_owner, lease_token, lease_until, created_at, finished_at
)
SELECT 'dlv_' || to_char(n, 'FM000000000'), CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, 'wh_crowd', 'evt_' || n,
    CASE WHEN n % 16 = 8 THEN 'progress' ELSE 'event' END, 'call_talkative', CASE WHEN n % 32 <> 1 THEN n END, 1,
    CASE n % 8 WHEN 0 THEN 'delivered' WHEN 1 THEN 'pending' WHEN 2 THEN 'held' WHEN 3 THEN 'leased' WHEN 4 THEN 'dead'
        WHEN 5 THEN 'cancelled' WHEN 6 THEN 'pending' ELSE 'delivered' END,
    2, CASE WHEN n % 8 = 6 THEN :past ELSE :future END, :future, CASE WHEN n % 8 = 1 THEN 'session-' || n END,
    CASE WHEN n % 8 = 3 THEN 'other' END, CASE WHEN n % 8 = 3 THEN 'lease' END, CASE WHEN n % 8 = 3 THEN :future END, :past,
    CASE WHEN n % 8 IN (0, 4, 5, 7) THEN :future END
FROM generate_series(0, :rows - 1) AS n;

-- name: webhooks
INSERT INTO webhooks (
    id, principal, url, events, upstream, call_id, client_session_id, correlation_id, match_correlation, secrets, retries,
    include_result, "when", ordered, state, origin, created_at, updated_at, expires_at, failures, openings, paused_until,
    last_error
)
SELECT 'wh_' || to_char(n, 'FM000000000'), CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, 'https://crowd.example/',
    '["call.finished","upstream.changed"]', 'busy', CASE WHEN n % 3 > 0 THEN 'call_' || to_char(n, 'FM000000000') END,
    CASE WHEN n % 3 > 0 THEN NULL WHEN n % 12 = 3 THEN 'crowd' ELSE 'session-' || n END, 'crowd', true, '\x01', 'standard',
    false, 'always', false, CASE WHEN n % 2 > 0 THEN 'suspended' ELSE 'disabled' END, CASE WHEN n % 3 > 0 THEN 'call' ELSE 'api' END,
    :past, :past, CASE WHEN n % 10 > 0 THEN :past END, 0, 0, CASE WHEN n % 2 > 0 THEN :future END,
    CASE WHEN n % 2 > 0 THEN 'timeout' END
FROM generate_series(0, :rows - 1) AS n;

-- name: tombstones
INSERT INTO tombstones (call_id, principal, idempotency_key, request_hash, expired_at)
SELECT 'call_gone' || n, CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, 'key-' || n, 'hash', :future
FROM generate_series(0, :rows - 1) AS n;

-- name: turns
INSERT INTO turns SELECT 'busy', 'principal-' || n, n FROM generate_series(0, :rows - 1) AS n;

-- name: origins
INSERT INTO origins (origin, failures, openings, paused_until, changed_at)
SELECT 'https://crowd.example:' || n, 1, 1, :future, :future FROM generate_series(0, :rows - 1) AS n;

-- name: proofs
INSERT INTO proofs
SELECT CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, 'https://crowd.example/' || n, :future
FROM generate_series(0, :rows - 1) AS n;

-- name: challenges_sent
INSERT INTO challenges_sent (origin, principal, sent_at)
SELECT 'https://crowd.example', 'carol', :past + n FROM generate_series(0, :rows - 1) AS n;

-- name: api_keys
INSERT INTO api_keys (id, principal, name, hash, prefix, scopes, upstreams, created_at, revoked_at)
SELECT 'key_' || n, 'alice', 'k', 'hash-' || n, 'p', '["calls"]', NULL, :past, NULL FROM generate_series(0, :rows - 1) AS n;

-- name: attempts
INSERT INTO attempts (delivery_id, id, number, started_at, duration_ms, category, status_code, excerpt)
SELECT 'dlv_wh_rare-delivered-' || n, 'att', 1, :past, 1, 'ok', 200, NULL FROM generate_series(0, :rows - 1) AS n;

-- name: deliveries that are over
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, created_at, finished_at
)
SELECT 'dlv_over' || n, 'alice', 'wh_zzz', 'evt_over' || n, 'progress', 'call_over', n, 1, 'delivered', 1, :past, :past, :past,
    :future
FROM generate_series(0, :rows - 1) AS n;

-- name: deliveries sent again
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, created_at, finished_at
)
SELECT id || '-again', principal, webhook_id, event_id, kind, call_id, seq, 2, 'delivered', 1, due_at, give_up_at, created_at,
    :future
FROM deliveries WHERE state = 'dead';

-- name: deliveries to each webhook
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, created_at
)
SELECT 'dlv_to_' || id || '_' || states.state, principal, id, 'evt_of_' || id || '_' || states.state, 'event', call_id, 1, 1,
    states.state, 0, :future, :future, :past
FROM webhooks CROSS JOIN (VALUES ('held'), ('pending')) AS states (state)
WHERE client_session_id IS NOT NULL OR call_id IS NOT NULL;

-- name: few calls
INSERT INTO calls (
    id, principal, upstream, tool, client_session_id, correlation_id, idempotency_key, request_hash, status, phase, handle,
    input_round, accepts_input, rerun_policy, rerun_allowed, cancel_requested, lease_owner, lease_token, lease_until, runs,
    token_version, created_at, updated_at, deadline_at, expires_at, argument_bytes
)
SELECT 'call_' || id, 'alice', 'rare', 'rare', 'rare', 'rare', 'rare-' || id, 'hash', status, phase, NULL,
    0, false, 'never', false, false, 'me', 'lease-me', CASE WHEN phase = 'running' THEN :past END,
    CASE WHEN id = 'rare' THEN 2 ELSE 0 END,
    0, :past, :past, :past, CASE WHEN phase = 'ended' THEN :past END, 4
FROM (
    VALUES ('-1', 'failed', 'ended'), ('-2', 'working', 'queued'), ('-3', 'working', 'running'), ('rare', 'working', 'running')
) AS rare (id, status, phase);

-- name: watching webhooks
INSERT INTO webhooks (
    id, principal, url, events, upstream, resource_uri, match_correlation, secrets, retries, include_result, "when", ordered,
    state, origin, created_at, updated_at, failures, openings
)
SELECT 'wh_000000000_watching_' || to_char(n, 'FM000000000'), 'other-' || to_char(n, 'FM000000000'), 'https://crowd.example/',
    '["upstream.changed"]', 'watched', CASE WHEN n % 2 > 0 THEN 'book://crowd' END, false, '\x01', 'standard', false, 'always',
    false, 'active', 'api', :past, :past, 0, 0
FROM generate_series(0, :rows - 1) AS n;

-- name: few watching webhooks
INSERT INTO webhooks (
    id, principal, url, events, upstream, resource_uri, match_correlation, secrets, retries, include_result, "when", ordered,
    state, origin, created_at, updated_at, failures, openings
)
VALUES ('wh_watching', 'alice', 'https://rare.example/', '["upstream.changed"]', 'rare', 'book://rare', false, '\x01', 'standard',
    false, 'always', false, 'active', 'api', :past, :past, 0, 0);

-- name: few webhooks
INSERT INTO webhooks (
    id, principal, url, events, match_correlation, secrets, retries,
    include_result, "when", ordered, state, origin, created_at, updated_at, expires_at, failures, openings
)
SELECT id, 'alice', 'https://rare.example/', '["call.finished"]', false, '\x01', 'standard',
    false, 'always', false, state, 'api', :past, :past, expires_at, 0, 0
FROM (VALUES ('wh_crowd', 'active', NULL), ('wh_rare', 'active', NULL), ('wh_zzz', 'suspended', :past - 1)) AS rare (id, state, expires_at);

-- name: deliveries of one event
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, seq, generation, state, attempts, due_at, give_up_at, created_at, finished_at
)
SELECT 'dlv_shared_' || id, 'alice', id, 'evt_shared', 'event', 1, 1, 'delivered', 1, :past, :future, :past, :future
FROM webhooks WHERE id < 'wh_a';

-- name: few deliveries of that event
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, seq, generation, state, attempts, due_at, give_up_at, created_at, finished_at
)
VALUES ('dlv_shared_wh_rare', 'alice', 'wh_rare', 'evt_shared', 'event', 1, 1, 'dead', 1, :past, :future, :past, :future);

-- name: few deliveries
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, order_key,
    lease_owner, lease_token, lease_until, created_at, finished_at
)
SELECT 'dlv_' || webhooks.id || '-' || state, 'alice', webhooks.id, 'evt_' || webhooks.id || '-' || state, 'event',
    'call_rare', 1, 1, state, 0, :past, :past, NULL, CASE WHEN state = 'leased' THEN 'me' END,
    CASE WHEN state = 'leased' THEN 'lease-me' END, CASE WHEN state = 'leased' THEN :past END, :past,
    CASE WHEN state = 'delivered' THEN :past END
FROM (VALUES ('wh_rare'), ('wh_zzz')) AS webhooks (id)
CROSS JOIN (VALUES ('held'), ('pending'), ('leased'), ('dead'), ('delivered')) AS states (state)
WHERE webhooks.id = 'wh_rare' OR state = 'held';

-- name: around: inputs
INSERT INTO inputs (call_id, arguments, meta) SELECT id, '{}', '{}' FROM calls WHERE id <> 'call_-1';

-- name: around: results
INSERT INTO results (call_id, body) SELECT id, '\x7b7d' FROM calls WHERE status = 'completed';

-- name: around: bodies
INSERT INTO bodies (delivery_id, principal, body) SELECT id, principal, '\x01016b'::bytea || decode(repeat('00', 50), 'hex')
FROM deliveries WHERE id <> 'dlv_wh_zzz-held';

-- name: around: challenges
INSERT INTO challenges
SELECT id, principal, 'https://crowd.example/' || id, 'https://crowd.example', 1, :future, NULL
FROM webhooks WHERE id < 'wh_a';

-- name: around: log_heads
INSERT INTO log_heads (principal, seq, retention_floor)
SELECT principal, max(seq), min(seq) - 1 FROM events GROUP BY principal;

-- name: around: call_counts
INSERT INTO call_counts (principal, working, input_required, completed, failed, cancelled, result_bytes, argument_bytes)
SELECT principal, count(*), 0, 0, 0, 0, 0, 4 * count(*) FROM calls GROUP BY principal;

-- name: around: byte_counts
INSERT INTO byte_counts (principal, event_bytes, delivery_bytes)
SELECT principal, sum(event_bytes), sum(delivery_bytes)
FROM (
    SELECT principal, octet_length(data) AS event_bytes, 0 AS delivery_bytes FROM events
    WHERE occurred_at IS NOT NULL OR name = 'call.progress'
    UNION ALL SELECT principal, 0, octet_length(body) FROM bodies
) AS counted
GROUP BY principal;

-- name: around: audit_counts
INSERT INTO audit_counts (owner, entries) SELECT owner, count(*) FROM audit_entries GROUP BY owner;

-- name: around: held_counts
INSERT INTO held_counts (webhook_id, held)
SELECT webhook_id, count(*) FROM deliveries WHERE state = 'held' GROUP BY webhook_id;

-- name: around: webhook_matches
INSERT INTO webhook_matches (principal, event_name, fields, match_key, ends_at, webhook_id)
SELECT principal, event_name, fields, match_key, ends_at, webhook_id FROM webhook_match_keys;

-- name: around: catch_ups
INSERT INTO catch_ups SELECT id, principal, 0, 0 FROM webhooks WHERE id < 'wh_a';

-- name: around: call_webhooks
INSERT INTO call_webhooks SELECT id, 'wh_crowd' FROM calls;

-- name: around: sealing_keys
INSERT INTO sealing_keys VALUES ('k', NULL, NULL);

-- name: mcp_sessions
INSERT INTO mcp_sessions (id, principal, upstreams, endpoint, state, created_at, expires_at)
SELECT 'session-' || to_char(n, 'FM000000000'), CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, NULL,
    CASE WHEN n % 2 > 0 THEN '/mcp' ELSE '/mcp/busy' END, '\x0101', :past, :future
FROM generate_series(0, :rows - 1) AS n;

-- Half of them have ended.
-- name: subscriptions
INSERT INTO subscriptions (
    id, principal, event_name, arguments, error_profile, key_id, ttl_ms, created_at, refreshed_at, ended_at, "end"
)
SELECT 'sub_' || lpad(to_hex(n), 32, '0'), CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, 'crowd', '{}', 'sketch', 'key_crowd', 1000,
    :past, :past, CASE WHEN n % 2 = 0 THEN :future::bigint END, CASE WHEN n % 2 = 0 THEN 'expired' END
FROM generate_series(0, :rows - 1) AS n;

-- name: few subscriptions
INSERT INTO subscriptions (
    id, principal, event_name, arguments, error_profile, key_id, ttl_ms, created_at, refreshed_at, ended_at, "end"
)
VALUES ('sub_rare', 'alice', 'rare', '{}', 'sketch', 'key_rare', 1000, :past, :past, NULL, NULL),
    ('sub_over', 'alice', '', '', 'sketch', 'key_rare', 1000, :past, :past, :past - 1, 'expired');

-- name: around: subscription_counts
INSERT INTO subscription_counts SELECT principal, count(*) FROM subscriptions WHERE ended_at IS NULL GROUP BY principal;

-- name: few mcp_sessions
INSERT INTO mcp_sessions (id, principal, upstreams, endpoint, state, created_at, expires_at)
VALUES ('session-rare', 'alice', NULL, '/mcp/rare', '\x0101', :past, :future),
    ('session-over', 'alice', NULL, '/mcp/rare', '\x0101', :past, :past);

-- name: sign_ins
INSERT INTO sign_ins (id, secret_hash, principal, key_id, scopes, upstreams, created_at, expires_at)
SELECT 'signin-' || to_char(n, 'FM000000000'), 'secret-' || to_char(n, 'FM000000000'),
    CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, NULL, '[]', NULL, :past, :future
FROM generate_series(0, :rows - 1) AS n;

-- name: few sign_ins
INSERT INTO sign_ins (id, secret_hash, principal, key_id, scopes, upstreams, created_at, expires_at)
VALUES ('signin_rare', 'secret-rare', 'carol', NULL, '[]', NULL, :past, :future),
    ('signin_over', 'secret-over', 'carol', NULL, '[]', NULL, :past, :past);

-- name: portal_links
INSERT INTO portal_links (
    id, secret_hash, principal, client_session_id, upstreams, created_by, key_id, created_at, expires_at
)
SELECT 'link-' || to_char(n, 'FM000000000'), 'secret-' || to_char(n, 'FM000000000'),
    CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, 's', NULL, 'alice', NULL, :past, :future
FROM generate_series(0, :rows - 1) AS n;

-- name: few portal_links
INSERT INTO portal_links (
    id, secret_hash, principal, client_session_id, upstreams, created_by, key_id, created_at, expires_at
)
VALUES ('link_rare', 'secret-rare', 'carol', 's', NULL, 'carol', NULL, :past, :future),
    ('link_over', 'secret-over', 'carol', 's', NULL, 'carol', NULL, :past, :past);

-- name: audit_entries
INSERT INTO audit_entries (at, principal, key_id, surface, operation, target, owner, detail)
SELECT :past, 'alice', NULL, 'rest', 'remove_webhook', 'wh-' || to_char(n, 'FM000000000'),
    CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, NULL
FROM generate_series(0, :rows - 1) AS n;

-- name: few audit_entries
INSERT INTO audit_entries (at, principal, key_id, surface, operation, target, owner, detail)
VALUES (:past - 1, 'carol', NULL, 'rest', 'remove_webhook', 'wh_rare', 'carol', NULL);

-- name: upstream_logins
INSERT INTO upstream_logins (id, state_hash, upstream, owner, principal, key_id, request, created_at, expires_at)
SELECT 'login-' || to_char(n, 'FM000000000'), 'state-' || to_char(n, 'FM000000000'), 'busy', '',
    CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, NULL, '\x0101', :past, :future
FROM generate_series(0, :rows - 1) AS n;

-- name: few upstream_logins
INSERT INTO upstream_logins (id, state_hash, upstream, owner, principal, key_id, request, created_at, expires_at)
VALUES ('login_rare', 'state-rare', 'rare', 'carol', 'carol', NULL, '\x0101', :past, :future),
    ('login_over', 'state-over', 'rare', 'carol', 'carol', NULL, '\x0101', :past, :past);

-- name: upstream_tokens
INSERT INTO upstream_tokens (
    id, upstream, owner, version, issuer, resource, scope, required_scope, obtained_at, expires_at, logged_in_by, secrets
)
SELECT 'busy/owner-' || to_char(n, 'FM000000000'), 'busy', 'owner-' || to_char(n, 'FM000000000'), 1, 'i', 'r', NULL, NULL, :past, NULL,
    'bob', '\x0101'
FROM generate_series(0, :rows - 1) AS n;

-- name: few upstream_tokens
INSERT INTO upstream_tokens (
    id, upstream, owner, version, issuer, resource, scope, required_scope, obtained_at, expires_at, logged_in_by, secrets
)
VALUES ('rare/alice', 'rare', 'alice', 1, 'i', 'r', NULL, NULL, :past, NULL, 'alice', '\x0101'),
    ('rare/', 'rare', '', 1, 'i', 'r', NULL, NULL, :past, NULL, 'alice', '\x0101');

-- name: owned_catalog
INSERT INTO owned_catalog (owner, upstream, part, body, fetched_at)
SELECT 'owner-' || to_char(n, 'FM000000000'), 'busy', 'tools', '[]', :future FROM generate_series(0, :rows - 1) AS n;

-- name: few owned_catalog
INSERT INTO owned_catalog (owner, upstream, part, body, fetched_at)
VALUES ('alice', 'rare', 'tools', '[]', :past), ('alice', 'rare', 'profile', '{}', :past);

-- name: oauth_clients
INSERT INTO oauth_clients (id, issuer, redirect_uri, client, created_at, expires_at)
SELECT 'https://' || to_char(n, 'FM000000000') || '.example https://us.example', 'https://' || to_char(n, 'FM000000000') || '.example',
    'https://us.example', '\x0101', :past, NULL
FROM generate_series(0, :rows - 1) AS n;

-- name: few oauth_clients
INSERT INTO oauth_clients (id, issuer, redirect_uri, client, created_at, expires_at)
VALUES ('https://rare.example https://us.example', 'https://rare.example', 'https://us.example', '\x0101', :past, :future);

-- name: login_waits
INSERT INTO login_waits (call_id, upstream, owner, tokens_version)
SELECT 'call_' || to_char(n, 'FM000000000'), 'busy', CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, n % 3
FROM generate_series(0, :rows - 1) AS n;

-- name: few login_waits
INSERT INTO login_waits (call_id, upstream, owner, tokens_version) VALUES ('call_rare', 'rare', 'alice', 1);

-- name: login_resumptions
INSERT INTO login_resumptions (upstream, owner, tokens_version, worked_at)
SELECT 'busy', 'owner-' || to_char(n, 'FM000000000'), 1, :past + n FROM generate_series(0, :rows - 1) AS n;

-- name: login_checks
INSERT INTO login_checks (upstream, owner, due_at, pause_seconds)
SELECT 'busy', 'owner-' || to_char(n, 'FM000000000'), :past + n, 60.0 FROM generate_series(0, :rows - 1) AS n;

-- name: few login_checks
INSERT INTO login_checks (upstream, owner, due_at, pause_seconds) VALUES ('rare', 'alice', :past, 60.0);

-- name: unused_logins
INSERT INTO unused_logins (upstream, unused_since)
SELECT 'unused-' || to_char(n, 'FM000000000'), :past + n FROM generate_series(0, :rows - 1) AS n;

-- name: call_resumes
INSERT INTO call_resumes (call_id, resumed_at, surface, resumes)
SELECT 'call_' || to_char(n, 'FM000000000'), :past, 'rest_resume', 1 FROM generate_series(0, :rows - 1) AS n;

-- name: few call_resumes
INSERT INTO call_resumes (call_id, resumed_at, surface, resumes) VALUES ('call_rare', :past, 'rest_resume', 1);

-- name: insight_hours
INSERT INTO insight_hours (principal, upstream, hour, counts)
SELECT
    CASE WHEN n % 10 > 0 THEN 'alice' ELSE 'bob' END, CASE WHEN n % 2 > 0 THEN '' ELSE 'busy' END, :future + n, '{"started": 1}'
FROM generate_series(0, :rows - 1) AS n;

-- name: few insight_hours
INSERT INTO insight_hours (principal, upstream, hour, counts)
VALUES ('alice', '', :past, '{"started": 1}'), ('dave', 'rare', :past, '{}');

-- name: insight_positions
INSERT INTO insight_positions (id, positions) VALUES (1, '{}');

-- name: event_demands
INSERT INTO event_demands (principal, event_name, topic, arguments, polled_until, gap_seq)
SELECT 'other-' || to_char(n, 'FM000000000'), 'git/pushed', '', '{}', :future, 0 FROM generate_series(0, :rows - 1) AS n;

-- name: ended event_demands
INSERT INTO event_demands (principal, event_name, topic, arguments, polled_until, gap_seq)
SELECT 'other-' || to_char(n, 'FM000000000'), CASE WHEN n % 2 > 0 THEN 'git/left' ELSE 'git/rare' END, 't', '{}', :past, 0
FROM generate_series(0, :rows - 1) AS n;

-- name: demands for changes
INSERT INTO event_demands (principal, event_name, topic, arguments, polled_until, gap_seq)
SELECT 'other-' || to_char(n, 'FM000000000'), 'upstream.changed', CASE WHEN n % 2 > 0 THEN 'crowd' ELSE 'left' END,
    '{"upstream":"watched","uri":"book://crowd"}', CASE WHEN n % 2 > 0 THEN :future ELSE :past END, 0
FROM generate_series(0, :rows - 1) AS n;

-- name: few event_demands
INSERT INTO event_demands (principal, event_name, topic, arguments, polled_until, gap_seq)
VALUES ('alice', 'git/pushed', '', '{}', :future, 0), ('bob', 'git/rare', 't', '{}', :future, 0);
