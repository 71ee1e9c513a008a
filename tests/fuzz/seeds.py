"""Where the fuzzer starts: the golden vectors, the examples, and one genuine input of every other kind."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

from wire_targets import KEYS, TARGETS, channel, members

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))
from governance_examples import PROPOSAL, T0, finished
from masked_sum_world import World, parameters, said
from tests.protocol.test_masked_sum_peers import Peers

from tallystick.crypto.prg import AesStream
from tallystick.crypto.sealing import Sealer
from tallystick.crypto.shamir import split
from tallystick.privacy.chain import KINDS
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.receipt import make_receipt
from tallystick.protocol.masked_sum import encode
from tallystick.protocol.masked_sum.messages import Evidence, Masked, Missed, Survivors, TiedSurvivors
from tallystick.protocol.masked_sum.records import DealersRecord, SecretsRecord, SumRecord
from tallystick.protocol.masked_sum.vouchers import pack_vouchers
from tallystick.study import Study
from tallystick.transport.network import frames

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors"
WORDS = (
    *("[study]", "[program]", "[privacy]", "[trust]", "[data]", "[data.columns]", "[results]", "[stream]"),
    *("name", "version", "program", "target", "features", "purpose", "epsilon", "delta", "neighbours", "mechanism"),
    *("unit", "person", "max_records", "max_institutions", "groups", "sampling", "threshold", "servers", "colluding"),
    *("min_clients", "round_timeout_s", "records", "missing", "marker", "policy", "lower", "upper", "bins", "log"),
    *("step", "values", "merge", "vocabulary", "max_per_record", "ticks", "tick_seconds", "records_per_tick", "start"),
    *("pca", "truncated_svd", "n_components", "basis", "dct", "shape", "rows", "unit", "columns", "sparse", "top"),
    *("pipeline", "steps", "share", "[[program.steps]]"),
    *("summary", "kmeans", "ridge", "linear_svc", "logistic_regression", "frequent_itemsets", "evaluation"),
    *("add-remove", "replace-one", "gaussian", "laplace", "none", "category", "number", "integer", "items"),
    *("5e-324", "1e-200", "1e308", "inf", "nan", "-0.0", "true", "1979-05-27", "0x7fffffffffffffff", "9" * 20),
    *(" = ", "{ ", " }", "[[", "]]", '"""', "'''", "\\u202e", "\\ud800", "\\u0000", "null", "Infinity"),
)


def _vectors(folder: str) -> list[bytes]:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((VECTORS / folder).glob("*.json"))]
    return [_raw(vector["raw"]) for vectors in found for vector in vectors]


