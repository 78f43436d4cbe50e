"""All tables, indexes and views of the first release.

What exists is left alone, so that an upgrade that broke off is continued: MariaDB and MySQL commit each statement.

Revises: nothing
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import mysql, postgresql

revision = "v0_1_0_a"
down_revision = None
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
BIG, NUMBER, SMALL, DATE = sa.BigInteger(), sa.Integer(), sa.SmallInteger(), sa.Date()
IDENTIFIER = sa.String(255).with_variant(mysql.VARBINARY(255), *MYSQL)
TEXT = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL)
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)
HASH, SHORT_HASH = (
    sa.LargeBinary(size).with_variant(mysql.BINARY(size), *MYSQL).with_variant(postgresql.BYTEA(), "postgresql")
    for size in (32, 16)
)
MOMENT = (
    sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *MYSQL).with_variant(sa.DateTime(timezone=True), "postgresql")
)

TOKENS = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens")
FIGURES = (*TOKENS, "cost_nano", "latency_ms", "first_token_ms")
VIEWS = tuple(
    f"threadkeep_{name}"
    for name in (
        "usage_by_day",
        "usage_attempts",
        "messages_text",
        "tool_calls",
        "conversation_facts",
        "labels",
        "properties",
        "tags",
        "turns",
        "call_approvals",
        "feedback",
    )
)

# dialect -> the names of what exists
EXISTING = {
    "sqlite": "SELECT name FROM sqlite_master",
    "postgresql": (
        "WITH here AS (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) "
        "SELECT relname FROM pg_class JOIN here ON here.oid = relnamespace "
        "UNION SELECT proname FROM pg_proc JOIN here ON here.oid = pronamespace"
    ),
    "mysql": (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() "
        "UNION SELECT index_name FROM information_schema.statistics WHERE table_schema = DATABASE()"
    ),
}

# dialect -> what `packed` of an item is made of; MySQL does not read it
PACKED = {
    "sqlite": (
        r"printf('%d %s %s %s %s %s %s %d %s', "
        r"codec * 8 + coalesce(instr(call_id, '\') > 0, 0) * 4 + (payload IS NULL) * 2 + (rest IS NOT NULL), type, "
        r"coalesce(role, '\'), coalesce(origin, '\'), coalesce(maker, '\'), coalesce(turn, '\'), coalesce(seen, '\'), "
        r"position, coalesce(call_id, '\'))"
    ),
    "postgresql": (
        r"(codec * 8 + CASE WHEN strpos(call_id, '\'::text) > 0 THEN 4 ELSE 0 END "
        r"+ CASE WHEN payload IS NULL THEN 2 ELSE 0 END + CASE WHEN rest IS NULL THEN 0 ELSE 1 END)::text "
        r"|| ' '::text || type::text || ' '::text || COALESCE(role, '\'::character varying)::text || ' '::text "
        r"|| COALESCE(origin, '\'::character varying)::text || ' '::text "
        r"|| COALESCE(maker, '\'::character varying)::text || ' '::text || COALESCE(turn::text, '\'::text) "
        r"|| ' '::text || COALESCE(seen::text, '\'::text) || ' '::text || position::text || ' '::text "
        r"|| COALESCE(call_id, '\'::text)"
    ),
    "mysql": "NULL",
}

# table -> the columns by which its rows are spread, where the tables are created with partitions (PostgreSQL)
PARTITIONED = {
    **dict.fromkeys(("items", "item_blobs", "responses", "response_bodies", "appends"), "tenant_id, conversation_id"),
    "usage_records": "tenant_id, id",
}


def upgrade() -> None:
    dialect = "mysql" if (name := context.get_context().dialect.name) in MYSQL else name
    there: set[str] = set()
    if not context.is_offline_mode():
        there.update(op.get_bind().execute(sa.text(EXISTING[dialect])).scalars())
    for table, definition in tables().items():
        if f"threadkeep_{table}" not in there:
            create_table(table, *definition)
    for table, name, columns, options in indexes():
        if f"threadkeep_{table}_{name}_idx" not in there:
            op.create_index(op.f(f"threadkeep_{table}_{name}_idx"), f"threadkeep_{table}", columns, **options)
    statements = views(dialect)
    if dialect == "postgresql":
        statements = {"threadkeep_sum": SUM_AGGREGATE, "threadkeep_parts": PARTS_FUNCTION, **statements}
    if dialect == "sqlite" and has_fts5():
        statements["threadkeep_search_index"] = SEARCH_INDEX
    for name, statement in statements.items():
        if name not in there:
            op.execute(statement)


def downgrade() -> None:
    """Views of an application that read these tables are dropped by the application, before."""
    dialect = context.get_context().dialect.name
    for name in VIEWS:
        op.execute(f"DROP VIEW IF EXISTS {name}")
    if dialect == "postgresql":
        op.execute("DROP FUNCTION IF EXISTS threadkeep_parts(text)")
        op.execute("DROP AGGREGATE IF EXISTS threadkeep_sum(bigint)")
    if dialect == "sqlite":
        op.execute("DROP TABLE IF EXISTS threadkeep_search_index")
    for table in reversed(tables()):
        op.drop_table(f"threadkeep_{table}", if_exists=True)


def has_fts5() -> bool:
    if context.is_offline_mode():
        return True
    modules = sa.text("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'")
    return op.get_bind().execute(modules).first() is not None


def create_table(name: str, columns: Sequence[sa.Column[Any]], key: str, *constraints: Any) -> None:
    """`key` names the columns of the primary key; the names of constraints begin with that of the table."""
    for constraint in constraints:
        constraint.name = op.f(f"threadkeep_{name}_{constraint.name}")
    primary_key = sa.PrimaryKeyConstraint(*key.split(), name=op.f(f"threadkeep_{name}_pkey"))
    options: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}
    partitions = context.config.attributes.get("partitions") or 0
    months = context.config.attributes.get("months") if name == "response_bodies" else None
    if months:
        partitions = 0
        primary_key = sa.PrimaryKeyConstraint(*key.split(), "created_at", name=op.f(f"threadkeep_{name}_pkey"))
        options["postgresql_partition_by"] = "RANGE (created_at)"
    elif partitions and name in PARTITIONED:
        options["postgresql_partition_by"] = f"HASH ({PARTITIONED[name]})"
    op.create_table(f"threadkeep_{name}", *columns, primary_key, *constraints, **options)
    for number in range(partitions if name in PARTITIONED else 0):
        values = f"WITH (MODULUS {partitions}, REMAINDER {number})"
        op.execute(f"CREATE TABLE threadkeep_{name}_p{number} PARTITION OF threadkeep_{name} FOR VALUES {values}")
    for statement in months or ():
        op.execute(statement)


def columns(*types: tuple[Any, str]) -> list[sa.Column[Any]]:
    """Types, each with the names of its columns; one with a question mark may be NULL."""
    return [
        sa.Column(name.rstrip("?"), type_, nullable=name.endswith("?"), autoincrement=False)
        for type_, names in types
        for name in names.split()
    ]


def generated(name: str, expressions: dict[str, str]) -> sa.Column[Any]:
    """A column that the database fills; `expressions`: dialect -> SQL."""
    dialect = context.get_context().dialect.name
    expression = expressions["mysql" if dialect in MYSQL else dialect]
    return sa.Column(name, TEXT, sa.Computed(expression, persisted=True), autoincrement=False)


def refers(table: str, ondelete: str = "CASCADE", **columns: str) -> sa.ForeignKeyConstraint:
    targets = [f"threadkeep_{table}.{name}" for name in columns.values()]
    return sa.ForeignKeyConstraint(list(columns), targets, name=f"{table}_fkey", ondelete=ondelete)


def to_tenant() -> sa.ForeignKeyConstraint:
    return refers("tenants", tenant_id="id")


def to_conversation() -> sa.ForeignKeyConstraint:
    return refers("conversations", tenant_id="tenant_id", conversation_id="id")


def to_options() -> tuple[sa.ForeignKeyConstraint, sa.ForeignKeyConstraint]:
    return (
        refers("configs", "RESTRICT", tenant_id="tenant_id", config_hash="hash"),
        refers("tool_sets", "RESTRICT", tenant_id="tenant_id", tool_set_hash="hash"),
    )


def unique(name: str, *columns: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*columns, name=f"{name}_key")


def tables() -> dict[str, Any]:
    """In the order in which they are created: columns, primary key, constraints."""
    return {**contents(), **conversations(), **items(), **responses(), **usage()}


def contents() -> dict[str, Any]:
    """Tenants with their API keys, and what their rows share by content."""
    shared = (BIG, "tenant_id"), (HASH, "hash")
    written = (MOMENT, "created_at")
    return {
        "tenants": (columns((BIG, "id"), (IDENTIFIER, "name"), written), "id", unique("name", "name")),
        "api_keys": (
            columns(
                (BIG, "tenant_id id"), (HASH, "secret_hash"), (IDENTIFIER, "user_id? scopes label?"),
                (MOMENT, "created_at last_used_at? expires_at? revoked_at?"),
            ),
            "tenant_id id", to_tenant(), unique("id", "id", "tenant_id"),
        ),
        "configs": (columns(*shared, (TEXT, "config"), written), "tenant_id hash", to_tenant()),
        "tool_definitions": (
            columns(
                *shared, (IDENTIFIER, "type name?"), (TEXT, "definition"), written, (MOMENT, "unused_at?")
            ),
            "tenant_id hash", to_tenant(),
        ),
        "tool_sets": (columns(*shared, (TEXT, "definitions"), written), "tenant_id hash", to_tenant()),
        "blobs": (
            columns(*shared, (BYTES, "content?"), (IDENTIFIER, "location? media_type?"), (BIG, "size"), written),
            "tenant_id hash", to_tenant(),
        ),
    }  # fmt: skip


def conversations() -> dict[str, Any]:
    return {
        "conversations": (
            columns(
                (BIG, "tenant_id id"), (SHORT_HASH, "public_id"), (IDENTIFIER, "external_id? user_id?"),
                (TEXT, "title? labels? properties?"), (IDENTIFIER, "status"), (HASH, "config_hash tool_set_hash?"),
                (NUMBER, "active_branch"), (BIG, "next_position"), (NUMBER, "next_response next_branch"),
                (BIG, "head_position"), (TEXT, "lineage?"), (NUMBER, "revision"),
                (MOMENT, "created_at last_activity_at"),
                (NUMBER, "streams?"), (BIG, "search_from?"), (IDENTIFIER, "creation_key?"),
            ),
            "tenant_id id",
            to_tenant(), *to_options(), unique("public_id", "public_id", "tenant_id"),
        ),
        "conversation_labels": (
            columns((BIG, "tenant_id conversation_id"), (IDENTIFIER, "key value")),
            "tenant_id conversation_id key", to_conversation(),
        ),
        "conversation_states": (
            columns(
                (BIG, "tenant_id conversation_id"), (IDENTIFIER, "name"), (NUMBER, "version"), (TEXT, "value?"),
                (MOMENT, "updated_at"),
            ),
            "tenant_id conversation_id name", to_conversation(),
        ),
        "conversation_reads": (
            columns(
                (BIG, "tenant_id conversation_id"), (IDENTIFIER, "user_id"), (BIG, "position"), (MOMENT, "seen_at")
            ),
            "tenant_id conversation_id user_id", to_conversation(),
        ),
        "branches": (
            columns(
                (BIG, "tenant_id conversation_id"), (NUMBER, "number parent"),
                (BIG, "fork_position from_position head_position"), (TEXT, "lineage"), (MOMENT, "created_at"),
            ),
            "tenant_id conversation_id number", to_conversation(),
        ),
        "context_caches": (
            columns(
                (BIG, "tenant_id"), (IDENTIFIER, "account model"), (HASH, "hash"), (BIG, "conversation_id"),
                (NUMBER, "branch turns answer"), (SHORT_HASH, "token"), (MOMENT, "claim_until?"), (TEXT, "name?"),
                (MOMENT, "expires_at?"), (SMALL, "is_shared"), (MOMENT, "created_at"),
            ),
            "tenant_id account model hash", to_conversation(),
        ),
    }  # fmt: skip


def items() -> dict[str, Any]:
    words = TEXT.with_variant(postgresql.TSVECTOR(), "postgresql")
    place = (BIG, "tenant_id conversation_id position")

    def to_item() -> sa.ForeignKeyConstraint:
        return refers("items", tenant_id="tenant_id", conversation_id="conversation_id", position="position")

    def to_blob() -> sa.ForeignKeyConstraint:
        return refers("blobs", "RESTRICT", tenant_id="tenant_id", hash="hash")

    return {
        "items": (
            [
                *columns(
                    (BIG, "tenant_id conversation_id position"), (NUMBER, "branch"), (BIG, "turn? seen?"),
                    (TEXT, "item_id?"), (SHORT_HASH, "item_hash?"), (TEXT, "call_id?"), (SHORT_HASH, "call_hash?"),
                    (IDENTIFIER, "type role? status? name? author_id? origin? model? maker?"),
                ),
                generated("packed", PACKED),
                *columns((TEXT, "payload? rest? given?"), (SMALL, "codec"), (MOMENT, "created_at")),
            ],
            "tenant_id conversation_id position", to_conversation(),
        ),
        "item_blobs": (
            columns(
                (BIG, "tenant_id conversation_id position"), (SMALL, "part ordinal"), (BIG, "splice_at"),
                (HASH, "hash"),
            ),
            "tenant_id conversation_id position part ordinal", to_item(), to_blob(),
        ),
        "uploads": (
            columns((BIG, "tenant_id"), (HASH, "hash"), (IDENTIFIER, "user_id media_type?"), (MOMENT, "expires_at")),
            "tenant_id hash user_id", to_blob(),
        ),
        "item_labels": (
            columns(place, (IDENTIFIER, "key value")), "tenant_id conversation_id position key", to_item(),
        ),
        "item_feedback": (
            columns(
                place, (IDENTIFIER, "user_id"), (NUMBER, "rating?"), (TEXT, "comment?"), (MOMENT, "updated_at")
            ),
            "tenant_id conversation_id position user_id", to_item(),
        ),
        "approvals": (
            columns(
                place, (IDENTIFIER, "decision"), (TEXT, "reason?"), (IDENTIFIER, "decided_by?"), (MOMENT, "created_at")
            ),
            "tenant_id conversation_id position", to_item(),
        ),
        "search_documents": (
            columns(
                (BIG, "tenant_id id conversation_id position"), (NUMBER, "branch"), (IDENTIFIER, "type role?"),
                (MOMENT, "created_at"), (TEXT, "text"), (words, "words?"), (IDENTIFIER, "scope?"),
            ),
            "tenant_id id", to_conversation(), unique("position", "tenant_id", "conversation_id", "position"),
        ),
    }  # fmt: skip


def responses() -> dict[str, Any]:
    def to_response() -> sa.ForeignKeyConstraint:
        return refers("responses", tenant_id="tenant_id", conversation_id="conversation_id", number="number")

    return {
        "responses": (
            columns(
                (BIG, "tenant_id conversation_id"), (NUMBER, "number"), (TEXT, "provider_response_id?"),
                (SHORT_HASH, "response_hash?"), (NUMBER, "branch"), (BIG, "input_to from_position to_position"),
                (TEXT, "view?"), (HASH, "config_hash tool_set_hash?"), (IDENTIFIER, "format"), (TEXT, "model?"),
                (IDENTIFIER, "status?"), (TEXT, "finish_reason? incomplete_details? error? provider_data?"),
                (MOMENT, "created_at completed_at? lease_until?"), (SHORT_HASH, "lease_token?"),
                (NUMBER, "open_branch?"), (MOMENT, "cancel_requested_at? deleted_at?"),
            ),
            "tenant_id conversation_id number", to_conversation(), *to_options(),
        ),
        "stream_parts": (
            columns(
                (BIG, "tenant_id conversation_id"), (NUMBER, "number part"), (TEXT, "content"),
                (BIG, "first_token_ms?"), (MOMENT, "created_at"),
            ),
            "tenant_id conversation_id number part", to_response(),
        ),
        "response_bodies": (
            columns(
                (BIG, "tenant_id conversation_id"), (NUMBER, "number"), (SMALL, "codec"), (BYTES, "body"),
                (MOMENT, "created_at"),
            ),
            "tenant_id conversation_id number", to_response(),
        ),
        "appends": (
            columns(
                (BIG, "tenant_id conversation_id"), (IDENTIFIER, "key"), (HASH, "request_hash"), (TEXT, "outcome"),
                (MOMENT, "created_at"),
            ),
            "tenant_id conversation_id key", to_tenant(),
        ),
        "changes": (
            columns(
                (BIG, "tenant_id id conversation_id"), (SHORT_HASH, "public_id"), (IDENTIFIER, "kind"),
                (NUMBER, "branch?"), (BIG, "from_position? to_position? transaction_id?"), (MOMENT, "created_at"),
            ),
            "tenant_id id",
        ),
    }  # fmt: skip


def usage() -> dict[str, Any]:
    """The ledger, and its sums of days."""
    tokens = " ".join(f"{name}?" for name in TOKENS)
    day = (BIG, "tenant_id"), (DATE, "day")
    sums = (
        BIG,
        f"attempts {tokens} cost_nano? latency_ms? first_token_ms? cache_known_tokens? costs latencies first_tokens",
    )

    def to_day() -> sa.ForeignKeyConstraint:
        return refers("usage_days", tenant_id="tenant_id", day="day")

    return {
        "usage_records": (
            columns(
                (BIG, "tenant_id id"), (DATE, "day"), (MOMENT, "occurred_at"), (IDENTIFIER, "user_id?"),
                (BIG, "conversation_id"), (NUMBER, "response?"), (HASH, "tool_set_hash?"),
                (IDENTIFIER, "provider? model? format status?"),
                (BIG, f"latency_ms? first_token_ms? {tokens} cost_nano?"), (TEXT, "usage? error? price? terms?"),
            ),
            "tenant_id id",
        ),
        "usage_days": (columns(*day, (MOMENT, "filled_at?")), "tenant_id day", to_tenant()),
        "usage_daily": (
            columns(*day, (NUMBER, "number"), (IDENTIFIER, "provider? model? format status?"), sums),
            "tenant_id day number", to_day(),
        ),
        "usage_daily_models": (
            columns(*day, (NUMBER, "number"), (IDENTIFIER, "model?"), sums), "tenant_id day number", to_day(),
        ),
        "usage_daily_sketches": (
            columns(
                *day, (NUMBER, "number"), (IDENTIFIER, "provider? model? format status?"),
                (TEXT, "latency_ms? first_token_ms?"),
            ),
            "tenant_id day number", to_day(),
        ),
    }  # fmt: skip


def indexes() -> Iterator[tuple[str, str, list[str], dict[str, Any]]]:
    """Table, name, columns, options."""

    def where(condition: str) -> dict[str, Any]:
        return {"postgresql_where": sa.text(condition), "sqlite_where": sa.text(condition)}

    external_id = where("external_id IS NOT NULL") | {"unique": True}
    yield "api_keys", "user", ["user_id", "tenant_id", "id"], {}
    yield "conversations", "external_id", ["tenant_id", "external_id"], external_id
    yield "conversations", "activity", ["status", "tenant_id", "last_activity_at", "id"], {}
    yield "conversations", "user_activity", ["user_id", "tenant_id", "status", "last_activity_at", "id"], {}
    yield "conversations", "search", ["tenant_id", "search_from", "id"], where("search_from IS NOT NULL")
    yield "conversation_labels", "value", ["tenant_id", "key", "value", "conversation_id"], {}
    yield "conversation_reads", "user_id", ["tenant_id", "user_id"], {}
    yield "context_caches", "conversation_id", ["tenant_id", "conversation_id"], {}
    yield "items", "call", ["tenant_id", "call_hash"], where("call_hash IS NOT NULL")
    item = ["tenant_id", "item_hash", "conversation_id", "position"]
    yield "items", "item", item, where("item_hash IS NOT NULL")
    marks = "type = 'message' AND role IN ('system', 'developer') OR type IN ('compaction', 'compaction_undone')"
    yield "items", "marks", ["tenant_id", "conversation_id", "type", "role"], where(marks)
    yield "item_blobs", "hash", ["tenant_id", "hash"], {}
    on_uploads = {"postgresql_where": sa.text("expires_at IS NOT NULL")}
    yield "uploads", "expires_at", ["tenant_id", "expires_at"], on_uploads
    yield "uploads", "user", ["user_id", "tenant_id", "hash"], {}
    yield "item_labels", "value", ["tenant_id", "key", "value", "conversation_id", "position"], {}
    yield "item_feedback", "user_id", ["tenant_id", "user_id"], {}
    yield "item_feedback", "rating", ["tenant_id", "rating", "conversation_id", "position"], {}
    yield "approvals", "decided_by", ["tenant_id", "decided_by"], {}
    open_branch = where("open_branch IS NOT NULL") | {"unique": True}
    yield "responses", "open_branch", ["tenant_id", "conversation_id", "open_branch"], open_branch
    by_id = ["tenant_id", "response_hash", "conversation_id", "number"]
    yield "responses", "response", by_id, where("response_hash IS NOT NULL")
    for table in ("conversations", "responses"):
        on_all = {"postgresql_where": sa.text("config_hash IS NOT NULL")}
        yield table, "config", ["tenant_id", "config_hash"], on_all
        yield table, "tool_set", ["tenant_id", "tool_set_hash"], where("tool_set_hash IS NOT NULL")
    yield "changes", "transaction", ["tenant_id", "transaction_id"], where("transaction_id IS NOT NULL")
    full_text = {"postgresql_using": "gin", "mysql_prefix": "FULLTEXT", "mariadb_prefix": "FULLTEXT"}
    # on SQLite the full text is in a table of its own, and this index is empty
    yield "search_documents", "words", ["words"], full_text | {"sqlite_where": sa.text("0")}
    by_model = ["model", "provider", "format", "status"]
    yield "usage_records", "by_day", ["tenant_id", "day", *by_model, "user_id", *FIGURES], {}
    yield "usage_records", "by_user", ["tenant_id", "user_id", "day", *by_model, *FIGURES], {}
    yield "usage_records", "by_conversation", ["tenant_id", "conversation_id", "response", "day", "model", *FIGURES], {}


# It keeps no text: that stands in the documents.
SEARCH_INDEX = (
    "CREATE VIRTUAL TABLE threadkeep_search_index "
    "USING fts5(words, scope, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2')"
)

# PostgreSQL sums bigint as numeric, and making that of every group takes longer than summing days up. This aggregate
# gives NULL for nothing but NULLs, too, and fails where a sum goes beyond 64 bits.
SUM_AGGREGATE = (
    "CREATE AGGREGATE threadkeep_sum(bigint) (sfunc = int8pl, stype = bigint, combinefunc = int8pl, parallel = safe)"
)

# Content parts of a message as a JSON array, NULL where the text is not JSON. PostgreSQL refuses U+0000 and lone
# surrogates in JSON: they become U+FFFD. One line, because administrators' scripts are split at semicolons.
PARTS_FUNCTION = (
    "CREATE FUNCTION threadkeep_parts(payload text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $body$ "
    "DECLARE content jsonb; BEGIN "
    "BEGIN content := payload::jsonb -> 'content'; EXCEPTION WHEN data_exception THEN "
    r"content := regexp_replace(payload, '(?<!\\)((\\\\)*)\\u(0000|d[89a-f][0-9a-f]{2})', '\1\\ufffd', 'gi')"
    "::jsonb -> 'content'; END; "
    "RETURN CASE jsonb_typeof(content) WHEN 'array' THEN content "
    "WHEN 'string' THEN jsonb_build_array(jsonb_build_object('text', content)) END; "
    "EXCEPTION WHEN data_exception THEN RETURN NULL; END $body$"
)

# SQLite would end a text at U+0000, and give lone surrogates as bytes that are no UTF-8, which no client can read: here
# the former become U+FFFD and the latter stay escapes (they only stand in texts that the fast JSON writer refused).
# U+0001 is in no JSON text: it stands for an escaped backslash meanwhile.
SQLITE_REPAIRED = (
    r"replace(replace(replace(replace({0}, '\\', char(1)), '\u0000', '\ufffd'), '\ud', '\\ud'), char(1), '\\')"
)
SQLITE_TEXT = (
    r"CASE WHEN i.codec & 1 OR instr(i.payload, '\u0000') THEN "
    f"{SQLITE_REPAIRED.format('i.payload')} ELSE i.payload END"
)


def members_of(dialect: str, column: str, path: str) -> tuple[str, str]:
    """The members of a JSON object that a text has at a path of at most one name, and the value of a member `m`."""
    if dialect == "sqlite":
        text = SQLITE_REPAIRED.format(column)
        value = "CASE WHEN m.type IN ('true', 'false') THEN m.type ELSE CAST(m.value AS TEXT) END"
        return f"JOIN json_each(CASE WHEN json_valid({column}) THEN {text} ELSE json_object() END, '{path}') m", value
    if dialect == "postgresql":  # of a list with the object, which the function repairs
        found = f"""threadkeep_parts('{{{{"content":[' || {column} || ']}}}}') -> 0"""
        found += "".join(f" -> '{name}'" for name in path.split(".")[1:])
        each = f"jsonb_each_text(CASE jsonb_typeof({found}) WHEN 'object' THEN {found} END)"
        return f"CROSS JOIN LATERAL {each} AS m (name, value)", "m.value"
    names = f"JSON_KEYS(CASE WHEN JSON_VALID({column}) THEN {column} ELSE JSON_OBJECT() END, '{path}')"
    each = f"JSON_TABLE(COALESCE({names}, JSON_ARRAY()), '$[*]' COLUMNS (name LONGTEXT PATH '$'))"
    return f"JOIN {each} m", f"JSON_UNQUOTE(JSON_EXTRACT({column}, CONCAT('{path}.', JSON_QUOTE(m.name))))"


# dialect -> what stands in braces in the texts of the views; {0} is the argument
SPELLINGS = {
    "sqlite": {
        "name": "{0}",
        "conversation": "'conv_' || nullif(lower(hex({0})), '')",
        "hex": "nullif(lower(hex({0})), '')",
        "sum": "sum({0})",
        "parts": (
            f"JOIN json_each(CASE WHEN NOT json_valid({SQLITE_TEXT}) THEN json_object() "
            f"WHEN json_type({SQLITE_TEXT}, '$.content') = 'text' THEN json_object('content', "
            f"json_array(json_object('text', json_extract({SQLITE_TEXT}, '$.content')))) "
            f"ELSE {SQLITE_TEXT} END, '$.content') p"
        ),
        "part": "p.key",
        "text": "CASE WHEN p.type = 'object' THEN json_extract(p.value, '$.text') END",
        "day": "date({0})",
        "week": "date({0}, 'weekday 0', '-6 days')",
        "waited": "CAST(round((julianday(o.created_at) - julianday(i.created_at)) * 86400000) AS INTEGER)",
        "lineage": (
            "(SELECT json_extract(l.value, '$[0]') FROM json_each({0}) l "
            "WHERE json_extract(l.value, '$[1]') >= i.position ORDER BY json_extract(l.value, '$[1]') LIMIT 1)"
        ),
    },
    "postgresql": {
        "name": "{0}",
        "conversation": "'conv_' || encode({0}, 'hex')",
        "hex": "encode({0}, 'hex')",
        "sum": "CAST(sum({0}) AS bigint)",
        "parts": "CROSS JOIN LATERAL jsonb_array_elements(threadkeep_parts(i.payload)) WITH ORDINALITY AS p (value, n)",
        "part": "p.n - 1",
        "text": "p.value ->> 'text'",
        "day": "CAST({0} AT TIME ZONE 'UTC' AS date)",
        "week": "CAST(date_trunc('week', {0} AT TIME ZONE 'UTC') AS date)",
        "waited": "CAST(extract(epoch FROM (o.created_at - i.created_at)) * 1000 AS bigint)",
        "lineage": (
            "(SELECT CAST(l.value ->> 0 AS bigint) FROM jsonb_array_elements(CAST({0} AS jsonb)) AS l (value) "
            "WHERE CAST(l.value ->> 1 AS bigint) >= i.position ORDER BY CAST(l.value ->> 1 AS bigint) LIMIT 1)"
        ),
    },
    "mysql": {
        "name": "CONVERT({0} USING utf8mb4)",
        "conversation": "CONCAT('conv_', LOWER(HEX({0})))",
        "hex": "LOWER(HEX({0}))",
        "sum": "CAST(sum({0}) AS SIGNED)",
        "parts": (
            "JOIN JSON_TABLE(CASE WHEN NOT JSON_VALID(i.payload) THEN JSON_OBJECT() "
            "WHEN JSON_TYPE(JSON_EXTRACT(i.payload, '$.content')) = 'STRING' THEN JSON_OBJECT('content', "
            "JSON_ARRAY(JSON_OBJECT('text', JSON_UNQUOTE(JSON_EXTRACT(i.payload, '$.content'))))) ELSE i.payload END, "
            "'$.content[*]' COLUMNS (n FOR ORDINALITY, text LONGTEXT PATH '$.text')) p"
        ),
        "part": "p.n - 1",
        "text": "p.text",
        "day": "DATE({0})",
        "week": "SUBDATE(DATE({0}), WEEKDAY({0}))",
        "waited": "TIMESTAMPDIFF(MICROSECOND, i.created_at, o.created_at) DIV 1000",
        "lineage": (
            "(SELECT l.branch FROM JSON_TABLE({0}, '$[*]' "
            "COLUMNS (branch BIGINT PATH '$[0]', last BIGINT PATH '$[1]')) l "
            "WHERE l.last >= i.position ORDER BY l.last LIMIT 1)"
        ),
    },
}


def views(dialect: str) -> dict[str, str]:
    """The statements that create them, by name."""
    spellings = {**SPELLINGS[dialect], "member": "m.key" if dialect == "sqlite" else "m.name"}
    spellings["properties"], spellings["property"] = members_of(dialect, "c.properties", "$")
    spellings["tags"], spellings["tag"] = members_of(dialect, "g.config", "$.metadata")
    template = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    text = re.sub(r"\{(\w+)(?: ([^{}]+))?\}", lambda match: spellings[match[1]].format(match[2]), template)
    return {match[1]: match[0] for match in re.finditer(r"^CREATE VIEW (\w+) AS\n[^;]*", text, re.MULTILINE)}
