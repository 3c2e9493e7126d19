"""SetFit's side of benchmarks/contrastive_speed.py, for an interpreter with setfit 1.2 and without this repository.

Reads a job as JSON from the standard input and writes its result as the last line of the standard output.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main() -> None:
    import numpy as np
    import torch
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments
    from transformers import TrainerCallback

    job: dict[str, Any] = json.load(sys.stdin)
    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["seed"])
    names = sorted({label for _, label in job["train"]})
    model = SetFitModel.from_pretrained(job["model"])
    model.model_body.max_seq_length = job["max_length"]
    train = Dataset.from_dict(
        {"text": [text for text, _ in job["train"]], "label": [names.index(label) for _, label in job["train"]]}
    )
    arguments = TrainingArguments(
        batch_size=job["batch_size"],
        num_epochs=1,
        max_steps=job.get("steps", -1),
        seed=job["seed"],
        report_to="none",
        save_strategy="no",
        show_progress_bar=False,
        output_dir=job["scratch"],
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=train)
    times: dict[str, tuple[float, float]] = {}

    class Clock(TrainerCallback):
        """Wall-clock and processor time of the encoder's training alone, without imports, loading and the head."""

        steps = 0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            times["began"] = time.perf_counter(), time.process_time()

        def on_train_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            times["ended"] = time.perf_counter(), time.process_time()
            Clock.steps = state.global_step

    trainer.add_callback(Clock())
    began = time.process_time()
    trainer.train()
    whole = time.process_time() - began
    answers = []
    if job["dev"]:
        found = model.predict(job["dev"], as_numpy=True, show_progress_bar=False)
        answers = [names[int(index)] for index in np.asarray(found)]
    seconds, cpu = (after - before for before, after in zip(times["began"], times["ended"], strict=True))
    result = {
        "answers": answers,
        "steps": Clock.steps,
        "pairs": Clock.steps * job["batch_size"],
        "seconds": seconds,
        "cpu": cpu,
        "cpu_with_head": whole,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
