"""`threadkeep.models` in an application: joins, relationships, its own foreign keys, and no writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import BigInteger, Engine, ForeignKeyConstraint, delete, func, select
from sqlalchemy.exc import IntegrityError, InvalidRequestError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.databases import Database
from tests.factories import an_answer, an_output
from threadkeep import Conversation, Store, models


class Base(DeclarativeBase):
    """The application's own tables."""


def refers(**options: Any) -> ForeignKeyConstraint:
    key = [models.Conversation.public_id, models.Conversation.tenant_id]
    return ForeignKeyConstraint(["conversation_id", "tenant_id"], key, **options)


class Ticket(Base):
    __tablename__ = "tickets"
    __table_args__ = (refers(ondelete="CASCADE"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    conversation_id: Mapped[str] = mapped_column(models.PublicId)
    tenant_id: Mapped[int] = mapped_column(BigInteger)

    conversation: Mapped[models.Conversation] = relationship(models.Conversation)


class Bookmark(Base):
    __tablename__ = "bookmarks"
    __table_args__ = (refers(ondelete="SET NULL"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    conversation_id: Mapped[str | None] = mapped_column(models.PublicId)
    tenant_id: Mapped[int | None] = mapped_column(BigInteger)

    conversation: Mapped[models.Conversation | None] = relationship(models.Conversation)


class Invoice(Base):
    __tablename__ = "invoices"
    __table_args__ = (refers(),)

    id: Mapped[int] = mapped_column(primary_key=True)
    conversation_id: Mapped[str] = mapped_column(models.PublicId)
    tenant_id: Mapped[int] = mapped_column(BigInteger)

    conversation: Mapped[models.Conversation] = relationship(models.Conversation)


@pytest.fixture
def store(empty_database: Database, engine: Engine) -> Iterator[Store]:
    """A store in a database that has the tables of the application, too."""
    Base.metadata.create_all(engine)
    with Store(empty_database.url) as opened:
        yield opened


@pytest.fixture
def conversation(store: Store) -> Conversation:
    made = store.create_conversation(model="m", input="Hi", user_id="ann", labels={"plan": "gold"})
    made.add_response(an_answer("Hello", calls=("c",)), "open_responses")
    made.approve("c")
    made.add_item(an_output("c"))
    made.label_item(0, {"mood": "good"})
    made.set_feedback(0, rating=1)
    made.set_state("run", {"step": 1})
    made.mark_seen("ann")
    made.fork(at=0).user("Again")
    return made


def row_of(session: Session, conversation: Conversation) -> models.Conversation:
    return session.scalars(select(models.Conversation).where(models.Conversation.api_id == conversation.id)).one()


def test_relationships_lead_through_a_conversation(engine: Engine, conversation: Conversation) -> None:
    with Session(engine) as session:
        row = row_of(session, conversation)
        assert row.api_id == conversation.id
        assert session.scalar(select(models.Conversation.api_id)) == conversation.id
        assert (row.tenant.name, row.tool_set, row.config.hash) == ("default", None, row.config_hash)
        assert [item.position for item in row.items] == [0, 1, 2, 3, 4]
        assert all(item.conversation is row for item in row.items)
        assert [response.number for response in row.responses] == [0]
        response = row.responses[0]
        assert (response.conversation, response.config) == (row, row.config)
        assert [item.position for item in response.items] == [1, 2]
        assert response.body is not None
        assert [record.response for record in response.usage_records] == [0]
        assert row.usage_records == response.usage_records
        assert row.usage_records[0].conversation is row
        assert [branch.number for branch in row.branches] == [1]
        assert [(label.key, label.value) for label in row.label_rows] == [("plan", "gold")]
        assert [state.name for state in row.states] == ["run"]
        assert [read.user_id for read in row.reads] == ["ann"]
        first, call = row.items[0], row.items[2]
        assert [(label.key, label.value) for label in first.labels] == [("mood", "good")]
        assert [feedback.rating for feedback in first.feedback] == [1]
        assert first.media == []
        assert call.approval is not None
        assert call.approval.decision == "approved"


def test_joins_with_a_model_of_the_application(engine: Engine, conversation: Conversation) -> None:
    with Session(engine) as session:
        session.add(Ticket(conversation=row_of(session, conversation)))
        session.commit()
        items = (
            select(Ticket.conversation_id, func.count())
            .join(Ticket.conversation)
            .join(models.Conversation.items)
            .where(models.Item.branch == 0)
            .group_by(Ticket.conversation_id)
        )
        assert session.execute(items).all() == [(conversation.id, 4)]
        tokens = select(func.sum(models.UsageRecord.total_tokens)).select_from(Ticket)
        tokens = tokens.join(Ticket.conversation).join(models.Conversation.usage_records)
        assert session.scalar(tokens) == conversation.usage().total_tokens
        ticket = session.scalars(select(Ticket).where(Ticket.conversation_id == conversation.id)).one()
        assert (ticket.conversation_id, ticket.conversation.user_id) == (conversation.id, "ann")


def add(engine: Engine, kind: type[Any], conversation: Conversation) -> None:
    """A row of the application that names the conversation by the id that the API gives."""
    with Session(engine) as session:
        tenant = session.scalar(select(models.Tenant.id).where(models.Tenant.name == "default"))
        session.add(kind(conversation_id=conversation.id, tenant_id=tenant))
        session.commit()


def test_rows_go_with_their_conversation(store: Store, engine: Engine, conversation: Conversation) -> None:
    other = store.create_conversation(input="Hi")
    add(engine, Ticket, conversation)
    add(engine, Ticket, other)
    store.delete_conversation(conversation.id)
    with Session(engine) as session:
        assert session.scalars(select(Ticket.conversation_id)).all() == [other.id]
        assert session.scalars(select(models.UsageRecord)).one().conversation is None


def test_rows_lose_their_conversation(store: Store, engine: Engine, conversation: Conversation) -> None:
    add(engine, Bookmark, conversation)
    store.delete_conversation(conversation.id)
    with Session(engine) as session:
        bookmark = session.scalars(select(Bookmark)).one()
        assert (bookmark.conversation_id, bookmark.tenant_id, bookmark.conversation) == (None, None, None)


def test_rows_keep_the_row_of_their_conversation(store: Store, engine: Engine, conversation: Conversation) -> None:
    """The conversation is not found any more; once the application's row is gone, its own is removed, too."""
    add(engine, Invoice, conversation)
    with pytest.raises(IntegrityError):
        store.delete_conversation(conversation.id)
    assert list(store.list_conversations()) == []
    with Session(engine) as session:
        assert row_of(session, conversation).status == "deleted"
        session.execute(delete(Invoice))
        session.commit()
    store.erase_user("ann")
    with Session(engine) as session:
        assert session.scalars(select(models.Conversation)).all() == []


def test_a_row_without_its_conversation_is_refused(engine: Engine, store: Store, conversation: Conversation) -> None:
    store.delete_conversation(conversation.id)
    engine.dispose()
    if engine.dialect.name != "sqlite":  # which looks at foreign keys where it is asked to
        with pytest.raises(IntegrityError):
            add(engine, Ticket, conversation)


@pytest.mark.parametrize("text", ["conv_1", "7", ""])
def test_what_cannot_be_an_id_is_refused(text: str) -> None:
    kind = models.PublicId()
    with pytest.raises(ValueError, match="conv"):
        kind.process_bind_param(text, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", ["insert", "update", "delete"])
def test_the_orm_writes_nothing(store: Store, engine: Engine, conversation: Conversation, change: str) -> None:
    with Session(engine) as session:
        row = row_of(session, conversation)
        if change == "insert":
            session.add(models.ConversationLabel(tenant_id=row.tenant_id, conversation_id=row.id, key="a", value="b"))
        elif change == "update":
            row.title = "Another"
        else:
            session.delete(row.label_rows[0])
        with pytest.raises(InvalidRequestError, match=r"threadkeep_conversation.* are read-only in the ORM"):
            session.commit()
    stored = store.get_conversation(conversation.id)
    assert (stored.title, stored.labels) == (None, {"plan": "gold"})


def test_collections_write_nothing(engine: Engine, conversation: Conversation) -> None:
    """As `viewonly` has it: what is taken out of a collection stays where it is."""
    with Session(engine) as session:
        row_of(session, conversation).items.clear()
        session.commit()
        assert len(row_of(session, conversation).items) == 5
