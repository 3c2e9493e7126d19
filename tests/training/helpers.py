"""Helpers of the training tests: a token store in memory, a small model, tiny inputs of the stages."""

import csv
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from components.cluster.distributed import Worker, World
from components.data.ingestion.stage import IngestJob, ingest
from components.learners.finetuning.fit import Fit, load_initial_encoder
from components.models import FAMILIES
from components.models.base import Batch, Carry, Losses
from components.settings.cluster import ClusterSettings
from components.settings.data import CorpusSource, IngestSettings, ParallelSource
from components.settings.training import LanguageModelTraining
from components.tokenization.special import END
from components.tokenization.tokenize import TokenizeJob, tokenize
from components.tokenization.train import TokenizerJob, train_tokenizer
from components.training.checkpoint import CheckpointStore
from components.training.loop import StepReport, TrainingState, train
from components.training.pretraining import language_model
from components.training.pretraining.adapt import AdaptJob
from components.training.pretraining.language_model import LanguageModelRun, work
from components.training.pretraining.pretrain import PretrainJob, ScratchJob, pretrain
from components.training.windows import Sampler

VOCABULARY = 32
#: Kinds of tokenizers that `make_inputs` trains.
TOKENIZERS = ("char", "open_word", "parallel", "word", "wordpiece")


def fork(function: Callable[..., None], *arguments: Any, workers: int = 2) -> list[Any]:
    """Start `function(rank, *arguments)` in a forked process for each worker."""
    forking = multiprocessing.get_context("fork")
    processes = [forking.Process(target=function, args=(rank, *arguments)) for rank in range(workers)]
    for process in processes:
        process.start()
    return processes


def run_forked(function: Callable[..., None], *arguments: Any, workers: int = 2) -> None:
    """`fork`, and wait until all workers have succeeded."""
    processes = fork(function, *arguments, workers=workers)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * workers


def losses_until(
    state: TrainingState, sampler: Sampler, settings: LanguageModelTraining, *, steps: int, until: int, world: World
) -> list[float]:
    """The losses up to step `until` of a run of `steps`."""
    losses = []
    for report in train(state, sampler, settings=settings, total_steps=steps, seed=5, world=world):
        losses.append(float(report.loss or 0))
        if report.step == until:
            break
    return losses


class MemoryStore:
    """Documents given as lists of sentences; the same interface as `TokenStore`."""

    def __init__(self, documents: Sequence[Sequence[Sequence[int]]]) -> None:
        flat = [[piece for sentence in document for piece in sentence] + [END] for document in documents]
        self.starts = [np.cumsum([0, *map(len, document)])[:-1] for document in documents]
        self.stream = np.array([piece for document in flat for piece in document], dtype=np.int64)
        self.offsets = np.cumsum([0, *map(len, flat)])
        self.documents = len(documents)
        self.tokens = len(self.stream)

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        return self.stream[np.arange(start, start + length) % self.tokens]

    def sentence_starts(self, document: int) -> NDArray[np.int64]:
        return self.starts[document]


