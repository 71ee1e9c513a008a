"""Studies between institutions: propose, look, decide, run, fetch. ``tallystick study …``

A steward's act works on the files of the client's own machine and needs no connection: the running client finds the
decision there and passes it on. An analyst's act dials the aggregator for as long as it lasts. Everything is returned
as data; :mod:`~.words` puts it into words.
"""

from tallystick.application.studies import words
from tallystick.application.studies.analyst import answer, propose, propose_study, receipt, result, run, withdraw
from tallystick.application.studies.steward import decide
from tallystick.application.studies.views import listing, show
from tallystick.application.studies.waiting import wait

__all__ = [
    "answer",
    "decide",
    "listing",
    "propose",
    "propose_study",
    "receipt",
    "result",
    "run",
    "show",
    "wait",
    "withdraw",
    "words",
]
