"""Amazon Bedrock's Converse API."""

from __future__ import annotations

from typing import Final

from threadkeep.formats.base import ErrorKeys, Format, Signs
from threadkeep.formats.converse.boto3 import boto3_arguments

__all__ = ["FORMAT", "boto3_arguments"]

FORMAT: Final = Format(
    name="converse",
    package=__name__,
    signs=Signs(turns="messages", body={"output": dict}, events={"messageStart": dict, "contentBlockDelta": dict}),
    error_keys=ErrorKeys(holders=("Output", "Error"), type="__type", code="Code", messages=("message", "Message")),
)
