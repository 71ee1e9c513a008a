"""Whether a folder that Spark is to read as plain files is one of a Delta, Iceberg or Hudi table.

Asked through Spark, because the folder may lie where only the cluster sees it.
"""

from __future__ import annotations

from typing import Any

from tallystick.data.table_folders import MARKS, refuse_table
from tallystick.engines.spark.paths import split_path

_ABSENT = ("PATH_NOT_FOUND",)
_NOT_SEEN = (*_ABSENT, "AccessControlException", "Permission denied", "AccessDenied")


def refuse_table_folders(session: Any, path: str, frame: Any) -> None:
    """Refuse a folder of a table, one within it, and one around it; ``frame`` is what Spark has made of it."""
    head, root = split_path(path)
    deepest = max((len(split_path(file)[1].parts) for file in frame.inputFiles()), default=0)
    within = [f"{root}{'/*' * depth}" for depth in range(max(1, deepest - len(root.parts)))]
    # Above what is named, this account may not be allowed to look: then it sees nothing there, as one machine does.
    for folders, absent in (within, _ABSENT), ([str(above) for above in root.parents], _NOT_SEEN):
        for folder in folders:
            for mark in MARKS:
                file = f"/*{mark.ending}" if mark.ending else ""
                if _is_there(session, f"{head}{folder.rstrip('/')}/{mark.folder}{file}", absent):
                    raise refuse_table(mark.format, f"folder {root.name or path}")


def _is_there(session: Any, pattern: str, absent: tuple[str, ...]) -> bool:
    try:
        session.read.format("binaryFile").option("recursiveFileLookup", "true").load(pattern).inputFiles()
    except Exception as error:  # Spark's own classes
        if any(word in str(error) for word in absent):
            return False
        raise
    return True
