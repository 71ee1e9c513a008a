"""What the encrypted sum's machines ask for beside the instructions that every protocol has.

SumUp       (proxy) both have signed the set: make every chunk of the sum (``ProxyMachine.sum_job``), keep all of
            them durably (``UploadStore.put_sum``, ``complete_sum``), then call ``summed``. Chunks are independent of
            each other and may be made side by side
Drop        (proxy) forget the uploads of this round and all before it, ``sums`` too
Witness     remember, over all studies, that a noise maker was met under this start
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.protocol.boots import Witness
from tallystick.protocol.instructions import Aborted, Compute, Finished, Forget, Held, Persist, Send, Wake


@dataclass(frozen=True, slots=True)
class SumUp:
    round: int


@dataclass(frozen=True, slots=True)
class Drop:
    round: int
    sums: bool


Instruction = Send | Persist | Forget | SumUp | Drop | Witness | Wake | Compute | Finished | Held | Aborted
