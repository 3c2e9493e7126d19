"""Models as MLflow stores them: a bundle, the module that loads it, and a signature."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

    from components.data.tasks.task_io import TaskIO

#: Module of the installed package that loads a bundle for MLflow, and the package.
LOADER: Final = "components.registry.pyfunc"
PACKAGE: Final = "headstart"
#: Input examples of an encoder.
EXAMPLES: Final = ({"text": "The name of the bucket."}, {"text": "Whether versioning is on."})


def log_model(bundle: Path, form: TaskIO | None, *, model_id: str, run: str) -> Any:
    """Store a model in MLflow, as an artifact of a run; the stored model. `form`: columns of inputs and outputs of the
    task; None for an encoder, which returns one vector per text."""
    import mlflow.pyfunc
    import pandas
    from mlflow.models import Model

    # `mlflow.pyfunc.log_model` would need an active run, and end it at the present time.
    return Model.log(
        artifact_path=None,
        model_id=model_id,
        flavor=mlflow.pyfunc,
        run_id=run,
        loader_module=LOADER,
        data_path=str(bundle),
        signature=signature(form),
        input_example=pandas.DataFrame(list(form.examples if form else EXAMPLES)),
        pip_requirements=[PACKAGE],
    )


def signature(form: TaskIO | None) -> ModelSignature:
    """The columns of a model's inputs and outputs; None: of an encoder."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import Array, Map, Object, Property

    span = [Property(name, DataType.long) for name in ("start", "end")]
    span += [Property(name, DataType.string) for name in ("type", "text")]
    types = {
        "text": DataType.string,
        "texts": Array(DataType.string),
        "number": DataType.double,
        "integer": DataType.long,
        "shares": Map(DataType.double),
        "spans": Array(Object(span)),
        "vector": Array(DataType.double),
    }

    def schema(columns: Mapping[str, str]) -> Schema:
        return Schema([ColSpec(types[value], name) for name, value in columns.items()])

    if form is None:
        return ModelSignature(inputs=schema({"text": "text"}), outputs=schema({"embedding": "vector"}))
    return ModelSignature(inputs=schema(form.inputs), outputs=schema(form.outputs))
