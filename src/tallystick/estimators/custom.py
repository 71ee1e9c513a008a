"""A user's own program as an estimator: ``ts.ProgramEstimator(MyProgram(), epsilon=1.0).fit(fed).state_``."""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tallystick.algorithms.design import Design
from tallystick.algorithms.program import Program, State
from tallystick.core.errors import StudyError
from tallystick.core.identifiers import digest, format_hash
from tallystick.engines.designs import design_of, program_from_text
from tallystick.engines.federation import Federation
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.study import Study
from tallystick.study.schema import FeatureLayout


@dataclass(kw_only=True, eq=False, repr=False)
class ProgramEstimator(PrivateEstimator):
    """Runs a :class:`tallystick.Program`; the released final state is ``state_``."""

    program_name: ClassVar[str] = "program"

    program: Program | None = field(default=None, kw_only=False)

    @classmethod
    def from_text(cls, text: str, *, name: str, **common: Any) -> ProgramEstimator:
        """From a program file's text, checked against the allow-list; nothing runs that was not."""
        return cls(program_from_text(text, name=name)[0], **common)

    def study_for(self, fed: Federation, **options: Any) -> Study:
        """The study of a program file names the file and its hash: what each steward reads and approves."""
        study = super().study_for(fed, **options)
        text = getattr(self.program, "source_text", None)
        if text is None:
            return study
        raw = study.model_dump()
        raw["study"]["program"] = f"{type(self.program).__name__}.py"
        raw["study"]["program_hash"] = format_hash(hashlib.sha256(text.encode()).digest())
        raw["program"] = {}
        return Study.from_dict(raw)

    def design_for(self, study: Study, layout: FeatureLayout) -> Design:
        """The program with as many rounds as it says."""
        if not isinstance(self.program, Program):
            raise StudyError("program is not a ts.Program", remedy="Pass an instance of a subclass of ts.Program.")
        return design_of(study, layout, self.program)

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        self.state_ = state

    def _study_program(self) -> dict[str, Any]:
        """What identifies a program written in a session: its class, constants and source."""
        program = self.program
        if program is None:
            return {}
        constants = {
            name: getattr(program, name)
            for name in sorted(set(dir(type(program))) | set(vars(program)))
            if not name.startswith("_") and isinstance(getattr(program, name), (bool, int, float, str))
        }
        if program.interim is Program.interim:  # as hashes were before there was a choice
            del constants["interim"]
        try:
            source = inspect.getsource(type(program))
        except (OSError, TypeError):
            source = repr(type(program))
        return {"class": type(program).__name__, "constants": constants, "source": format_hash(digest(source.encode()))}

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result: the released state, by the names its author gave."""
        state = self.state_
        fields = getattr(state, "_fields", None)
        document: Any
        if fields is not None:
            document = {name: _plain(part) for name, part in zip(fields, state)}
        else:
            document = [_plain(part) for part in state] if isinstance(state, tuple) else _plain(state)
        return {"type": self._class_name, "state": document, "features": list(self._layout.names)}

    def _answer(self) -> Answer:
        state = self.state_
        parts = state if isinstance(state, tuple) else (state,)
        names = getattr(state, "_fields", None) or [str(at) for at in range(len(parts))]
        rows = [
            {"part": name, "at": ", ".join(map(str, at)), "value": float(value)}
            for name, part in zip(names, parts)
            for at, value in np.ndenumerate(np.asarray(part))
        ]
        return Answer.of(rows, ["The program's released state; what its numbers mean is in the program's own text."])

    @property
    def _class_name(self) -> str:
        """What its author called the program, also where its code is in a locked child."""
        file = getattr(self.program, "file", None)
        return type(self.program).__name__ if file is None else str(file.class_name)

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """A program of one's own has no prediction; its result is ``state_``."""
        raise StudyError(f"{self._class_name} has no predict", remedy="Use state_, the released result.")


def _plain(part: Any) -> Any:
    """A part of a state as JSON has it."""
    return part.tolist() if isinstance(part, (np.ndarray, np.generic)) else part
