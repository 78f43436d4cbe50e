"""Amazon Bedrock's Converse API."""

from __future__ import annotations

from threadkeep.formats.converse.encoding import boto3_arguments

__all__ = ["boto3_arguments"]
