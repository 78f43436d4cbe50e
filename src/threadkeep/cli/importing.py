"""``threadkeep import``: sessions from files into the database."""

from __future__ import annotations

import codecs
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import batched  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from threadkeep.cli.output import print_json, print_text, progress
from threadkeep.cli.place import AsJson, Labels, Tenant, Url, labels_of, opened, place_of
from threadkeep.errors import CannotParse, InvalidItem, InvalidOption

if TYPE_CHECKING:
    from threadkeep.domain.session import Session
