"""The perturbed records that a peer holds, as a data set for anybody: Parquet, its privacy statement, a model.

    records.parquet   peer, record, the published class and numbers as they travelled; then what learners use:
                      z_* with E z = x, the record's direction in the study's public coordinates, and t_* for each class
    privacy.json      the statement, the study, whose records these are, and the charges that have paid for them; and
                      a and b of E zzᵀ = a·xxᵀ + b·I, with which a learner takes the noise out of second moments
    model.json        what this peer learns from them by itself; or the model of its own that it kept last,
                      where models walk

Whatever is computed from these files is post-processing of what was published: it costs nobody anything more. Records
count, here as everywhere, if their peer has signed them, charged its ledger, had that countersigned and vouched for its
noise; the file is let out by the one exit, with the proof of payment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import readable
from tallystick.application.study_results import fitted
from tallystick.application.text_layout import paragraph
from tallystick.core.errors import NotApproved, StudyError
from tallystick.engines.engine import Computed
from tallystick.engines.setup import set_up
from tallystick.privacy.payment import PaidHead
from tallystick.privacy.release import Release, release
from tallystick.protocol.gossip.codec import unpack_publication
from tallystick.protocol.gossip.member import FROM, PROOF
from tallystick.protocol.gossip.peer import MODEL, unpack_model
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.receipt_contents import countersigned
from tallystick.protocol.governance.statements import Statement
from tallystick.roles.governance.receipts import ReceiptBook
from tallystick.roles.processes.coordinated_rounds import pack_outcome
from tallystick.roles.storage.stores import records_of
from tallystick.trust.gossip.publishing import Publishing
from tallystick.trust.gossip.vouching import vouched
from tallystick.trust.gossip.walking import Walking

SCHEMA = "tallystick/published-records/1"


def publish(name: str, config: Path, out: Path) -> dict[str, Any]:
    """Write what this peer holds of a study; the files, and whose records they are."""
    with PartyFiles.of(config, holder=True) as files:
        study = files.find(name)
        docket = _with_receipt(files, study)
        proposal = docket.started_proposal()
        cast = None if proposal is None else docket.cast(proposal)
        if proposal is None or cast is None:
            raise NotApproved("the study has not been run", rule="no-result", remedy="See tallystick study status.")
        if not cast.model.vouch_for_themselves:
            raise StudyError(
                f'under trust = "{cast.model.name}" nobody publishes records',
                rule="trust-model",
                remedy='Records are published in studies among peers: trust.model = "gossip".',
            )
        setup = set_up(proposal.body["study"].encode(), str(proposal.body["program"]), allow_not_private=True)
        publishing, known = Publishing.of(setup, study), docket.statements()
        kept, two = (records_of(files.config.state, study, prefix) for prefix in (FROM, PROOF))
        held = [party for party in cast.clients if party in kept and party not in two]
        inside = vouched(known, cast, held, rho=setup.plan.rho)
        payment = countersigned(known, cast, [inside], study=study, rho=setup.plan.rho)
        if payment is None:
            raise NotApproved(
                "no record is here whose peer has charged its ledger",
                rule="missing-charge",
                remedy="Wait until the study has ended here: tallystick study status.",
            )
        bodies = {party: unpack_publication(kept[party]).body for party in inside}
        table = release(_table(publishing, bodies, setup.layout), plan=setup.plan, study=study, payment=payment)
        walking = Walking.of(publishing)
        walked = None if walking is None else records_of(files.config.state, study, MODEL).get("")
        if walking is not None and walked is not None:
            state = walking.model(unpack_model(walked).weights)
        else:  # a peer that came too late for any walk has the records still
            state = publishing.learn(bodies)
        computed = Computed(
            history=(state,),
            contributors=(inside,),
            dropped=(tuple(party for party in cast.clients if party not in inside),),
        )
        packed = pack_outcome(computed.paid(setup.plan, study, payment))
        model = fitted(proposal, packed, known, files.members).model_document()
        moments = publishing.randomiser.moments
        facts = {"a": moments.a, "b": moments.b}
        learned = "from the records" if walked is None else "walked"
        return _write(
            table,
            model,
            out,
            facts,
            learned=learned,
            study=setup.study,
            peer=files.config.name,
            left_out=sorted(two),
        )


def _with_receipt(files: PartyFiles, study: bytes) -> Docket:
    """What was said about the study, as this peer has heard it and as the receipt shows it: many peers hear little."""
    from tallystick.application.study_results import read_receipt, statements_of

    docket, kept = files.docket(study), ReceiptBook(files.config.state).get(study)
    said: Sequence[Statement] = () if kept is None else statements_of(read_receipt(kept), study, files.members)
    for statement in said:
        docket.apply_if_it_counts(statement)
    return docket


def _table(publishing: Publishing, bodies: Mapping[str, bytes], layout: Any) -> Any:
    """One row for every published record."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {"peer": [], "record": []}
    shape, program = publishing.randomiser.shape, publishing.program
    labels, values, z, targets = [], [], [], []
    for party, body in bodies.items():
        records, decoded = publishing.unpack(body), publishing.decode(party, body)
        columns["peer"] += [party] * len(records)
        columns["record"] += range(len(records))
        labels += [one.label for one in records]
        values += [one.values for one in records]
        z.append(decoded.z)
        targets.append(decoded.targets)
    classes = [str(c) for c in layout.classes]
    if shape.classes:
        columns["published_class"] = [classes[label] if label < len(classes) else None for label in labels]
    numbers = np.array(values, np.int64).reshape(len(labels), shape.values)
    made: dict[str, Any] = {**columns, **{f"published_{i}": numbers[:, i] for i in range(shape.values)}}
    decoded_z, factors = np.concatenate(z), np.concatenate(targets)
    names = list(map(str, layout.names))
    if program.dimension != len(names):
        plain = program.dimension == len(names) + 1 and program.space.basis is None
        names = [*names, "(constant)"] if plain else [str(i) for i in range(program.dimension)]
    for copy in range(decoded_z.shape[1]):
        of = "" if decoded_z.shape[1] == 1 else f"{classes[copy]}_"
        made |= {f"z_{of}{name}": decoded_z[:, copy, i] for i, name in enumerate(names)}
    made |= {f"t_{one}": factors[:, i] for i, one in enumerate(classes)}
    return pa.table(made)


