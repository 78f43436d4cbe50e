"""Blob stores: where media are kept outside of the database."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final, Protocol, runtime_checkable
from uuid import uuid4

from threadkeep.domain import jsontext, media
from threadkeep.errors import InvalidOption, MissingExtra

_NAME: Final = re.compile(r"[^./\\:\0][^/\\:\0]*(?:/[^./\\:\0][^/\\:\0]*)*")  # below the folder, whatever is in it
_BEING_WRITTEN: Final = ".part"
_MISSING: Final = frozenset({"NoSuchKey", "404"})


@runtime_checkable
class BlobStore(Protocol):
    """Keeps bytes under names: a folder, a bucket, or a class of your own. Methods are called from several threads.

    Names consist of ASCII letters, digits, ``-``, ``_`` and ``/``. Each is written once and never changed.
    """

    def put(self, name: str, content: bytes, media_type: str | None) -> None:
        """Keep bytes under a name, durably: on return, `get` finds them in every process."""

    def get(self, name: str) -> bytes:
        """Return the bytes; raise KeyError if there are none under that name."""

    def delete(self, name: str) -> None:
        """Remove the bytes; do nothing if there are none."""

    def names(self, prefix: str, before: datetime) -> Iterator[str]:
        """Return the names that begin with `prefix` and were written before a time."""


def blob_store(blobs: object) -> BlobStore | None:
    """Check the argument `blobs` of a store."""
    if blobs is not None and (isinstance(blobs, type) or not isinstance(blobs, BlobStore)):
        raise jsontext.mismatch(InvalidOption, "a blob store such as FolderBlobs(path)", blobs, "blobs")
    return blobs


class FolderBlobs:
    """Media as files in a folder, which all processes that use the database share.

    Raises:
        InvalidOption: there is no such folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise jsontext.mismatch(InvalidOption, "the path of a folder", path, "path")
        self._root = Path(path)
        if not self._root.is_dir():
            raise InvalidOption(f"is not a folder: {str(path)!r}.", argument="path", hint="Create it first.")

    def put(self, name: str, content: bytes, media_type: str | None = None) -> None:
        """Write a file; it appears under its name when it is complete."""
        self.put_file(name, BytesIO(content), media_type)

    def put_file(self, name: str, content: IO[bytes], media_type: str | None = None) -> None:
        """Write a file, or replace it at once, without having all of it in memory."""
        del media_type
        path = self._path(name)
        self._make_folder(path.parent)
        part = path.with_name(f"{path.name}-{uuid4().hex}{_BEING_WRITTEN}")
        try:
            with part.open("wb") as file:
                shutil.copyfileobj(content, file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def get(self, name: str) -> bytes:
        """Return the content of a file; raise KeyError if there is none."""
        try:
            return self._path(name).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise KeyError(name) from error

    def delete(self, name: str) -> None:
        """Remove a file, if there is one."""
        self._path(name).unlink(missing_ok=True)

    def names(self, prefix: str, before: datetime) -> Iterator[str]:
        """Return the names of the files below a prefix that were written before a time."""
        for path in self._root.glob(f"{prefix}**/*"):
            if (written := _written_at(path)) is not None and written < before:
                if path.suffix == _BEING_WRITTEN:
                    path.unlink(missing_ok=True)  # of a writer that was killed
                else:
                    yield path.relative_to(self._root).as_posix()

    def _make_folder(self, folder: Path) -> None:
        """Make a folder below the root, and the names of new ones durable."""
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            _sync_folder(folder.parent)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise KeyError(name)
        return self._root / name


class S3Blobs:
    """Media as objects in a bucket of S3, or of a service with the same API.

    Args:
        bucket: the name of the bucket.
        prefix: how all names begin, such as ``chats/``.
        client: an S3 client of boto3 (``boto3.client("s3", …)``); by default, one with boto3's own configuration.

    Raises:
        MissingExtra: boto3 is not installed.
        InvalidOption: a name cannot be used.
    """

    def __init__(self, bucket: str, *, prefix: str = "", client: Any = None) -> None:
        for argument, value in (("bucket", bucket), ("prefix", prefix)):
            is_text: bool = isinstance(value, str)
            if not is_text or (argument == "bucket" and not value):
                raise jsontext.mismatch(InvalidOption, "text", value, argument)
        self._bucket, self._prefix = bucket, prefix
        if client is None:
            try:
                import boto3  # noqa: PLC0415 - an extra
            except ImportError as error:
                raise MissingExtra("s3", "S3Blobs") from error
            client = boto3.client("s3")
        self._client: Any = client

    def put(self, name: str, content: bytes, media_type: str | None = None) -> None:
        """Write an object."""
        self._client.put_object(**self._key(name), Body=content, ContentType=media_type or media.DEFAULT_MEDIA_TYPE)

    def put_file(self, name: str, content: IO[bytes], media_type: str | None = None) -> None:
        """Write an object, or replace it at once, in parts if it is large."""
        about = {"ContentType": media_type or media.DEFAULT_MEDIA_TYPE}
        self._client.upload_fileobj(content, **self._key(name), ExtraArgs=about)

    def get(self, name: str) -> bytes:
        """Return the content of an object; raise KeyError if there is none."""
        try:
            content: bytes = self._client.get_object(**self._key(name))["Body"].read()
        except self._client.exceptions.ClientError as error:
            if error.response.get("Error", {}).get("Code") in _MISSING:
                raise KeyError(name) from error
            raise
        return content

    def delete(self, name: str) -> None:
        """Remove an object, if there is one."""
        self._client.delete_object(**self._key(name))

    def names(self, prefix: str, before: datetime) -> Iterator[str]:
        """Return the names of the objects below a prefix that were written before a time."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix
        )
        for page in pages:
            for found in page.get("Contents", ()):
                if found["LastModified"] < before:
                    yield found["Key"].removeprefix(self._prefix)

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + name}


def _written_at(path: Path) -> datetime | None:
    """When a file was written; None where there is none, any more."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC) if path.is_file() else None
    except FileNotFoundError:
        return None


def _sync_folder(folder: Path) -> None:
    """Make the name of a file durable, where folders can be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
