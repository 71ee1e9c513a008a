"""Paths as Hadoop has them: an absolute path, with a scheme and a host before it or without."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

SCHEMES = ("hdfs", "s3", "s3a", "gs", "abfs", "abfss", "wasbs", "file", "dbfs", "viewfs")
_HEAD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?(?=/|$)")


def split_path(path: str) -> tuple[str, PurePosixPath]:
    """(scheme and host, path) of a path: ``s3a://bucket/x`` is ``s3a://bucket`` and ``/x``."""
    found = _HEAD.match(path)
    head = found[0] if found else ""
    return head, PurePosixPath("/" + path[len(head) :].lstrip("/"))


def suffixes(path: str) -> list[str]:
    """What stands after the dots of a file's or folder's name, in small letters."""
    return [suffix[1:].lower() for suffix in split_path(path)[1].suffixes]