def _write(
    table: Release,
    model: dict[str, Any],
    out: Path,
    moments: dict[str, float],
    *,
    learned: str,
    study: Any,
    peer: str,
    left_out: Sequence[str],
) -> dict[str, Any]:
    import pyarrow.parquet as pq

    heads: Any = table.payment.proof
    facts = {
        "schema": SCHEMA,
        "study": {"name": study.study.name, "hash": study.printed_hash, "program": study.study.program},
        "privacy": table.privacy.as_dict(),
        "peers": [head.client for head in heads if isinstance(head, PaidHead)],
        "charges": {head.client: head.head for head in heads if isinstance(head, PaidHead)},
        "records": table.value.num_rows,
        "second_moments": moments,
    }
    out.mkdir(parents=True, exist_ok=True)
    stated = readable(facts)
    pq.write_table(table.value.replace_schema_metadata({"tallystick.privacy": stated}), out / "records.parquet")
    (out / "privacy.json").write_text(stated + "\n", encoding="utf-8")
    (out / "model.json").write_text(
        readable({"peer": peer, "learned": learned, "model": model}) + "\n", encoding="utf-8"
    )
    return {
        "action": "publish",
        "folder": str(out),
        "study": facts["study"],
        "privacy": facts["privacy"],
        "peers": facts["peers"],
        "records": facts["records"],
        "left_out": list(left_out),
        "learned": learned,
        "model": model,
    }


def describe(found: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{found['records']:,} perturbed records of {len(found['peers'])} peers are in {found['folder']}."]
    if found["left_out"]:
        lines.append(f"Left out, because they have published two different records: {', '.join(found['left_out'])}.")
    if found["learned"] == "walked":
        lines.append("Models walked between the peers; model.json is the one that this peer kept last.")
    lines += paragraph(found["privacy"]["statement"]).splitlines()
    return "\n".join(lines)
