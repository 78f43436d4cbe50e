"""Sums of filled days, frozen prices, indexes that hold what reports ask for, and views for people who write SQL.

Revises: v0_1_0_b
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import mysql

revision = "v0_1_0_c"
down_revision = "v0_1_0_b"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
FIGURES = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
    "cost_nano", "latency_ms",
)  # fmt: skip
NAMES = ("provider", "model", "format", "status")

# name -> columns
INDEXES = {
    "ix_usage_records_by_day": (
        "tenant_id", "day", "model", "provider", "format", "status", "user_id", "conversation_id", *FIGURES,
    ),
    "ix_usage_records_by_user": (
        "tenant_id", "user_id", "day", "model", "provider", "format", "status", *FIGURES,
    ),
    "ix_usage_records_by_conversation": ("tenant_id", "conversation_id", "response", "day", "model", *FIGURES),
}  # fmt: skip
# those of v0_1_0_a, which they replace
FORMER = {
    "ix_usage_records_day": ("tenant_id", "day", "model", *FIGURES[:5], "cost_nano"),
    "ix_usage_records_user": ("tenant_id", "user_id", "day", *FIGURES[:5], "cost_nano"),
    "ix_usage_records_conversation": ("tenant_id", "conversation_id"),
}
VIEWS = ("usage_by_day", "usage_attempts", "messages_text", "tool_calls")


def identifier() -> sa.types.TypeEngine[Any]:
    return sa.String(255).with_variant(mysql.VARBINARY(255), *MYSQL)


def long_text() -> sa.types.TypeEngine[Any]:
    return sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL)


def moment() -> sa.types.TypeEngine[Any]:
    return (
        sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *MYSQL).with_variant(sa.DateTime(timezone=True), "postgresql")
    )


def key(name: str, kind: type[sa.types.TypeEngine[Any]] = sa.BigInteger) -> sa.Column[Any]:
    return sa.Column(name, kind(), nullable=False, autoincrement=False)


def count(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def create(name: str, *parts: sa.schema.SchemaItem) -> None:
    op.create_table(
        name, *parts, if_not_exists=True, mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin"
    )


def create_sums(name: str, *keys: sa.Column[Any]) -> None:
    """A table of sums over the attempts of a day that have these columns in common."""
    create(
        name,
        key("tenant_id"),
        key("day", sa.Date),
        key("number", sa.Integer),
        *keys,
        count("attempts"),
        *(count(figure, nullable=True) for figure in FIGURES),
        count("cache_known_tokens", nullable=True),
        count("costs"),
        count("latencies"),
        sa.PrimaryKeyConstraint("tenant_id", "day", "number"),
        sa.ForeignKeyConstraint(["tenant_id", "day"], ["usage_days.tenant_id", "usage_days.day"], ondelete="CASCADE"),
    )


def found_in_ledger(kind: str) -> set[str]:
    """Columns or indexes that are there: a run that crashed may have made some (MySQL commits every statement)."""
    if context.is_offline_mode():
        return set()
    return {one["name"] for one in getattr(sa.inspect(op.get_bind()), f"get_{kind}")("usage_records")}


def replace_indexes(wanted: dict[str, tuple[str, ...]], former: dict[str, tuple[str, ...]]) -> None:
    there = set(former) if context.is_offline_mode() else found_in_ledger("indexes")
    for name, columns in wanted.items():
        if name not in there:
            op.create_index(name, "usage_records", list(columns))
    for name in former:
        if name in there:
            op.drop_index(name, "usage_records")


def upgrade() -> None:
    if "price" not in found_in_ledger("columns"):
        op.add_column("usage_records", sa.Column("price", long_text(), nullable=True))
    replace_indexes(INDEXES, FORMER)
    create(
        "usage_days",
        key("tenant_id"),
        key("day", sa.Date),
        sa.Column("filled_at", moment(), nullable=True),
        sa.PrimaryKeyConstraint("tenant_id", "day"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], ondelete="CASCADE"),
    )
    create_sums(
        "usage_daily",
        sa.Column("provider", identifier()),
        sa.Column("model", identifier()),
        sa.Column("format", identifier(), nullable=False),
        sa.Column("status", identifier()),
    )
    create_sums("usage_daily_models", sa.Column("model", identifier()))
    dialect = context.get_context().dialect.name
    if dialect == "postgresql":
        op.execute("DROP AGGREGATE IF EXISTS threadkeep_sum(bigint)")
        op.execute(SUM_AGGREGATE)
        op.execute(PARTS_FUNCTION)
    for name in VIEWS:
        op.execute(f"DROP VIEW IF EXISTS {name}")
        op.execute(f"CREATE VIEW {name} AS {view(name, dialect)}")


def downgrade() -> None:
    """Own views that read these go first, by their owner."""
    for name in VIEWS:
        op.execute(f"DROP VIEW IF EXISTS {name}")
    if context.get_context().dialect.name == "postgresql":
        op.execute("DROP FUNCTION IF EXISTS threadkeep_parts(text)")
        op.execute("DROP AGGREGATE IF EXISTS threadkeep_sum(bigint)")
    op.drop_table("usage_daily_models")
    op.drop_table("usage_daily")
    op.drop_table("usage_days")
    replace_indexes(FORMER, INDEXES)
    op.drop_column("usage_records", "price")


# The views. What the databases spell otherwise is a name in braces.

# PostgreSQL sums bigint as numeric, and making that of every group takes longer than summing days up. This aggregate
# gives NULL for nothing but NULLs, too, and fails where a sum goes beyond 64 bits.
SUM_AGGREGATE = (
    "CREATE AGGREGATE threadkeep_sum(bigint) (sfunc = int8pl, stype = bigint, combinefunc = int8pl, parallel = safe)"
)

# Content parts of a message as a JSON array, NULL where the text is not JSON. PostgreSQL refuses U+0000 and lone
# surrogates in JSON: they become U+FFFD. One line, because administrators' scripts are split at semicolons.
PARTS_FUNCTION = (
    "CREATE OR REPLACE FUNCTION threadkeep_parts(payload text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $body$ "
    "DECLARE content jsonb; BEGIN "
    "BEGIN content := payload::jsonb -> 'content'; EXCEPTION WHEN data_exception THEN "
    r"content := regexp_replace(payload, '(?<!\\)((\\\\)*)\\u(0000|d[89a-f][0-9a-f]{2})', '\1\\ufffd', 'gi')"
    "::jsonb -> 'content'; END; "
    "RETURN CASE jsonb_typeof(content) WHEN 'array' THEN content "
    "WHEN 'string' THEN jsonb_build_array(jsonb_build_object('text', content)) END; "
    "EXCEPTION WHEN data_exception THEN RETURN NULL; END $body$"
)

# SQLite would end a text at U+0000, and give lone surrogates as bytes that are no UTF-8, which no client can read: here
# the former become U+FFFD and the latter stay escapes (they only stand in rows that the fast JSON writer refused,
# `codec` 1). U+0001 is in no JSON text: it stands for an escaped backslash meanwhile.
SQLITE_TEXT = (
    r"CASE WHEN i.codec & 1 OR instr(i.payload, '\u0000') THEN replace(replace(replace(replace("
    r"i.payload, '\\', char(1)), '\u0000', '\ufffd'), '\ud', '\\ud'), char(1), '\\') ELSE i.payload END"
)

SPELLINGS = {
    "sqlite": {
        "name": "{0}",
        "conversation": "'conv_' || nullif(lower(hex(c.public_id)), '')",
        "hex": "nullif(lower(hex({0})), '')",
        "usd": "{0} / 1e9",
        "sum": "sum({0})",
        "parts": (
            f"JOIN json_each(CASE WHEN NOT json_valid({SQLITE_TEXT}) THEN '{{}}' "
            f"WHEN json_type({SQLITE_TEXT}, '$.content') = 'text' THEN json_object('content', "
            f"json_array(json_object('text', json_extract({SQLITE_TEXT}, '$.content')))) "
            f"ELSE {SQLITE_TEXT} END, '$.content') p"
        ),
        "part": "p.key",
        "text": "CASE WHEN p.type = 'object' THEN json_extract(p.value, '$.text') END",
    },
    "postgresql": {
        "name": "{0}",
        "conversation": "'conv_' || encode(c.public_id, 'hex')",
        "hex": "encode({0}, 'hex')",
        "usd": "{0} / 1e9",
        "sum": "CAST(sum({0}) AS bigint)",
        "parts": "CROSS JOIN LATERAL jsonb_array_elements(threadkeep_parts(i.payload)) WITH ORDINALITY AS p (value, n)",
        "part": "p.n - 1",
        "text": "p.value ->> 'text'",
    },
    "mysql": {
        "name": "CONVERT({0} USING utf8mb4)",
        "conversation": "CONCAT('conv_', LOWER(HEX(c.public_id)))",
        "hex": "LOWER(HEX({0}))",
        "usd": "{0} / 1e9",
        "sum": "CAST(sum({0}) AS SIGNED)",
        "parts": (
            "JOIN JSON_TABLE(CASE WHEN NOT JSON_VALID(i.payload) THEN '{}' WHEN JSON_TYPE(JSON_EXTRACT(i.payload, "
            "'$.content')) = 'STRING' THEN JSON_OBJECT('content', JSON_ARRAY(JSON_OBJECT('text', "
            "JSON_UNQUOTE(JSON_EXTRACT(i.payload, '$.content'))))) ELSE i.payload END, "
            "'$.content[*]' COLUMNS (n FOR ORDINALITY, text LONGTEXT PATH '$.text')) p"
        ),
        "part": "p.n - 1",
        "text": "p.text",
    },
}


def view(name: str, dialect: str) -> str:
    spelled = SPELLINGS["mysql" if dialect in MYSQL else dialect]

    def named(prefix: str, *columns: str) -> str:
        return ", ".join(f"{spelled['name'].format(f'{prefix}.{column}')} AS {column}" for column in columns)

    tenant = f"{spelled['name'].format('t.name')} AS tenant"
    makers = {
        "usage_by_day": lambda: usage_by_day(spelled, tenant, named("u", *NAMES)),
        "usage_attempts": lambda: usage_attempts(spelled, tenant, named("u", "user_id", *NAMES)),
        "messages_text": lambda: messages_text(spelled, tenant, named("c", "user_id"), named("i", "role", "author_id")),
        "tool_calls": lambda: tool_calls(spelled, tenant, named("c", "user_id"), named("i", "name", "status")),
    }
    return makers[name]()


def usage_by_day(spelled: dict[str, str], tenant: str, names: str) -> str:
    """Filled days from their sums, the others from the ledger."""
    kept = ", ".join(f"y.{name}" for name in (*NAMES, "attempts", *FIGURES))
    keys = ", ".join(f"r.{name}" for name in ("tenant_id", "day", *NAMES))
    sums = ", ".join(f"{spelled['sum'].format(f'r.{name}')} AS {name}" for name in FIGURES)
    filled = "f.tenant_id = {0}.tenant_id AND f.day = {0}.day"
    return (
        f"SELECT {tenant}, u.day, {names}, u.attempts, {', '.join(f'u.{name}' for name in FIGURES)}, "
        f"{spelled['usd'].format('u.cost_nano')} AS cost_usd FROM ("
        f"SELECT y.tenant_id, y.day, {kept} FROM usage_daily y JOIN usage_days f ON {filled.format('y')} "
        "WHERE f.filled_at IS NOT NULL UNION ALL "
        f"SELECT {keys}, count(*) AS attempts, {sums} FROM usage_records r WHERE NOT EXISTS ("
        f"SELECT 1 FROM usage_days f WHERE {filled.format('r')} AND f.filled_at IS NOT NULL) GROUP BY {keys}"
        ") u JOIN tenants t ON t.id = u.tenant_id"
    )


def usage_attempts(spelled: dict[str, str], tenant: str, names: str) -> str:
    """The ledger, with names instead of keys."""
    figures = ", ".join(f"u.{name}" for name in FIGURES)
    return (
        f"SELECT {tenant}, u.id, u.day, u.occurred_at, {spelled['conversation']} AS conversation, u.response, {names}, "
        f"{spelled['hex'].format('u.tool_set_hash')} AS tool_set, {figures}, "
        f"{spelled['usd'].format('u.cost_nano')} AS cost_usd, u.price, u.usage AS provider_usage, u.error "
        "FROM usage_records u JOIN tenants t ON t.id = u.tenant_id LEFT JOIN conversations c "
        "ON c.tenant_id = u.tenant_id AND c.id = u.conversation_id AND c.status <> 'deleted'"
    )


FROM_ITEMS = (
    "FROM items i JOIN conversations c ON c.tenant_id = i.tenant_id AND c.id = i.conversation_id "
    "AND c.status <> 'deleted' JOIN tenants t ON t.id = i.tenant_id"
)


def messages_text(spelled: dict[str, str], tenant: str, user: str, names: str) -> str:
    """A row for each text part of a message."""
    return (
        f"SELECT {tenant}, {spelled['conversation']} AS conversation, {user}, i.branch, i.position, "
        f"{spelled['part']} AS part, i.created_at, {names}, {spelled['text']} AS text "
        f"{FROM_ITEMS} {spelled['parts'].replace('{}', '{}')} "
        f"WHERE i.type = 'message' AND {spelled['text']} IS NOT NULL"
    )


def tool_calls(spelled: dict[str, str], tenant: str, user: str, names: str) -> str:
    """A row for each call of a function, with the position of its output.

    An output answers the nearest earlier call of its id: one that comes behind another call of that id on the same
    branch belongs to that one.
    """
    same = "PARTITION BY tenant_id, conversation_id, call_hash"
    ahead = "ORDER BY position ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING"
    calls = "('function_call', 'custom_tool_call')"
    events = (
        "SELECT tenant_id, conversation_id, position, branch, type, name, status, call_id, created_at, "
        f"min(CASE WHEN type NOT IN {calls} THEN position END) OVER ({same} {ahead}) AS next_output, "
        f"min(CASE WHEN type IN {calls} THEN position END) OVER ({same}, branch {ahead}) AS next_call "
        "FROM items WHERE call_hash IS NOT NULL "
        "AND type IN ('function_call', 'custom_tool_call', 'function_call_output', 'custom_tool_call_output')"
    )
    answered = "CASE WHEN i.next_call IS NULL OR i.next_output < i.next_call THEN i.next_output END"
    return (
        f"SELECT {tenant}, {spelled['conversation']} AS conversation, {user}, i.branch, i.position, i.created_at, "
        f"{names}, i.call_id, {answered} AS output_position, {spelled['name'].format('o.status')} AS output_status "
        f"{FROM_ITEMS.replace('FROM items i', f'FROM ({events}) i')} LEFT JOIN items o ON o.tenant_id = i.tenant_id "
        f"AND o.conversation_id = i.conversation_id AND o.position = {answered} WHERE i.type IN {calls}"
    )
