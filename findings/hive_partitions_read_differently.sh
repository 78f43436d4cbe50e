#!/usr/bin/env bash
# The names of Hive partitions are read differently by engines, from the same files:
# - DuckDB (and Spark) undo the escapes of Hive: tenant=a%2Fb is the tenant a/b. ClickHouse does not: it is a%2Fb.
# - ClickHouse guesses the type from the names of all files that are read together: tenant=007 alone is the number 7, and
#   beside tenant=a%2Fb it is the text 007. With another set of tenants, the same query has another type and another
#   value. DuckDB reads a text both times.
# So what must be exact is a column of the files as well.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 chdb==4.4.0 chdb-core==26.9.0
cat > "$folder/run.py" <<'PYTHON'
import sys
from importlib.metadata import version
from pathlib import Path

import chdb
import duckdb

print("duckdb", version("duckdb"), "chdb-core", version("chdb-core"))
root = Path(sys.argv[1])
for tenant in ("a%2Fb", "007"):
    place = root / "table" / f"tenant={tenant}"
    place.mkdir(parents=True)
    duckdb.sql(f"COPY (SELECT 1 AS n) TO '{place}/data.parquet' (FORMAT parquet)")


def tenants(files):
    duck = duckdb.sql(f"SELECT tenant, typeof(tenant) FROM read_parquet('{files}') ORDER BY ALL").fetchall()
    sql = f"SELECT tenant, toTypeName(tenant) FROM file('{files}', Parquet) ORDER BY tenant"
    house = str(chdb.query(sql + " SETTINGS use_hive_partitioning = 1", "TSV")).splitlines()
    return duck, [tuple(line.split("\t")) for line in house]


one, both = tenants(root / "table/tenant=007/data.parquet"), tenants(root / "table/*/data.parquet")
print("tenant=007:", *one, "\nboth:", *both)
as_known = (
    one[0] == [("007", "VARCHAR")] and both[0] == [("007", "VARCHAR"), ("a/b", "VARCHAR")]
    and one[1] == [("7", "Int64")] and [tenant for tenant, _ in both[1]] == ["007", "a%2Fb"]
)
print("as expected" if as_known else "the behaviour has changed")
sys.exit(0 if as_known else 1)
PYTHON
"$folder/venv/bin/python" "$folder/run.py" "$folder"
