"""The process of `components.registry.isolated`: a classifier with the code that it was registered with.

Run as a script with the arguments: folder that contains the version's package `components`, bundle, file descriptor of
the connection, number of threads. This file belongs to the present code and uses of the version's code only
`load_classifier` or `load_words`, and `answer`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


def main(code: str, bundle: str, descriptor: str, threads: str) -> None:
    """Answer requests until the connection is closed.

    A request is JSON: N rows. The answer is a JSON object, {"lengths": N numbers}, and then the values
    of all answers as float32; or {"error": text}.
    """
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    connection = Connection(int(descriptor))
    sys.path.insert(0, code)
    try:
        import numpy as np

        classifier = _load(Path(bundle), threads=int(threads))
        _send(connection, {"kind": classifier.kind, "labels": list(classifier.labels)})
    except Exception as error:
        _send(connection, {"error": f"{type(error).__name__}: {error}"})
        return
    while True:
        try:
            rows = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return  # the present process has closed the connection, or ended
        try:
            answers = classifier.answer([tuple(row) for row in rows])
        except Exception as error:
            _send(connection, {"error": f"{type(error).__name__}: {error}"})
            continue
        _send(connection, {"lengths": [len(answer) for answer in answers]})
        connection.send_bytes(np.concatenate(answers).astype(np.float32).tobytes())


def _load(bundle: Path, *, threads: int) -> Any:
    config = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
    if config.get("form") == "words":
        from components.words.classifier import load_words

        return load_words(bundle)
    import torch

    torch.set_num_threads(threads)
    from components.task_models.classifier import load_classifier

    return load_classifier(bundle)


def _end_with_parent(parent: int) -> None:
    """End this process when its parent has ended, also while it starts or computes."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _send(connection: Connection, content: dict[str, Any]) -> None:
    connection.send_bytes(json.dumps(content).encode())


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main(*sys.argv[1:])
