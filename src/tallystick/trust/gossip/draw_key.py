"""The secret that a peer draws from: whoever has it draws, from the same rows in the same study, the very same record.

A draw that is fresh each time is made twice where a peer comes back with old files, or where two copies of one run,
and each draw is a release. So the words of a draw are a function of a secret of the peer's own, of the study and of
the rows (:meth:`tallystick.trust.gossip.publishing.Publishing.drawn`): for everybody else as good as fresh words, and
the same ones again for the peer.

The secret is made on the peer's own machine when it is started for the first time, before its ledger holds any charge,
and lies beside the ledger, which notes the secret's public name: a ledger without the secret that it was begun with
draws nothing. An older copy of the files from before there was a secret holds no charge either, and the witnesses have
seen a later ledger. It is not made of the identity key, which ``consortium enrol`` makes on the authority's machine.

Kept for ever, it would let a thief test for every finished study what the rows were. So it forgets: once a study's
record is kept, the secret gives up that study's words (:class:`~tallystick.crypto.puncturable.PuncturableKey`), and the
older file is overwritten. A copy that was made before still has them: it is as secret as the records.
"""

from __future__ import annotations

from pathlib import Path

from tallystick.core.errors import VerificationError
from tallystick.core.randomness import WordSource
from tallystick.core.redaction import Secret
from tallystick.crypto.prg import AesStream
from tallystick.crypto.puncturable import PuncturableKey
from tallystick.roles.ledger.store import LedgerStore
from tallystick.roles.storage.database import storage_guard, transaction_of
from tallystick.roles.storage.erasure import SecretFiles, erase_all, sync_folder

FOLDER = "draws"
_ENDING = ".key"
_NOTED = "draw-key"
_WHAT = "the secret that draws are made from"


class DrawKey:
    """The secret of one peer, in its state folder. One process has it: the one that has the role's store."""

    def __init__(self, state: Path, ledger: LedgerStore, *, source: WordSource) -> None:
        self._folder, self._party = state / FOLDER, ledger.party
        self._files = SecretFiles(self._folder)
        with storage_guard(_WHAT, party=self._party):
            found, noted = self._load(), _noted(ledger)
            if found is None and noted is None:
                found = PuncturableKey.generate(source)
                self._number = 0
                self._keep(found)
        if found is None or noted not in (None, found.ident):
            raise VerificationError(
                f"{_WHAT} is {'gone' if found is None else 'not the one that the ledger was begun with'}",
                rule="draw-key-lost",
                party=self._party,
                remedy=f"Restore the newest copy of the whole state folder, {FOLDER}/ with it. If there is none, this "
                "peer could draw a second time for what it has published: leave the consortium, and enrol anew.",
            )
        if noted is None:
            _note(ledger, found.ident)
        self._key = found

    def _load(self) -> PuncturableKey | None:
        """The newest file's; those before it, and what a crash has left, are erased."""
        names = [name for name in self._files.names(_ENDING) if self._files.get(name) is not None]
        if not names:
            return None
        key = PuncturableKey.from_secret(Secret(self._files.get(names[-1]) or b""))
        self._number = int(names[-1].removesuffix(_ENDING))
        self._erase_others()
        return key

    def _name(self) -> str:
        return f"{self._number:012}{_ENDING}"

    def _keep(self, key: PuncturableKey) -> None:
        """In a file of its own, durable, before the one that it takes the place of is erased."""
        self._number += 1
        self._files.put(self._name(), key.to_secret().reveal())
        self._erase_others()

    def _erase_others(self) -> None:
        erase_all([path for path in self._folder.iterdir() if path.name != self._name()])
        sync_folder(self._folder)

    def words(self, study: bytes, context: bytes) -> WordSource | None:
        """The words of a draw: always the same for one study and context. None once they were given up."""
        value = self._key.value(study)
        return None if value is None else AesStream(value, context)

    def give_up(self, study: bytes) -> None:
        """Nothing is drawn in this study any more; when this returns, nobody can compute its words from these files."""
        with storage_guard(_WHAT, party=self._party):
            if self._key.value(study) is not None:
                without = self._key.without(study)
                self._keep(without)
                self._key = without


def _noted(ledger: LedgerStore) -> bytes | None:
    rows = ledger.file.read("SELECT value FROM meta WHERE key = ?", (_NOTED,))
    return bytes(rows[0][0]) if rows else None


def _note(ledger: LedgerStore, ident: bytes) -> None:
    with ledger.file.turn(), transaction_of(ledger.file.db):
        ledger.file.db.execute("INSERT INTO meta VALUES (?, ?)", (_NOTED, ident))
