"""What parties are told of a study before they are asked to take part."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.protocol.governance.statements import Statement

FOR_ALL = frozenset({"proposal", "withdrawal", "outcome"})


class Board:
    """What parties are told of a study at one state of the file; made once for a thousand of them."""

    def __init__(self, place: tuple[bytes, int], statements: Sequence[Statement], quorum: Sequence[Statement]) -> None:
        self.place = place
        self.whole = list({s.ident: s for s in (*statements, *quorum)}.values())
        self._common = {s.ident: s for s in (*(s for s in statements if s.kind in FOR_ALL), *quorum)}
        self._signed: dict[str, list[Statement]] = {}
        for statement in statements:
            self._signed.setdefault(statement.signer, []).append(statement)

    def for_one(self, client: str) -> list[Statement]:
        """For one of many clients: what is for all, the quorum, and its own."""
        return list({**self._common, **{s.ident: s for s in self._signed.get(client, ())}}.values())
