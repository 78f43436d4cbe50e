"""Where media are kept outside of the database: `Store(url, blobs=FolderBlobs("media"))`."""

from threadkeep.store.media.stores import BlobStore, FolderBlobs, S3Blobs

__all__ = ["BlobStore", "FolderBlobs", "S3Blobs"]
