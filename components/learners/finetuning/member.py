"""One task in a fine-tuning run: its model, its metrics on dev, and its best weights."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from components.data.scoring import Scoring
from components.data.tasks.data import Answer, Fields, Target
from components.data.tasks.examples import read_facts
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import best_score
from components.data.unlabelled_texts import read_unlabelled
from components.learners.base import per_row
from components.learners.finetuning import frozen
from components.learners.finetuning.frozen import LABELS, NAMES
from components.learners.finetuning.packing import BEST, MODEL, held, pack, unpack
from components.learners.finetuning.soft_labels import soft_labels_of
from components.learners.finetuning.specs import (
    RunSpec,
    all_training_rows,
    encode,
    label_fields,
    names_of,
    rows_of,
    weights_of,
    with_head,
)
from components.learners.task_models.base import Encoded
from components.learners.task_models.features import FeatureTable, extract, head_answers, read_by_head
from components.learners.task_models.fixed_batches import FixedBatches
from components.learners.task_models.heads import (
    CalibratedHead,
    ClassWeight,
    ImitatingHead,
    LabelHead,
    TextHead,
)
from components.learners.task_models.model import TaskModel, answers, cloned_state
from components.learners.task_models.probe import MOST_ROWS, HeadCandidate, HeadRows, search_head, train_head
from components.learners.ways import way_of
from components.learners.ways.base import TrainingRows
from components.models.base import LanguageModel
from components.tokenization import Tokenizer
from components.training.loop import TrainingState
from components.training.precision import first_device
from components.training.rng import counter_rng, counter_seed


class Member:
    """One task in a run.

    Where the run chooses on dev, its best weights are kept. In a fold of a cross-validation, dev is the rows of the
    fold, and the predictions at every evaluation are kept. After a cross-validation there is no dev, and the weights at
    the chosen evaluation are kept.

    Args:
        spec: of the member.
        encoder: the run's encoder.
        tokenizer: the encoder's.
    """

    def __init__(self, spec: RunSpec, encoder: LanguageModel, tokenizer: Tokenizer) -> None:
        self.spec = spec
        self.model = model = with_head(spec, encoder)
        #: The rows that the run learns from, and those that it predicts.
        self.rows = RunRows(spec, model, tokenizer)
        facts = read_facts(spec.examples)
        self.scoring: Scoring = scoring_for(facts.kind, facts.labels)
        settings = spec.settings
        #: Whether the head on frozen features is solved for instead of trained by gradient steps.
        self.is_solved = settings.head_steps > 0 and isinstance(model.head, TextHead) and model.head.is_linear
        #: The way to learn of the run.
        self.way = way_of(settings)
        #: The part of the model whose best weights are kept.
        self.learning: nn.Module = self.way.stored(model)
        #: Whether there are rows to be scored on.
        self.is_scored = spec.labels is None and (spec.chosen is None or spec.fold is not None)
        if isinstance(model.head, CalibratedHead):
            # What a head decides is fitted on the predictions of all folds.
            model.head.decides = spec.fold is None
            if spec.fold is None and spec.chosen is not None and spec.chosen.calibration is not None:
                model.head.set_calibration(spec.chosen.calibration)
        model.head.prepare(self.rows.splits["train"].targets)
        #: Steps per epoch of this member's rows.
        self.epoch = -(-len(self.rows) // settings.step_rows)
        self._best: dict[str, Tensor] = {}
        #: Predictions of the best weights on dev; None if `result` has to compute them (after a resume, or if the
        #: initial weights are the best).
        self._best_on_dev: list[Answer] | None = None
        #: Predictions on the rows of the fold, by evaluation.
        self._held: dict[int, list[Answer]] = {}
        self.record: dict[str, Any] = {
            "budget": spec.budget,
            "seed": spec.seed,
            "precision": spec.precision,
            "score": self.scoring.main,
            "curve": [],
            "best_step": 0,
            "best_epoch": 0.0,
            "stop": 0,
            "steps": 0,
            "tokens": 0,
            "seconds": 0.0,
        }

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is left to train once the head is solved for."""
        return not self.way.trains_encoder and self.is_solved and self.model.features.mix is None

    def fit_head(self) -> list[Answer] | None:
        """Train the head on the frozen encoder's features; returns its predictions on dev, None without dev."""
        settings, head = self.spec.settings, self.model.head
        dev = self.rows.head_inputs("dev") if self.is_scored else None
        # Features are few and stay on the CPU, independent of the encoder's device.
        head.cpu()
        if settings.head_steps and (self.is_solved or self.way.trains_encoder):
            self._fit_head(self.rows.head_inputs, dev)
        elif not self.way.trains_encoder and not self.is_solved:
            head.fit_norm(self.rows.head_inputs("train").matrix())
        self.model.eval()
        result = None if dev is None else self._calibrated(lambda: head_answers(head, dev))
        head.to(first_device())
        return result

    def answers_by_candidate(self) -> dict[HeadCandidate, list[Answer]]:
        """The predictions on the rows of the fold by a head that is solved with each candidate."""
        dev, head = self.rows.head_inputs("dev"), self.model.head.cpu()
        assert isinstance(head, TextHead)
        result = {}
        candidates = self.candidates
        rows = self.rows.of_head(self.rows.head_inputs, names=[candidate.names for candidate in candidates])
        for candidate in candidates:
            search_head(
                head,
                rows=rows,
                dev=None,
                score=self._main_score,
                candidates=[candidate],
                steps=self.spec.settings.head_steps,
            )
            self.model.eval()
            result[candidate] = head_answers(head, dev)
        return result

    @property
    def candidates(self) -> list[HeadCandidate]:
        """Candidates of the head, one if it is chosen; those that differ only in the penalty are next to each other. Of
        a head that is not solved, only whether the names of the labels are training texts."""
        spec, head = self.spec, self.model.head
        decided = HeadCandidate.recorded(self.record) or (None if spec.chosen is None else spec.chosen.head)
        if decided is not None:
            return [decided]
        names, weights = names_of(spec), list[ClassWeight | None]([None])
        if self.is_solved:
            weights = list(weights_of(spec, head, self.scoring.main))
        elif len(names) > 1:
            names = [None]
        norms = head.norm_kinds if isinstance(head, TextHead) and head.norm_kinds else [None]
        return [
            HeadCandidate(norm, penalty, named, weight)
            for named, weight, norm, penalty in product(names, weights, norms, spec.settings.head_penalties)
        ]

    def training_rows(self) -> TrainingRows:
        """The rows that the run learns from, with the names of the labels if they are chosen."""
        return self.rows.of_training(names=bool(self.candidates[0].names))

    def refit_head(self) -> FeatureTable | None:
        """Fit the head to the current encoder's features, with the chosen penalty; returns dev's features."""
        dev = self.rows.current_inputs("dev") if self.is_scored else None
        self._fit_head(self.rows.current_inputs, dev)
        self.model.head.to(first_device()).eval()
        return dev

    def _fit_head(self, inputs: Callable[[str], FeatureTable], dev: FeatureTable | None) -> None:
        """Fit the head to `inputs` of the training rows; the first choice of a penalty on dev is recorded."""
        settings, head = self.spec.settings, self.model.head
        candidates = self.candidates
        rows = self.rows.of_head(inputs, names=[candidate.names for candidate in candidates])
        head.cpu()
        # In a run that trains the encoder alone, the head is frozen.
        head.requires_grad_()
        if not self.is_solved:
            (only,) = rows.values()
            train_head(
                head,
                table=only.table,
                targets=only.targets,
                settings=settings.training,
                steps=settings.head_steps,
                seed=counter_seed(self.spec.seed, "head alone"),
            )
            return
        assert isinstance(head, TextHead)
        best, scores = search_head(
            head,
            rows=rows,
            dev=dev,
            score=self._main_score,
            candidates=candidates,
            steps=settings.head_steps,
        )
        if "penalty" not in self.record:
            self.record |= {"penalties": {str(each): score for each, score in scores.items()}} | best.record

    def evaluate(self, state: TrainingState, *, numbers: Sequence[int], epoch: int, loss: float | None) -> None:
        """Evaluate the current weights on dev; without dev, keep them at the chosen evaluation.

        Args:
            state: of the run.
            numbers: of the evaluation, from 1; several if there are fewer steps than evaluations.
            epoch: steps per epoch of the run.
            loss: training loss of the step.
        """
        if self.is_scored:
            dev = self.refit_head() if self.way.refits_head else None
            head = self.model.head
            result = self._calibrated(lambda: self._answers("dev") if dev is None else head_answers(head, dev))
            self.add_scores(result, state, numbers=numbers, epoch=epoch, loss=loss)
        else:
            self.keep(state, numbers=numbers, epoch=epoch)

    def add_scores(
        self,
        result: list[Answer],
        state: TrainingState,
        *,
        numbers: Sequence[int],
        epoch: int,
        loss: float | None = None,
    ) -> None:
        """Add the metrics on dev to the curve; keep the weights if their primary metric is the highest so far (the
        earlier ones at a tie). In a fold, keep the predictions instead."""
        scores = self._scores(result)
        step = state.step
        curve = self.record["curve"]
        if self.spec.fold is not None:
            self._held |= dict.fromkeys(numbers, result)
        elif not curve or scores[self.scoring.main] > best_score(self.record):
            self._keep(state, numbers=numbers, epoch=epoch)
            self._best_on_dev = result if step else None
        curve.append({"step": step, "epoch": round(step / epoch, 3), "train_loss": loss, **scores})

    def keep(self, state: TrainingState, *, numbers: Sequence[int], epoch: int) -> None:
        """Keep the weights if this is the evaluation that cross-validation has chosen."""
        assert self.spec.chosen is not None
        if self.spec.chosen.stop in numbers:
            if self.way.refits_head and state.step:
                self.refit_head()
            self._keep(state, numbers=numbers, epoch=epoch)

    def _keep(self, state: TrainingState, *, numbers: Sequence[int], epoch: int) -> None:
        best = {"best_step": state.step, "best_epoch": round(state.step / epoch, 3), "stop": numbers[0]}
        self.record |= best
        self._best = cloned_state(self.learning)

    def result(self) -> dict[str, Tensor]:
        """Predictions on dev and test by the best weights, which the model then holds, and the weights (`model.`); of a
        fold, the predictions at every evaluation (`held.NUMBER`); of a run that labels texts, what students learn
        (`LABELS`)."""
        if self.spec.labels is not None:
            return pack(LABELS, self._labels_for_students())
        if self.spec.fold is not None:
            return self._held_tensors()
        self.learning.load_state_dict(self._best)
        self.model.eval()
        # The best weights may be those before training, whose features are cached.
        trained = bool(self.record["best_step"]) and self.way.trains_encoder
        predictions = pack("test", self.test_answers(trained=trained))
        if self.is_scored:
            answer = self._answers if self.record["best_step"] else self._head_answers
            predictions |= pack("dev", answer("dev") if self._best_on_dev is None else self._best_on_dev)
        return predictions | self.weights()

    def _labels_for_students(self) -> list[Answer]:
        self.learning.load_state_dict(self._best)
        self.model.eval()
        head = self.model.head
        assert isinstance(head, ImitatingHead)  # as `refuse_distillation` has found
        if not self.way.trains_encoder or not self.record["best_step"]:
            return head_answers(head, self.rows.head_inputs(LABELS), answer=head.taught)
        if self.way.refits_head:
            return head_answers(head, self.rows.current_inputs(LABELS), answer=head.taught)
        return answers(self.model, self.rows.encoded(LABELS), answer=head.taught, precision=self.spec.precision)

    def weights(self, *, without: str | None = None) -> dict[str, Tensor]:
        """The model's present weights under `model.`, except those whose names begin with `without`."""
        return {
            f"{MODEL}{name}": value.cpu()
            for name, value in cloned_state(self.model).items()
            if without is None or not name.startswith(without)
        }

    def tensors(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint stores for the member in addition to the run's state."""
        best = {f"{BEST}{name}": value.cpu() for name, value in self._best.items()}
        return best | self._held_tensors()

    def _held_tensors(self) -> dict[str, Tensor]:
        return {
            name: value for number, result in self._held.items() for name, value in pack(held(number), result).items()
        }

    def restore(self, tensors: Mapping[str, Tensor], record: Mapping[str, Any], *, penalty: float) -> None:
        """Restore the tensors that `tensors` returned, the record, and the head's L2 penalty."""
        self._best = {name.removeprefix(BEST): value for name, value in tensors.items() if name.startswith(BEST)}
        numbers = range(self.spec.settings.evaluations + 1)
        self._held = {number: unpack(held(number), tensors) for number in numbers if held(number) in tensors}
        self.record = dict(record)
        self.model.head.penalty = float(penalty)
        if isinstance(self.model.head, LabelHead):
            self.model.head.weigh(self.candidates[0].weight, self.training_rows().targets)

    def _answers(self, split: str) -> list[Answer]:
        if not self.way.trains_encoder:
            return self._head_answers(split)
        if self.way.refits_head:
            return head_answers(self.model.head, self.rows.current_inputs(split))
        return answers(self.model, self.rows.encoded(split), precision=self.spec.precision)

    def _head_answers(self, split: str) -> list[Answer]:
        return head_answers(self.model.head, self.rows.head_inputs(split))

    def test_answers(self, *, trained: bool) -> list[Answer]:
        """Predictions of the best weights on test, which the stored classifier repeats to the last bit.

        Args:
            trained: whether the encoder was trained; else its features are cached.
        """
        batches = FixedBatches(
            self.model,
            precision=self.spec.precision,
            head_precision="float32" if self.way.refits_head or not trained else None,
        )
        if trained:
            return batches.answers(self.rows.encoded("test"))
        return batches.decide(list(frozen.features(self.spec, "test").rows()))

    def _calibrated(self, answer: Callable[[], list[Answer]]) -> list[Answer]:
        """The predictions on dev, after `Head.calibrate` has fitted the head's thresholds on them; not in a fold."""
        if self.spec.fold is not None:
            return answer()
        return self.model.head.calibrate(answer, per_row(self.scoring, self.rows.splits["dev"]))

    def _main_score(self, result: Sequence[Answer]) -> float:
        return self._scores(result)[self.scoring.main]

    def _scores(self, result: Sequence[Answer]) -> dict[str, float]:
        dev = self.rows.splits["dev"]
        return self.scoring.score(dev.fields, dev.targets, result)


class RunRows:
    """The rows of one task in a run.

    Args:
        spec: of the run.
        model: encoder and head.
        tokenizer: the encoder's.
    """

    def __init__(self, spec: RunSpec, model: TaskModel, tokenizer: Tokenizer) -> None:
        self.spec, self._model, self._tokenizer = spec, model, tokenizer
        self._facts, self.of_task = read_facts(spec.examples), rows_of(spec)
        rows = self.of_task
        dev = rows.dev if spec.chosen is None and spec.fold is None else rows.held_out
        #: Name -> rows; `train` holds those that the run learns from, `dev` those that it is scored on.
        self.splits = {"train": rows.labelled, "dev": dev, "test": rows.test}
        self._encodings: dict[str, list[Encoded]] = {}

    def __len__(self) -> int:
        return len(self.of_task.labelled)

    def encoded(self, split: str) -> list[Encoded]:
        """A split as piece ids; not computed where only a head is trained."""
        if split not in self._encodings:
            named = frozen.fields_of(self.spec, split) if split in (LABELS, NAMES) else self.splits[split].fields
            self._encodings[split] = self._encode(named)
        return self._encodings[split]

    def head_inputs(self, split: str) -> FeatureTable:
        """The inputs of the head for a split's rows, by the encoder as it was before training."""
        return read_by_head(self._model, self.features(split))

    def current_inputs(self, split: str) -> FeatureTable:
        """The inputs of the head for a split's rows, by the encoder as it is."""
        return read_by_head(self._model, extract(self._model, self.encoded(split), precision=self.spec.precision))

    def features(self, split: str) -> FeatureTable:
        """The features of a split's rows by the encoder before training."""
        rows = self.of_task
        if split != "train" and (split != "dev" or rows.held is None):
            return frozen.features(self.spec, split)
        chosen = rows.learned if split == "train" else rows.drawn[rows.held]
        numbers = all_training_rows(self.spec, rows.whole, self._facts)
        return frozen.features(self.spec, "train").take(np.searchsorted(numbers, chosen))

    def of_head(
        self, inputs: Callable[[str], FeatureTable], *, names: Iterable[bool | None]
    ) -> dict[bool | None, HeadRows]:
        """The rows on which the head is trained alone: a sample of more than `MOST_ROWS`.

        Args:
            inputs: split -> inputs of the head.
            names: with or without the names of the labels; one result each.
        """
        rows = np.arange(len(self))
        if len(rows) > MOST_ROWS:
            rows = np.sort(counter_rng(self.spec.seed, "head alone").permutation(rows)[:MOST_ROWS])
        table, targets = inputs("train").take(rows), [self.splits["train"].targets[row] for row in rows]
        return {
            named: HeadRows(
                table.joined(inputs(NAMES).averaged(self._labels)), targets + _targets(np.unique(self._labels))
            )
            if named
            else HeadRows(table, targets)
            for named in set(names)
        }

    def of_training(self, *, names: bool) -> TrainingRows:
        """The rows that the run learns from, with or without the names of the labels."""
        splits = ["train", NAMES] if names else ["train"]
        texts, taught = self._taught
        return TrainingRows(
            self._model,
            self.spec.seed,
            [*self.splits["train"].targets, *(_targets(self._labels) if names else ())],
            encoded=lambda: [row for split in splits for row in self.encoded(split)],
            features=lambda: reduce(FeatureTable.joined, map(self.features, splits)),
            taught=taught,
            taught_encoded=lambda: self._encode(texts),
        )

    @cached_property
    def _labels(self) -> NDArray[np.int64]:
        """The label of each text of `NAMES`."""
        return np.repeat(np.arange(len(self._facts.labels)), [len(texts) for texts in label_fields(self._facts)])

    @cached_property
    def _taught(self) -> tuple[list[Fields], list[Target]]:
        if self.spec.distillation is None:
            return [], []
        texts = read_unlabelled(self.spec.distillation.texts)
        rows, answers = soft_labels_of(self.spec, self.splits["dev"], self.of_task.left_out)
        return [texts[row] for row in rows], answers

    def _encode(self, rows: Sequence[Fields]) -> list[Encoded]:
        return encode(self.spec, self._model, self._tokenizer, rows)


def _targets(labels: NDArray[np.int64]) -> list[Target]:
    return [np.asarray([label], dtype=np.float64) for label in labels]
