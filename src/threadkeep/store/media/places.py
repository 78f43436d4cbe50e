"""Where the media of a database are, as ``--blobs`` or THREADKEEP_BLOBS names it: a folder, or a bucket of S3."""

from __future__ import annotations

import re
from typing import Final

from threadkeep.blobs import BlobStore, FolderBlobs, S3Blobs
from threadkeep.errors import InvalidOption

_S3: Final = re.compile(r"s3://(?P<bucket>[^/]+)(?:/(?P<prefix>.*))?", re.DOTALL)
_URL: Final = re.compile(r"[a-zA-Z][\w+.-]+:")


def blob_store_at(place: str) -> BlobStore:
    """Return the blob store in a folder, or below ``s3://BUCKET/PREFIX``.

    Raises:
        InvalidOption: it names neither.
        MissingExtra: boto3 is not installed.
    """
    bucket = _S3.fullmatch(place)
    if bucket is not None:
        prefix = (bucket["prefix"] or "").rstrip("/")
        return S3Blobs(bucket["bucket"], prefix=f"{prefix}/" if prefix else "")
    if not place or _URL.match(place):
        raise InvalidOption(f"--blobs {place!r} is neither a folder nor the URL of a bucket, such as s3://chats/media.")
    return FolderBlobs(place)
