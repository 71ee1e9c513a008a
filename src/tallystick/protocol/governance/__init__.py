"""Governed studies: signed statements and where they leave a study. Pure: time is an argument, files are elsewhere."""

from tallystick.protocol.governance.docket import Docket, in_order
from tallystick.protocol.governance.plan_summary import fold, noise_of, plan_digest, summarise, unfold
from tallystick.protocol.governance.policy import Facts, Limits, Policy, Rule, Verdict, facts_of, parse_rules
from tallystick.protocol.governance.receipt import make_receipt
from tallystick.protocol.governance.receipt_check import Finding, Report, check_receipt
from tallystick.protocol.governance.receipt_contents import lacking
from tallystick.protocol.governance.standing import STATES, Standing, quorum_of
from tallystick.protocol.governance.statements import Statement, canonical, decode, encode, make, shown, verify
from tallystick.protocol.governance.taking_part import check_approved, check_taking_part

__all__ = [
    "STATES",
    "Docket",
    "Facts",
    "Finding",
    "Limits",
    "Policy",
    "Report",
    "Rule",
    "Standing",
    "Statement",
    "Verdict",
    "canonical",
    "check_approved",
    "check_receipt",
    "check_taking_part",
    "decode",
    "encode",
    "facts_of",
    "fold",
    "in_order",
    "lacking",
    "make",
    "make_receipt",
    "noise_of",
    "parse_rules",
    "plan_digest",
    "quorum_of",
    "shown",
    "summarise",
    "unfold",
    "verify",
]
