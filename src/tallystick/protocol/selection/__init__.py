"""The exponential mechanism, and comparisons with a threshold, among 3 to 10 computing parties (README.md here)."""

from tallystick.protocol.instructions import Aborted, Send, Wake
from tallystick.protocol.selection.codec import decode, encode
from tallystick.protocol.selection.grouped import GroupedQuestion
from tallystick.protocol.selection.ideal import ideal
from tallystick.protocol.selection.in_memory import Selected, select_in_memory
from tallystick.protocol.selection.machine import Chosen, Instruction, SelectionMachine
from tallystick.protocol.selection.question import MAX_CELLS, MAX_PARTIES, MIN_PARTIES, Question, check_parties
from tallystick.protocol.selection.threshold import ThresholdQuestion

__all__ = [
    "MAX_CELLS",
    "MAX_PARTIES",
    "MIN_PARTIES",
    "Aborted",
    "Chosen",
    "GroupedQuestion",
    "Instruction",
    "Question",
    "Selected",
    "SelectionMachine",
    "Send",
    "ThresholdQuestion",
    "Wake",
    "check_parties",
    "decode",
    "encode",
    "ideal",
    "select_in_memory",
]
