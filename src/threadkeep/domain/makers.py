"""Makers: who gave an item of an answer, which decides where it may go back.

What only its maker can read, such as signatures, encrypted content and ids of what a provider keeps, is sent to that
maker alone. A format is no maker: many providers speak the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from threadkeep.errors import InvalidItem

COMPATIBLE: Final = "compatible"  # the dialect that names no vendor
_LONGEST: Final = 255  # characters, as a column holds them


class Maker(NamedTuple):
    """The provider that gave an answer, as far as it is known.

    Attributes:
        provider: its name, as in the usage ledger.
        model: the model that the answer names.
        account: the account at the provider.
        asked: the model that the request named, where that is another one: an alias, or the name of a deployment.
    """

    provider: str | None = None
    model: str | None = None
    account: str | None = None
    asked: str | None = None

    def answering(self, model: str | None) -> Maker:
        """Return the maker of an answer that names this model, where this is of whom it was asked."""
        is_other = model is not None and model != self.asked
        return self._replace(model=model or self.asked, asked=self.asked if is_other else None)

    @property
    def text(self) -> str | None:
        """The maker as one word, which `maker_from` reads, with a slash in it; None where nothing is known."""
        for parts in (self, self[:3], (self.provider, None, self.account), (self.provider,), ()):
            text = "/".join(quote(part or "", safe="", errors="replace") for part in parts).rstrip("/")
            if len(text) <= _LONGEST:
                return text if "/" in text else f"{text}/" if text else None
        return None


@lru_cache(maxsize=1024)
def maker_from(text: str) -> Maker:
    """Return the maker that a word stands for; raise InvalidItem if it is none."""
    parts = [unquote(part) or None for part in text.split("/")]
    if len(parts) > len(Maker._fields):
        raise InvalidItem(f"must be PROVIDER/MODEL/ACCOUNT/MODEL, each part quoted as in URLs, not {text!r}.")
    return Maker(*parts)


def asked_of(
    settings: Mapping[str, Any],
    view: Mapping[str, Any] | None = None,
    provider: str | None = None,
    account: str | None = None,
) -> Maker:
    """Return of whom an answer is asked: as the application says, else as the request or the session options do."""
    given = view or {}
    provider = (
        provider or given.get("provider") or settings.get("provider") or _vendor_in(given) or _vendor_in(settings)
    )
    return Maker(provider, None, account or given.get("account") or None, settings.get("model"))


def _vendor_in(options: Mapping[str, Any]) -> str | None:
    dialect = options.get("dialect")
    return None if dialect == COMPATIBLE else dialect
