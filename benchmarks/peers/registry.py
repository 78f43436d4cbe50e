"""Which libraries are measured, and in which environment each is installed."""

from __future__ import annotations

from typing import Final

from benchmarks.peers.processes import OWN, Peer

_SHARED: Final = "shared"
_BOTH: Final = ("sqlite", "postgresql")

# module of the adapter -> its environment, what it is called, the databases
_LIBRARIES: Final = {
    "smallest": (OWN, "smallest floor (by hand)", _BOTH),
    "threadkeep": (OWN, "threadkeep", _BOTH),
    "threadkeep_twice": (OWN, "threadkeep, question stored first", _BOTH),
    "agents_sqlite": (_SHARED, "openai-agents SQLiteSession", ("sqlite",)),
    "agents_advanced": (_SHARED, "openai-agents AdvancedSQLiteSession", ("sqlite",)),
    "agents_sqlalchemy": (_SHARED, "openai-agents SQLAlchemySession", _BOTH),
    "rosetta": (_SHARED, "openai-agents SQLiteSession + llm-rosetta", ("sqlite",)),
    "langchain_postgres": (_SHARED, "langchain-postgres", ("postgresql",)),
    "langgraph": (_SHARED, "langgraph checkpointer", _BOTH),
    "simonw_llm": (_SHARED, "simonw's llm", ("sqlite",)),
    "agno": (_SHARED, "agno Db", _BOTH),
    "google_adk": ("adk", "google-adk DatabaseSessionService", _BOTH),
    "pydantic_ai_rows": (_SHARED, "pydantic-ai, a row a run (by hand)", _BOTH),
}
PEERS: Final = tuple(
    Peer(f"benchmarks.peers.{module}", environment, database, name)
    for module, (environment, name, databases) in _LIBRARIES.items()
    for database in databases
)