def _raw(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text.encode()


def wire_seeds() -> list[bytes]:
    """Inputs for ``wire_target``: the decoder's number, then its bytes."""
    at = {target.__name__: bytes([number]) for number, target in enumerate(TARGETS)}
    sealer = Sealer(channel(), AesStream(bytes(32), b"salt"))  # type: ignore[arg-type]
    state = {"tuple": True, "fields": ["w", "n"], "parts": [["floats", [2]], ["int", []]]}
    refusal = {"cause": "the program fails", "rule": "own-code", "remedy": "Correct it."}
    grant = {"group": "g", "epsilon": "1.0", "delta": "1e-06", "by": "steward", "reason": "", "at": 1, "salt": "00"}
    result = {"history": ["AAAAAAAA8D8="], "contributors": [["c0", "c1"]], "dropped": [[]]}
    certificate = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    return [
        *(at["secure_sum"] + raw for raw in _vectors("secure_sum")),
        *(at["study_layer"] + raw for raw in _vectors("study")),
        *(at["statement"] + raw for raw in _vectors("governance")),
        at["receipt"] + _receipt(),
        at["line"] + b"\x04" + bytes(32) + b"\x01" + struct.pack("<I", 3) + b"abc",
        at["line"] + bytes(56),
        *(at["frame"] + raw for raw in _frames()),
        *(at["sealed"] + sealer.seal(raw) for raw in (b"", b"message", bytes(300))),
        at["sandbox"] + json.dumps(state).encode() + b"\x00" + bytes(24),
        at["sandbox"] + json.dumps(refusal).encode(),
        at["sandbox"] + struct.pack("<4sIQ", b"TSP1", 10, 10),
        at["model"] + struct.pack("<I", 64)[:3] + struct.pack("<IIId", 1, 2, 0, 0.0),
        at["model"] + struct.pack("<I", 64)[:3] + struct.pack("<II", 1, 2) + struct.pack("<d", 1.5),
        at["model"] + struct.pack("<4d", 1, 2, 3, 4),
        *(at["ledger"] + bytes([n]) + json.dumps(grant, sort_keys=True, separators=(",", ":")).encode() for n in
          range(len(KINDS))),
        *(at["stored"] + label + bytes(100) for label in (b"SRND", b"CSHR", b"SEQV", b"ARES")),
        at["result"] + json.dumps(result).encode(),
        at["certificate"] + certificate,
        *(at["masked_sum"] + raw for raw in _masked()),
        at["joint_products"] + b"TJNT\x01\0\x01\0" + bytes(32 + 4 + 32) + struct.pack("<Q", 2) + b"\x12\x34",
        at["joint_products"] + b"TJNT\x01\0\x02\0" + bytes(32 + 4) + struct.pack("<Q", 1) + b"\x12",
        at["alignment"] + b"TALN\x01\0\x01\0" + bytes(32 + 4 + 32) + struct.pack("<Q", 2) + b"\x12\x34",
        at["alignment"] + b"TALN\x01\0\x02\0" + bytes(32) + b"\x05\x01\0x",
        at["joint_products"] + b"TJNT\x01\0\x03\0" + bytes(32) + b"\x05\x01\0x",
        at["joint_products"] + b"TJNT\x01\0\x04\0" + bytes(32),
        at["joint_products"] + b"TJNT\x01\0\x05\0" + bytes(32) + struct.pack("<I", 7),
        at["joint_products"] + struct.pack("<I", 3) + b"abc" + bytes(5),
        at["alignment"] + b"TALN\x01\0\x03\0" + bytes(32 + 4),
        at["told_labels"] + b"TLAB\x01\0\x01\0" + bytes(32 + 32 + 64),
        at["told_labels"] + b"TLAB\x01\0\x02\0" + bytes(32 + 64) + struct.pack("<Q", 3) + b"\0\1\2",
        at["told_labels"] + b"TLAB\x01\0\x03\0" + bytes(32) + b"\x05\x01\0x",
        at["selection"] + b"TSEL\x01\0\x01\0" + bytes(32 + 4 + 4) + struct.pack("<Q", 2) + b"\x12\x34",
        *(at["perturbed"] + raw for raw in (b"\x07", b"\x06\xff\x0f\0\0", b"\x2b\x01\xff\xff", bytes(24))),
        at["selection"] + b"TSEL\x01\0\x02\0" + bytes(32 + 4 + 4),
        at["selection"] + b"TSEL\x01\0\x04\0" + bytes(32 + 4) + b"\x0a\x02\0p2\x01\0x",
        at["gossiped"] + b"TGOS\x01\0\x01\0" + bytes(33) + struct.pack("<3I", 1, 2, 3) + bytes(16) + bytes(32),
        at["gossiped"] + b"TGOS\x01\0\x02\0" + bytes(32) + struct.pack("<IIQ", 1, 0, 2) + b"ab" + bytes(64),
        at["gossiped"] + b"TGOS\x01\0\x05\0" + bytes(32) + struct.pack("<IId", 9, 1, 0.5),
        at["relay"] + b"\x02c0\x02c1" + bytes(64) + b"\x03" + bytes(40),
    ]  # fmt: skip


def _receipt() -> bytes:
    docket = Docket.of(PROPOSAL.study_hash, members(), finished())
    rounds = [["c0", "c1", "c2"]] * 2
    return make_receipt(docket, consortium="[consortium]\n", participants=rounds, now=T0 + 5000, key=KEYS["hub"])


def _among_peers() -> list[bytes]:
    """What is only said where every peer adds up itself, with and without a client that drops out."""
    found = []
    for lost in ("", "e"):
        world = Peers(parameters(every_peer=True))
        world.change = lambda sender, _to, m, lost=lost: None if isinstance(m, Masked) and sender == lost else m
        world.open(1)
        world.run()
        found += [m for kind in (TiedSurvivors, Evidence) for m in said(world, kind)[:1]]
    return [encode(message) for message in (*found, Missed(study_hash=bytes(32), round=1))]


def _masked() -> list[bytes]:
    """One of each message of a round, shares that belong together, a voucher, records of every kind."""
    world = World(parameters())
    world.open(1)
    world.run()
    spoken = {type(message): message for _, _, message in world.sent}
    shares = split([bytes(32)], threshold=2, shares=3, source=AesStream(bytes(32), b"shares"))[0]
    told = spoken[Survivors]
    kept = (
        SecretsRecord(round=3, seed=bytes(range(32)), share=shares[0]),
        DealersRecord(round=3, dealings=(b"one", b"", b"three")),
        SumRecord(round=3, survivors=b"set", total=bytes(16)),
    )
    return [
        *(encode(message) for message in spoken.values()),
        *_among_peers(),
        b"".join(shares),
        pack_vouchers(told, {"a": bytes(64)}),
        *(record.to_bytes() for record in kept),
    ]


def _frames() -> list[bytes]:
    large = frames.open_frame(2, 1 << 20, bytes(frames.HEAD_BYTES))
    close = frames.close_frame(frames.Reason.SLOW, "too slow")
    plain = [frames.frame(kind, 1, b"x") for kind in frames.Kind]
    return [large, close, frames.decline_frame(3, frames.Reason.BUSY), *plain]


_SMALL = {
    "summary": "",
    "kmeans": "[program]\nn_clusters = 2\nrounds = 2\n",
    "gaussian_nb": 'target = "ill"\n',
    "gaussian_mixture": "[program]\nn_components = 2\nrounds = 2\n",
    "pca": 'features = ["age"]\n[program]\nn_components = 1\nbasis = "dct"\nshape = [1]\n',
    "truncated_svd": 'features = ["age"]\n[program]\nn_components = 1\nnoise = "equal"\nrows = "unit"\n',
    "pipeline": 'target = "ill"\n[program]\nshare = 0.5\n'
    'steps = [{ program = "pca" }, { program = "linear_svc", rounds = 2 }]\n',
    "ridge": 'target = "age"\n',
    "logistic_regression": 'target = "ill"\n[program]\nrounds = 2\n',
    "linear_svc": 'target = "ill"\n[program]\nrounds = 2\nclip = 1.0\nl2 = 0.1\nlearning_rate = 0.5\n',
    "frequent_itemsets": 'features = ["bought"]\n[program]\nmin_support = 0.1\n',
}


def _small(program: str, more: str) -> str:
    """A study of a few lines: it is planned in no time, so that the fuzzer gets far."""
    bought = 'bought = { type = "items", vocabulary = ["a", "b"], max_per_record = 1 }\n'
    return (
        f'[study]\nname = "s"\nprogram = "{program}"\n{more}[privacy]\nepsilon = 1.0\ndelta = 1e-6\n[data]\n'
        'records = 99\n[data.columns]\nage = { type = "number", lower = 0, upper = 9 }\n'
        'ill = { type = "category", values = ["n", "y"] }\n' + (bought if program == "frequent_itemsets" else "")
    )


def study_seeds() -> list[bytes]:
    """Inputs for ``study_target``: every example, as it is written and as it travels."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*.toml"))]
    texts += [_small(program, more) for program, more in _SMALL.items()]
    role = '[role]\nname = "clinic"\nrole = "client"\ncertificate = "c"\nkey = "k"\nidentity = "i"\nstate = "s"\n'
    policy = '[data]\nsource = "r.csv"\nbudget_epsilon = 1.0\n[policy]\n[[policy.rules]]\nthen = "ask"\n'
    party = f'[[party]]\nname = "a"\nrole = "client"\nfingerprints = ["sha256:{"0" * 64}"]\nidentity = "{"0" * 64}"\n'
    return [
        *(text.encode() for text in texts),
        *(Study.parse(text).canonical() for text in texts),
        (role + policy).encode(),
        f'[consortium]\nname = "flu"\nversion = 1\nca_certificate = ""\n{party}'.encode(),
        b'[request]\nname = "a"\nrole = "client"\nidentity = "00"\nproof = "00"\ncsr = ""\n',
    ]


def write_corpus(folder: Path, kind: str) -> None:
    """The seeds as files, and the words the fuzzer may put in."""
    folder.mkdir(parents=True)
    for number, seed in enumerate(wire_seeds() if kind == "wire" else study_seeds()):
        (folder / f"seed-{number:03d}").write_bytes(seed)
    lines = ['"' + "".join(f"\\x{byte:02x}" for byte in word.encode()) + '"' for word in WORDS]
    folder.with_suffix(".dict").write_text("\n".join(lines) + "\n", encoding="ascii")
