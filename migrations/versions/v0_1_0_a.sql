-- The views of v0_1_0_a. What stands in braces differs by dialect: a word, and its argument (SPELLINGS in the revision).

-- Filled days from their sums, the others from the ledger
CREATE VIEW threadkeep_usage_by_day AS
SELECT {name t.name} AS tenant, u.day, {name u.provider} AS provider, {name u.model} AS model,
    {name u.format} AS format, {name u.status} AS status, u.attempts,
    u.input_tokens, u.cached_tokens, u.cache_write_tokens, u.output_tokens, u.reasoning_tokens, u.total_tokens,
    u.cost_nano, u.latency_ms, u.first_token_ms, u.cache_known_tokens, u.costs, u.latencies, u.first_tokens,
    u.cost_nano / 1e9 AS cost_usd
FROM (
    SELECT y.tenant_id, y.day, y.provider, y.model, y.format, y.status, y.attempts,
        y.input_tokens, y.cached_tokens, y.cache_write_tokens, y.output_tokens, y.reasoning_tokens, y.total_tokens,
        y.cost_nano, y.latency_ms, y.first_token_ms, y.cache_known_tokens, y.costs, y.latencies, y.first_tokens
    FROM threadkeep_usage_daily y
    JOIN threadkeep_usage_days f ON f.tenant_id = y.tenant_id AND f.day = y.day
    WHERE f.filled_at IS NOT NULL
    UNION ALL
    SELECT r.tenant_id, r.day, r.provider, r.model, r.format, r.status, count(*) AS attempts,
        {sum r.input_tokens} AS input_tokens,
        {sum CASE WHEN r.cached_tokens <= r.input_tokens THEN r.cached_tokens END} AS cached_tokens,
        {sum r.cache_write_tokens} AS cache_write_tokens, {sum r.output_tokens} AS output_tokens,
        {sum r.reasoning_tokens} AS reasoning_tokens, {sum r.total_tokens} AS total_tokens,
        {sum r.cost_nano} AS cost_nano, {sum r.latency_ms} AS latency_ms,
        {sum r.first_token_ms} AS first_token_ms,
        {sum CASE WHEN r.cached_tokens <= r.input_tokens THEN r.input_tokens END} AS cache_known_tokens,
        count(r.cost_nano) AS costs, count(r.latency_ms) AS latencies, count(r.first_token_ms) AS first_tokens
    FROM threadkeep_usage_records r
    WHERE NOT EXISTS (
        SELECT 1 FROM threadkeep_usage_days f
        WHERE f.tenant_id = r.tenant_id AND f.day = r.day AND f.filled_at IS NOT NULL
    )
    GROUP BY r.tenant_id, r.day, r.provider, r.model, r.format, r.status
) u
JOIN threadkeep_tenants t ON t.id = u.tenant_id;

-- The ledger, with names instead of keys
CREATE VIEW threadkeep_usage_attempts AS
SELECT {name t.name} AS tenant, u.id, u.day, u.occurred_at, {conversation c.public_id} AS conversation, u.response,
    {name u.user_id} AS user_id, {name u.provider} AS provider, {name u.model} AS model, {name u.format} AS format,
    {name u.status} AS status, {hex u.tool_set_hash} AS tool_set,
    u.input_tokens, u.cached_tokens, u.cache_write_tokens, u.output_tokens, u.reasoning_tokens, u.total_tokens,
    u.cost_nano, u.latency_ms, u.first_token_ms, u.cost_nano / 1e9 AS cost_usd, u.price, u.terms, u.usage AS provider_usage,
    u.error
FROM threadkeep_usage_records u
JOIN threadkeep_tenants t ON t.id = u.tenant_id
LEFT JOIN threadkeep_conversations c
    ON c.tenant_id = u.tenant_id AND c.id = u.conversation_id AND c.status <> 'deleted';

-- A row for each text part of a message
CREATE VIEW threadkeep_messages_text AS
SELECT {name t.name} AS tenant, {conversation c.public_id} AS conversation, {name c.user_id} AS user_id,
    i.branch, i.position, {part} AS part, i.created_at, {name i.role} AS role, {name i.author_id} AS author_id,
    {text} AS text
FROM threadkeep_items i
JOIN threadkeep_conversations c ON c.tenant_id = i.tenant_id AND c.id = i.conversation_id AND c.status <> 'deleted'
JOIN threadkeep_tenants t ON t.id = i.tenant_id
{parts}
WHERE i.type = 'message' AND i.branch >= 0 AND {text} IS NOT NULL;

