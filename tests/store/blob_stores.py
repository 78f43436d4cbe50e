"""Blob stores for tests: a folder, a bucket of a real S3 server on this machine, and one that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from threadkeep.blobs import BlobStore, FolderBlobs, S3Blobs

KINDS = ("folder", "s3")


def later() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


def names_in(blobs: BlobStore) -> list[str]:
    """The names of all objects, as the store itself lists them."""
    return sorted(blobs.names("", later()))


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of moto's server; tests that need it are skipped without it."""
    server = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[s3]' flask flask-cors")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        yield "http://{}:{}".format(*running.get_host_and_port())
    finally:
        running.stop()


def s3_client(address: str) -> Any:
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed: pip install boto3")
    return boto3.client(
        "s3", endpoint_url=address, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )  # fmt: skip


def a_blob_store(kind: str, folder: Path, address: Callable[[], str]) -> BlobStore:
    """An empty store of a kind."""
    if kind == "folder":
        return FolderBlobs(folder)
    client, bucket = s3_client(address()), f"media-{uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    return S3Blobs(bucket, prefix="chats/", client=client)


class Watched:
    """A blob store that says what was asked of it, by which thread, and fails when it is told to."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.fails: set[str] = set()
        self.on_put: Callable[[], None] = lambda: None

    def put(self, name: str, content: bytes, media_type: str | None) -> None:
        self._note("put")
        self.on_put()
        self.blobs.put(name, content, media_type)

    def get(self, name: str) -> bytes:
        self._note("get")
        return self.blobs.get(name)

    def delete(self, name: str) -> None:
        self._note("delete")
        self.blobs.delete(name)

    def names(self, prefix: str, before: datetime) -> Iterator[str]:
        self._note("names")
        return self.blobs.names(prefix, before)

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.threads.add(threading.get_ident())
        if call in self.fails:
            raise ConnectionError(f"The blob store does not answer: {call}")
