"""Commands about the keys of the server's API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Argument, Option

from threadkeep.cli.options import After, OnlyUser, Text, duration_of, on_target
from threadkeep.cli.output import Column, note, record
from threadkeep.cli.target import Target
from threadkeep.domain.api_keys import ApiKey
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep import NewApiKey, Store

commands = typer.Typer(help="Make, list and revoke keys of the server.")
KEYS: Final = (
    Column("id", no_wrap=True), Column("tenant", drop_order=4), Column("user", "user_id", drop_order=3),
    Column("scopes", drop_order=2), Column("label", drop_order=5), Column("state"),
    Column("expires", "expires_at", is_time=True, drop_order=6),
    Column("last used", "last_used_at", is_time=True, drop_order=1),
)  # fmt: skip
FIELDS: Final = ("id", "tenant", "user_id", "label", "created_at", "last_used_at", "expires_at", "revoked_at")
ALL_SCOPES: Final = "read,write,usage"


def _record(key: ApiKey) -> dict[str, Any]:
    """What is printed of a key."""
    now = datetime.now(UTC)
    state = "valid" if key.is_valid(now) else "revoked" if key.revoked_at is not None else "expired"
    return record(key, *FIELDS) | {"scopes": ",".join(sorted(key.scopes)), "state": state}


@commands.command("create")
@on_target()
def create(
    target: Target,
    *,
    user: Annotated[Text, Option("--user", metavar="ID", help="The user whose conversations it shows.")] = None,
    scope: Annotated[
        str, Option("--scope", metavar="SCOPES", help="What it allows: read, write, usage, with commas.")
    ] = ALL_SCOPES,
    expires: Annotated[Text, Option("--expires", metavar="TIME", help="Refuse it after so long: 90d, 2w, 12h.")] = None,
    label: Annotated[Text, Option("--label", metavar="TEXT", help="Your own words for it.")] = None,
) -> None:
    """Make a key, and print it.

    It is shown only once: the database has a hash of it. Without --user, it shows the conversations of all users.
    """
    scopes: Any = [name.strip() for name in scope.split(",")]

    def make(store: Store) -> NewApiKey:
        return store.keys.create(user_id=user, scopes=scopes, label=label, expires_at=_end(expires))

    with target.store(create=True, first=make) as store:
        made = make(store)
    target.report(_record(made.key) | {"secret": made.secret}, made.secret)
    if not target.is_json:
        note(f"threadkeep: this is the key {made.key.id}; it cannot be shown again")


@commands.command("ls")
@on_target()
def ls(target: Target, *, user: OnlyUser = None, after: After = None) -> None:
    """List keys, without their secrets.

    Without --tenant, the keys of all tenants.
    """
    with target.store(all_tenants=target.tenant is None) as store:
        page = store.keys.list(user_id=user, after=after)
    target.report_list("keys", [_record(key) for key in page], KEYS, empty="no keys", next=page.next)


@commands.command("revoke")
@on_target()
def revoke(
    target: Target, *, id: Annotated[str, Argument(metavar="ID", help="Id of the key (key_…).", show_default=False)]
) -> None:
    """Refuse a key from now on.

    Servers that are running notice after a few seconds.
    """
    with target.store(all_tenants=target.tenant is None) as store:
        key = store.keys.revoke(id)
    target.report(_record(key), f"The key {key.id} is revoked.")


def _end(expires: str | None) -> datetime | None:
    """When a key expires that is to last so long."""
    try:
        return None if expires is None else datetime.now(UTC) + duration_of(expires)
    except (ValueError, OverflowError) as error:
        raise InvalidOption(f"--expires must be a duration such as 90d, 2w or 12h, not {expires!r}.") from error
