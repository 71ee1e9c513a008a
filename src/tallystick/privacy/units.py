"""What a promise protects: one record, or one person as a study bounds persons; and what one says about the other.

A promise for one unit is not a promise for another, and their ε or ρ must not be added as they stand. Where one change
of what is asked about is a chain of k changes of what a fit protects, group privacy converts: ρ-zCDP becomes k²ρ-zCDP
[BS16, Prop. 1.9], pure ε becomes kε [DR14, Thm. 2.2]. k is :meth:`Unit.chain`:

* **A fit for persons, asked about a record: k = 2.** A record more or less is other data of one person: under
  replace-one one step, under add-remove two (out, and in again). A record that is replaced together with its identifier
  leaves one person and joins another: two steps of replace-one. (A person without any record has the sum 0. That is
  one of the vectors within the bound, over all pairs of which a replace-one sensitivity is the maximum.)
* **A fit for persons at up to I institutions, asked about persons at up to J: k = ⌈J/I⌉.** Such a person is ⌈J/I⌉ of
  the others. ``max_records`` does not enter: a person's *sum* is clipped, however many records are in it.
* **A fit for records, asked about a person: k = the person's records in all.** No such study limits them, and the
  ``max_records`` of another study is how far *it* clips a sum, not a fact about the data. So there is no k, unless the
  data set's owner declares one as a public fact. Under replace-one the number of records is public, and the other
  person has as many.
* **A fit for persons named by another column**: by way of its records, if their number is declared; otherwise no k.

Where there is no k, what the fit promises is stated beside the others, for its own unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What is protected. Two columns that name persons, or other caps, are two units.

    ``max_records`` and ``max_institutions`` are 0 where a ledger of an earlier version did not note them.
    """

    kind: str = "record"
    person: str | None = None
    max_records: int = 1
    max_institutions: int = 1

    @property
    def noted(self) -> bool:
        """Whether all of it is known."""
        return self.kind == "record" or self.max_institutions > 0

    @property
    def words(self) -> str:
        """``record``, or ``person`` with how persons are told apart and bounded."""
        if self.kind == "record":
            return "record"
        if not self.noted:
            return "person (by a column that an earlier version did not note)"
        return (
            f"person (column {self.person!a}, up to {self.max_records} record(s)' worth at each of at most "
            f"{self.max_institutions} institution(s))"
        )

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it; the caps of a person only where there is one."""
        if self.kind == "record":
            return {"unit": self.kind}
        caps = {"max_records": self.max_records, "max_institutions": self.max_institutions} if self.noted else {}
        return {"unit": self.kind, "person": self.person, **caps}

    def chain(self, asked: Unit, *, records: int | None = None) -> int | None:
        """How many changes of this unit one change of ``asked`` is; None if nothing bounds it (see the module).

        ``records``: what nobody has more of, in all institutions together, where that is a declared public fact.
        """
        if asked == self:
            return 1
        if asked.kind == "record":
            return 2
        if self.kind == "record":
            return records
        if self.noted and asked.noted and self.person == asked.person:
            return -(-asked.max_institutions // self.max_institutions)
        return None if records is None else 2 * records


RECORD = Unit()
"""One row."""