class PairStore(MemoryStore):
    """Pairs of a source and a target, given as pieces; END is appended to each."""

    def __init__(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
        super().__init__([[source] for source, _ in pairs])
        self.targets = [np.array([*target, END], dtype=np.int64) for _, target in pairs]

    def document(self, index: int) -> NDArray[np.int64]:
        return self.stream[self.offsets[index] : self.offsets[index + 1]]

    def target(self, index: int) -> NDArray[np.int64]:
        return self.targets[index]

    def pair_lengths(self) -> NDArray[np.int64]:
        return np.stack([np.diff(self.offsets), [len(target) for target in self.targets]], axis=1)

    @property
    def starting(self) -> list[int]:
        """The first piece of each source."""
        return self.stream[self.offsets[:-1]].tolist()


#: Pairs of pieces below 20: a source and a target of different lengths, and an empty target.
PAIRS = [([7, 8, 9, 10], [11, 12]), ([5], [6, 7, 8, 9, 10, 11]), ([12, 13], []), ([19, 5, 6], [14])]


def numbered_pairs(pairs: int = 40) -> PairStore:
    """Sources of 2 to 11 pieces with distinct numbers; a target contains every second piece of its source."""
    pieces = iter(range(5, 5 + 12 * pairs))
    sources = [[next(pieces) for _ in range(2 + 7 * number % 10)] for number in range(pairs)]
    return PairStore([(source, source[::2]) for source in sources])


def numbered_store(documents: int = 20, sentences: int = 4, length: int = 5) -> MemoryStore:
    """All pieces except END have distinct numbers from 5, so that a piece shows its position."""
    pieces = iter(range(5, 5 + documents * sentences * length))
    return MemoryStore([[[next(pieces) for _ in range(length)] for _ in range(sentences)] for _ in range(documents)])


class TinyModel(nn.Module):
    """A recurrent language model with a tied embedding, dropout, a buffer and a carry: every part of a state."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.cell = nn.Linear(2 * width, width)
        self.output = nn.Linear(width, VOCABULARY)
        self.output.weight = self.embedding.weight
        self.dropout = nn.Dropout(0.2)
        self.register_buffer("seen", torch.zeros(1))

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        tokens = batch["tokens"] % VOCABULARY
        hidden = carry[0] if carry else torch.zeros(len(tokens), self.cell.out_features)
        states = []
        for place in range(tokens.shape[1]):
            hidden = torch.tanh(self.cell(torch.cat([self.embedding(tokens[:, place]), hidden], 1)))
            states.append(hidden)
        logits = self.output(self.dropout(torch.stack(states, 1)))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), (batch["targets"] % VOCABULARY).flatten())
        if self.training:
            self.seen += tokens.numel()
        count = torch.tensor(tokens.numel())
        return Losses(loss, {"tokens": (loss.detach() * count, count)}, (hidden.detach(),))


def tiny_model(seed: int = 0) -> TinyModel:
    torch.manual_seed(seed)
    return TinyModel()


def lm_settings(**changes: object) -> LanguageModelTraining:
    """Settings of a run of six small batches, whose curve is not measured on held-out text."""
    values = {
        "rate": 0.01,
        "batch_size": 4,
        "window": 8,
        "window_jitter": 1,
        "tokens": 4 * 8 * 6,
        "heldout": 256,
        "precision": "float32",
    }
    return LanguageModelTraining.model_validate(values | changes)


#: Settings of a run whose curve is measured on held-out text.
CURVE = {"heldout": 32_768}


def make_inputs(root: Path) -> Path:
    """Corpora, tokenizers and token shards of two small corpora, written by the stages."""
    words = {
        "general": "the river runs from the old bridge to the sea and boats go down with wool and salt",
        "domain": "the bucket policy grants the role access to objects and the queue sends messages to topics",
    }
    for seed, (corpus, vocabulary) in enumerate(words.items()):
        rng = np.random.default_rng(seed)
        raw = root / "raw" / corpus
        raw.mkdir(parents=True)
        sentences = [" ".join(rng.choice(vocabulary.split(), 7)).capitalize() + "." for _ in range(600)]
        documents = [" ".join(sentences[at : at + 3]) for at in range(0, 600, 3)]
        for number, document in enumerate(documents):
            (raw / f"{number:03d}.txt").write_text(document + "\n", encoding="utf-8")
        # A pair is a sentence and its words in reverse.
        (root / "raw" / f"{corpus}-parallel").mkdir()
        turned = ({"source": text, "target": " ".join(text[:-1].split()[::-1])} for text in sentences)
        (root / "raw" / f"{corpus}-parallel" / "pairs.jsonl").write_text("\n".join(map(json.dumps, turned)))
        for name, source in (
            (corpus, CorpusSource(path=str(raw))),
            (f"{corpus}-parallel", ParallelSource(path=str(root / "raw" / f"{corpus}-parallel"))),
        ):
            settings = IngestSettings(near_duplicates=None, heldout=0.05)
            ingest(IngestJob(name=name, source=source, settings=settings, output=root / "corpus" / name))
        for kind in TOKENIZERS:
            _make_tokens(root, corpus, kind)
    return root


def _make_tokens(root: Path, corpus: str, kind: str) -> None:
    """Tokenizer and token shards of one kind, as written by the stages and their `-parallel` variants."""
    text, pairs = root / "corpus" / corpus, root / "corpus" / f"{corpus}-parallel"
    tokenizer = root / "tokenizer" / f"{corpus}-{kind}"
    settings = {"wordpiece": {"vocabulary": 70}, "word": {"vocabulary": 15}}
    job = {"kind": "word", "pairs": pairs} if kind == "parallel" else {"kind": kind}
    train_tokenizer(TokenizerJob.model_validate({"corpus": text, "output": tokenizer, "settings": settings} | job))
    source = pairs if kind == "parallel" else text
    tokenize(TokenizeJob(corpus=source, tokenizer=tokenizer, output=root / "tokens" / f"{corpus}-{kind}"))


def tokenizer_of(family: str) -> str:
    """The first kind of tokenizer of `make_inputs` that fits a family."""
    if FAMILIES[family].objective == "translation":
        return "parallel"
    return next(kind for kind in FAMILIES[family].tokenizers if kind in TOKENIZERS)


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two sets of tensors have the same names and are bit-identical."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def text_of(inputs: Path, corpus: str, kind: str) -> dict[str, Path]:
    """The token shards of a corpus, and their tokenizer."""
    return {name: inputs / name / f"{corpus}-{kind}" for name in ("tokens", "tokenizer")}


def _values(inputs: Path, family: str, output: Path, corpus: str) -> dict[str, Any]:
    checkpoints = ClusterSettings(launcher="local", storage=str(output / "checkpoints"), checkpoint_seconds=1e-9)
    text = text_of(inputs, corpus, tokenizer_of(family))
    return {"family": family, "training": lm_settings(), "cluster": checkpoints, **text}


def pretrain_job(inputs: Path, family: str, output: Path, **changes: Any) -> PretrainJob:
    """A tiny run on the inputs of `make_inputs`, with its checkpoints next to its output."""
    given = {"model": dict(FAMILIES[family].tiny), "output": output / "pretrained"}
    return PretrainJob.model_validate(_values(inputs, family, output, "general") | given | changes)


def pretrained_by(inputs: Path, family: str, output: Path, **changes: Any) -> Path:
    """The encoder directory of `pretrain_job`."""
    return pretrain(pretrain_job(inputs, family, output, **changes))


def run_of(job: PretrainJob | ScratchJob, **changes: Any) -> LanguageModelRun:
    """The run of a job."""
    shared = {name: getattr(job, name) for name in ("family", "model", "tokens", "tokenizer", "training")}
    return LanguageModelRun.model_validate({"name": "run", **shared, **changes})


def scratch_job(job: PretrainJob, output: Path, **changes: Any) -> ScratchJob:
    """The model of another job without language modelling."""
    shared = {name: getattr(job, name) for name in ("family", "model", "tokenizer")}
    return ScratchJob.model_validate({**shared, "output": output, **changes})


def adapt_job(inputs: Path, family: str, pretrained: Path, output: Path, **changes: Any) -> AdaptJob:
    """A tiny adaptation run with a change of vocabulary."""
    kind = tokenizer_of(family)
    given = {
        "pretrained": pretrained,
        "general_tokens": text_of(inputs, "general", kind)["tokens"],
        "general_corpus": inputs / "corpus" / ("general-parallel" if kind == "parallel" else "general"),
        "output": output / "adapted",
    }
    return AdaptJob.model_validate(_values(inputs, family, output, "domain") | given | changes)


def metrics_of(output: Path) -> dict[str, Any]:
    """The metrics of an output directory."""
    return json.loads((output / "metrics.json").read_text())


def curve_of(output: Path) -> list[dict[str, str]]:
    """The rows of the curve of an encoder directory."""
    with (output / "curve.csv").open() as file:
        return list(csv.DictReader(file))


def drawn_encoder(encoder: Path) -> Any:
    """The random model of a seed of fine-tuning, from the output of the stage `scratch`."""
    spec = SimpleNamespace(seed=1, job=SimpleNamespace(encoder=encoder), settings=SimpleNamespace(dropout=1.0))
    return load_initial_encoder(cast(Fit, spec))[0]


@contextmanager
def one_of_two(rank: int, folder: Path) -> Iterator[World]:
    """A block in which this process is one of two workers, which meet in `folder`."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    yield World(rank, 2)
    dist.destroy_process_group()


def weights(encoder: Path) -> dict[str, Tensor]:
    """The tensors of an encoder directory."""
    return load_file(encoder / "model.safetensors")


def run_with_kills(stage: Callable[[Any], object], job: Any, *, checkpoints: Path, seed: int, kills: int = 2) -> int:
    """Run a stage in a separate process that is killed (SIGKILL) `kills` times at random moments, then to its end.

    A moment is a random number of checkpoints after the start and a random fraction of a step's time after that.

    Returns:
        How often the process really was killed before it had ended.
    """
    rng = np.random.default_rng(seed)
    killed = 0
    forking = multiprocessing.get_context("fork")
    for _ in range(kills):
        process = forking.Process(target=stage, args=(job,))
        process.start()
        seen, wanted = {_newest(checkpoints)}, int(rng.integers(1, 3))
        while process.is_alive() and len(seen) <= wanted:
            seen.add(_newest(checkpoints))
            time.sleep(0.0005)
        time.sleep(rng.uniform(0, 0.02))
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
    last = forking.Process(target=stage, args=(job,))
    last.start()
    last.join()
    assert last.exitcode == 0
    return killed


def run_interrupted(stage: Callable[[Any], object], job: Any, *, after: int = 3, writing: float = 0) -> None:
    """Run a stage in this process until it is interrupted after a step, then to its end, which repeats no step.

    Args:
        writing: seconds that the checkpoint of that step takes.
    """
    steps: list[int] = []
    save = CheckpointStore.save

    def slow(store: CheckpointStore, step: int, *content: Any) -> None:
        time.sleep(writing * (step == after))
        save(store, step, *content)

    def interrupted(*arguments: Any, **named: Any) -> Iterator[StepReport]:
        for report in train(*arguments, **named):
            steps.append(report.step)
            yield report
            if len(steps) == after:
                raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(language_model, "train", interrupted)
        patch.setattr(CheckpointStore, "save", slow)
        with pytest.raises(KeyboardInterrupt):
            stage(job)
        stage(job)
    assert steps == list(range(1, steps[-1] + 1)) and len(steps) > after


def _newest(checkpoints: Path) -> str:
    return max((path.parent.name for path in checkpoints.glob("*/step-*/state.json")), default="")


def noting_work(run: LanguageModelRun, worker: Worker) -> None:
    """`work`, with the worker's process id in a file next to the checkpoints, for tests that kill it."""
    (Path(run.storage).parent / f"worker-{worker.world.rank}").write_text(str(os.getpid()))
    work(run, worker)