-- A row for each call of a function, with the position of its output. An output answers the nearest earlier call of
-- its id: one that comes behind another call of that id on the same branch belongs to that one
CREATE VIEW threadkeep_tool_calls AS
SELECT {name t.name} AS tenant, {conversation c.public_id} AS conversation, {name c.user_id} AS user_id,
    i.branch, i.position, i.created_at, {name i.name} AS name, {name i.status} AS status, i.call_id,
    CASE WHEN i.next_call IS NULL OR i.next_output < i.next_call THEN i.next_output END AS output_position,
    {name o.status} AS output_status, o.created_at AS output_created_at, {day i.created_at} AS day,
    {waited} AS latency_ms
FROM (
    SELECT tenant_id, conversation_id, position, branch, type, name, status, call_id, created_at,
        min(CASE WHEN is_call = 0 THEN position END) OVER (
            PARTITION BY tenant_id, conversation_id, call_hash, outputs + is_call * in_turn
            ORDER BY position ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        ) AS next_output,
        min(CASE WHEN is_call = 1 AND in_turn = 1 THEN position END) OVER (
            PARTITION BY tenant_id, conversation_id, call_hash, branch
            ORDER BY position ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        ) AS next_call
    FROM (
        SELECT tenant_id, conversation_id, position, branch, type, name, status, call_id, call_hash, created_at, is_call,
            row_number() OVER (
                PARTITION BY tenant_id, conversation_id, call_hash, coalesce(turn, -1 - position), is_call
                ORDER BY position
            ) AS in_turn,
            sum(1 - is_call) OVER (
                PARTITION BY tenant_id, conversation_id, call_hash
                ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS outputs
        FROM (
            SELECT tenant_id, conversation_id, position, branch, type, name, status, call_id, call_hash, created_at, turn,
                CASE WHEN type IN ('function_call', 'custom_tool_call') THEN 1 ELSE 0 END AS is_call
            FROM threadkeep_items
            WHERE call_hash IS NOT NULL AND branch >= 0
                AND type IN ('function_call', 'custom_tool_call', 'function_call_output', 'custom_tool_call_output')
        ) found
    ) numbered
) i
JOIN threadkeep_conversations c ON c.tenant_id = i.tenant_id AND c.id = i.conversation_id AND c.status <> 'deleted'
JOIN threadkeep_tenants t ON t.id = i.tenant_id
LEFT JOIN threadkeep_items o
    ON o.tenant_id = i.tenant_id AND o.conversation_id = i.conversation_id
    AND o.position = CASE WHEN i.next_call IS NULL OR i.next_output < i.next_call THEN i.next_output END
WHERE i.type IN ('function_call', 'custom_tool_call');

-- A row for each conversation, with the figures that its own row has
CREATE VIEW threadkeep_conversation_facts AS
SELECT {name t.name} AS tenant, {conversation c.public_id} AS conversation, {name c.external_id} AS external_id,
    {name c.user_id} AS user_id, c.title, {name c.status} AS status, c.created_at, {day c.created_at} AS created_day,
    c.last_activity_at, {day c.last_activity_at} AS active_day, c.labels,
    c.active_branch, c.next_branch AS branches, c.next_position AS items, c.next_response AS responses
FROM threadkeep_conversations c
JOIN threadkeep_tenants t ON t.id = c.tenant_id
WHERE c.status <> 'deleted';

-- A row for each label of a conversation
CREATE VIEW threadkeep_labels AS
SELECT {name t.name} AS tenant, {conversation c.public_id} AS conversation, {name c.user_id} AS user_id,
    {name l.key} AS label, {name l.value} AS value
FROM threadkeep_conversation_labels l
JOIN threadkeep_conversations c ON c.tenant_id = l.tenant_id AND c.id = l.conversation_id AND c.status <> 'deleted'
JOIN threadkeep_tenants t ON t.id = l.tenant_id;

-- A row for each property of a conversation
CREATE VIEW threadkeep_properties AS
SELECT {name t.name} AS tenant, {conversation c.public_id} AS conversation, {name c.user_id} AS user_id,
    {member} AS property, {property} AS value
FROM threadkeep_conversations c
JOIN threadkeep_tenants t ON t.id = c.tenant_id
{properties}
WHERE c.status <> 'deleted';

-- A row for each tag of a response: a value in the option `metadata` of its request, or of a label of its items
CREATE VIEW threadkeep_tags AS
SELECT {name t.name} AS tenant, {conversation c.public_id} AS conversation, {name c.user_id} AS user_id,
    r.number AS response, 'metadata' AS kind, {member} AS tag, {tag} AS value
FROM threadkeep_responses r
JOIN threadkeep_conversations c ON c.tenant_id = r.tenant_id AND c.id = r.conversation_id AND c.status <> 'deleted'
JOIN threadkeep_tenants t ON t.id = r.tenant_id
JOIN threadkeep_configs g ON g.tenant_id = r.tenant_id AND g.hash = r.config_hash
{tags}
WHERE r.deleted_at IS NULL
UNION ALL
SELECT {name t.name}, {conversation c.public_id}, {name c.user_id}, l.number, 'item_label', {name l.tag}, {name l.value}
FROM (
    SELECT r.tenant_id, r.conversation_id, r.number, i.key AS tag, min(i.value) AS value
    FROM threadkeep_responses r
    JOIN threadkeep_item_labels i
        ON i.tenant_id = r.tenant_id AND i.conversation_id = r.conversation_id
        AND i.position >= r.from_position AND i.position <= r.to_position
    WHERE r.deleted_at IS NULL
    GROUP BY r.tenant_id, r.conversation_id, r.number, i.key
) l
JOIN threadkeep_conversations c ON c.tenant_id = l.tenant_id AND c.id = l.conversation_id AND c.status <> 'deleted'
JOIN threadkeep_tenants t ON t.id = l.tenant_id;

-- A row for each turn: what a user said at once. It is on the active branch if its item is: up to where that ends, on
-- the branch of the first part of the lineage that reaches as far, or on the branch itself behind all parts
CREATE VIEW threadkeep_turns AS
SELECT {name t.name} AS tenant, {conversation c.public_id} AS conversation, {name c.user_id} AS user_id,
    i.branch, i.position, i.created_at, {day i.created_at} AS day, {week i.created_at} AS week,
    {name i.author_id} AS author_id,
    CASE WHEN i.position > coalesce(b.head_position, c.head_position) THEN 0
        WHEN i.branch = coalesce({lineage coalesce(b.lineage,c.lineage,'[]')}, c.active_branch) THEN 1
        ELSE 0 END AS is_active
FROM threadkeep_items i
JOIN threadkeep_conversations c ON c.tenant_id = i.tenant_id AND c.id = i.conversation_id AND c.status <> 'deleted'
JOIN threadkeep_tenants t ON t.id = i.tenant_id
LEFT JOIN threadkeep_branches b
    ON b.tenant_id = c.tenant_id AND b.conversation_id = c.id AND b.number = c.active_branch
WHERE i.type = 'message' AND i.role = 'user' AND i.branch >= 0 AND NOT EXISTS (
    SELECT 1 FROM threadkeep_items e
    WHERE e.tenant_id = i.tenant_id AND e.conversation_id = i.conversation_id AND e.position < i.position
        AND e.position >= i.turn AND e.turn = i.turn AND e.type = 'message' AND e.role = 'user' AND e.branch >= 0
);

-- A row for each decision about a call
CREATE VIEW threadkeep_call_approvals AS
SELECT {name t.name} AS tenant, {conversation c.public_id} AS conversation, {name c.user_id} AS user_id,
    i.branch, i.position, {name i.name} AS name, i.call_id, {name a.decision} AS decision, a.reason,
    {name a.decided_by} AS decided_by, i.created_at AS asked_at, a.created_at AS decided_at, {day a.created_at} AS day
FROM threadkeep_approvals a
JOIN threadkeep_items i
    ON i.tenant_id = a.tenant_id AND i.conversation_id = a.conversation_id AND i.position = a.position
JOIN threadkeep_conversations c ON c.tenant_id = a.tenant_id AND c.id = a.conversation_id AND c.status <> 'deleted'
JOIN threadkeep_tenants t ON t.id = a.tenant_id
WHERE i.branch >= 0;

-- A row for what a user thinks of an item
CREATE VIEW threadkeep_feedback AS
SELECT {name t.name} AS tenant, {conversation c.public_id} AS conversation, {name c.user_id} AS user_id,
    i.branch, i.position, {name i.type} AS type, {name i.role} AS role, {name i.model} AS model,
    nullif({name f.user_id}, '') AS given_by, f.rating, f.comment, f.updated_at, {day f.updated_at} AS day
FROM threadkeep_item_feedback f
JOIN threadkeep_items i
    ON i.tenant_id = f.tenant_id AND i.conversation_id = f.conversation_id AND i.position = f.position
JOIN threadkeep_conversations c ON c.tenant_id = f.tenant_id AND c.id = f.conversation_id AND c.status <> 'deleted'
JOIN threadkeep_tenants t ON t.id = f.tenant_id
WHERE i.branch >= 0;
