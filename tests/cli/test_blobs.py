"""Media that are not in the database: --blobs names their folder or bucket."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.runs import Cli
from tests.store.blob_stores import s3_client, s3_server
from tests.store.ledger import attempt_at
from threadkeep import InputImage, Store
from threadkeep.blobs import BlobStore, FolderBlobs, S3Blobs
from threadkeep.domain.media import data_url

PHOTO = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 512
ENCODED = base64.b64encode(PHOTO).decode()
TAIL = ["--format", "open_responses"]


def with_photo(cli: Cli, blobs: BlobStore) -> str:
    with Store(cli.url, blobs=blobs) as store:
        conversation = store.create_conversation(model="gpt-5.4", user_id="ada")
        conversation.user(InputImage(url=data_url(PHOTO, "image/png")))
        return conversation.id


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "media"
    folder.mkdir()
    return folder


@pytest.fixture
def stored(cli: Cli, folder: Path) -> str:
    return with_photo(cli, FolderBlobs(folder))


def test_media_in_a_folder_are_read(cli: Cli, stored: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = cli("render", stored, *TAIL, code=2)
    assert "--blobs" in refused.err
    for args in (["render", stored, *TAIL, "--blobs", str(folder)], ["--blobs", str(folder), "render", stored, *TAIL]):
        assert ENCODED in cli(*args).out
    monkeypatch.setenv("THREADKEEP_BLOBS", str(folder))
    assert ENCODED in cli("render", stored, *TAIL).out
    assert ENCODED in cli("show", stored, "--json").out
    assert ENCODED in cli("export").out


def test_new_media_are_written_to_the_folder(cli: Cli, stored: str, folder: Path, tmp_path: Path) -> None:
    exported = cli("export", "--blobs", str(folder)).out
    other = tmp_path / "other"
    other.mkdir()
    url = f"sqlite:///{tmp_path / 'other.db'}"
    cli("restore", "-", "--url", url, "--blobs", str(other), input=exported)
    assert [path.read_bytes() for path in other.rglob("*") if path.is_file()] == [PHOTO]
    assert ENCODED in cli("render", stored, *TAIL, "--url", url, "--blobs", str(other)).out


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_copy_keeps_media_where_it_is_told(
    cli: Cli, stored: str, folder: Path, tmp_path: Path, is_folder: bool
) -> None:
    other, url = tmp_path / "other", f"sqlite:///{tmp_path / 'other.db'}"
    other.mkdir()
    place = ["--to-blobs", str(other)] if is_folder else []
    assert cli("copy", "--to", url, "--blobs", str(folder), *place, "--json").json["is_equal"]
    assert [path.read_bytes() for path in other.rglob("*") if path.is_file()] == [PHOTO] * is_folder
    shown = cli("render", stored, *TAIL, "--url", url, *(["--blobs", str(other)] if is_folder else []))
    assert ENCODED in shown.out


def test_users_with_media_are_erased(cli: Cli, stored: str, folder: Path) -> None:
    assert "--blobs" in cli("erase-user", "ada", "--yes", code=2).err
    cli("erase-user", "ada", "--yes", "--blobs", str(folder))
    assert [path for path in folder.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("gs://media", "--blobs 'gs://media' is neither a folder nor the URL of a bucket, such as s3://chats/media."),
        ("s3://", "--blobs 's3://' is neither a folder nor the URL of a bucket, such as s3://chats/media."),
        ("/no/such/folder", "--blobs is not a folder: '/no/such/folder'. Create it first."),
    ],
)
def test_places_that_there_are_not_are_refused(cli: Cli, place: str, message: str) -> None:
    assert cli("ls", "--blobs", place, code=2).err == f"threadkeep: {message}\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that commands take for S3."""
    with s3_server() as address:
        for name, value in {
            "AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield address


@pytest.mark.parametrize("prefix", ["", "chats", "chats/old/"])
def test_media_in_a_bucket_are_read(cli: Cli, prefix: str, server: str) -> None:
    client = s3_client(server)
    bucket = f"media-{uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    inner = f"{prefix.rstrip('/')}/" if prefix else ""
    stored = with_photo(cli, S3Blobs(bucket, prefix=inner, client=client))
    (found,) = client.list_objects_v2(Bucket=bucket)["Contents"]
    assert found["Key"].startswith(inner)
    assert ENCODED in cli("render", stored, *TAIL, "--blobs", f"s3://{bucket}/{prefix}").out
    if not prefix:
        assert ENCODED in cli("render", stored, *TAIL, "--blobs", f"s3://{bucket}").out


def test_usage_is_exported_to_a_bucket(cli: Cli, stored: str, server: str) -> None:
    with cli.store() as store:
        attempt_at(store.get_conversation(stored), datetime.now(UTC) - timedelta(days=2))
    client = s3_client(server)
    bucket = f"usage-{uuid4().hex}"
    assert "NoSuchBucket" in cli("export-usage", f"s3://{bucket}/usage", code=1).err
    client.create_bucket(Bucket=bucket)
    assert cli("export-usage", f"s3://{bucket}/usage", "--json").json["written"] == 1
    keys = [one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]]
    assert [key.split("/")[:2] for key in keys] == [
        ["usage", "manifest"], ["usage", "usage_attempts"], ["usage", "usage_by_day"],
    ]  # fmt: skip
