"""The labelling page: the texts that `components.labelling.queue` chooses, and a person's answers, each appended to the
file of labels at once; undo takes the last one back."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from components.core.errors import HeadstartError
from components.labelling.answers import Answer, merge, undo
from components.labelling.queue import Suggestion, queue
from components.labelling.rows import read_rows, source_of
from components.pages.project import Project

#: Texts that are chosen at once, and labels that have a key.
COUNT, KEYS = 50, 9

State = Literal["idle", "choosing", "ready", "failed"]


@dataclass(frozen=True)
class Given:
    """What a person did with a text. `labels`: of the answer; None: the text was skipped."""

    suggestion: Suggestion
    labels: tuple[str, ...] | None
    batch: str = ""


@dataclass
class Session:
    """The texts of one task that are being labelled."""

    state: State = "idle"
    waiting: list[Suggestion] = field(default_factory=list)
    done: list[Given] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    about: str = ""
    problem: str = ""

    @property
    def next(self) -> Suggestion | None:
        return self.waiting[0] if self.waiting else None

    @property
    def answered(self) -> int:
        """Number of labels given in this session."""
        return sum(given.labels is not None for given in self.done)

    def buttons(self) -> list[str]:
        """The labels with keys: all in their order if there are few, otherwise the most probable ones."""
        if len(self.labels) <= KEYS or self.next is None or not self.next.probabilities:
            return self.labels[:KEYS]
        shares = self.next.probabilities
        return sorted(self.labels, key=lambda label: -shares.get(label, 0.0))[:KEYS]


class Labelling:
    """The sessions of a project's tasks. All paths are relative to the working directory, the repository."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._sessions: dict[str, Session] = {}
        self._lock = threading.RLock()

    def session(self, task: str) -> Session:
        with self._lock:
            return self._sessions.setdefault(task, Session())

    def choose(self, task: str) -> None:
        """Start to choose texts in the background, unless that runs or texts wait."""
        with self._lock:
            session = self.session(task)
            if session.state == "choosing" or session.waiting:
                return
            session.state, session.problem = "choosing", ""
        threading.Thread(target=self._choose, args=[task], name="choose", daemon=True).start()

    def _choose(self, task: str) -> None:
        session = self.session(task)
        skipped = {given.suggestion.key for given in session.done if given.labels is None}
        try:
            chosen = queue(self._project.settings, task=task, count=COUNT, without=skipped)
        except Exception as error:  # a defect ends neither the server nor the waiting
            is_defect = not isinstance(error, HeadstartError)
            with self._lock:
                session.state = "failed"
                session.problem = f"the choice of texts failed ({error!r})" if is_defect else str(error)
            if is_defect:
                raise
            return
        with self._lock:
            session.waiting, session.labels = list(chosen.suggestions), list(chosen.labels)
            number = len(chosen.suggestions)
            session.about = f"{number} of {chosen.candidates:,} texts from {chosen.source} ({chosen.model})"
            session.state = "ready"

    @contextmanager
    def _changed(self, task: str) -> Iterator[Session]:
        """A session that is changed by one request at a time; what goes wrong is its problem."""
        with self._lock:
            session = self.session(task)
            try:
                yield session
            except HeadstartError as error:
                session.problem = str(error)

    def answer(self, task: str, key: str, labels: Sequence[str] | None, *, new: bool = False) -> None:
        """Merge the answer to the text that is shown; None: it is skipped."""
        with self._changed(task) as session:
            if (shown := session.next) is None or shown.key != key:
                return
            session.problem = ""
            batch, given = "", None if labels is None else tuple(labels)
            if given is not None:
                answers = [Answer(shown.fields, given)]
                batch = merge(self._project.settings, answers, task=task, new_labels=new).batch
                session.labels = sorted({*session.labels, *given})
            session.done.append(Given(session.waiting.pop(0), given, batch))

    def undo(self, task: str) -> None:
        """Take back the last answer or skip of this session, and show its text again."""
        with self._changed(task) as session:
            if session.done:
                last, session.problem = session.done[-1], ""
                if last.batch:
                    undo(self._project.settings, task=task, batch=last.batch)
                session.waiting.insert(0, session.done.pop().suggestion)
                session.state = "ready"

    def counts(self, task: str) -> dict[str, Any]:
        """The labelled rows of train: (label, number), most frequent first, and the number of rows."""
        name, source = source_of(self._project.settings, task)
        rows = [row.labels for row in read_rows(name, source, splits=("train",)) if row.labels is not None]
        return {"labels": Counter(label for labels in rows for label in labels).most_common(), "rows": len(rows)}
