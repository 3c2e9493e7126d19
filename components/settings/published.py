"""Architectures of published models."""

from typing import Final

#: `model_type` of a config.json -> family.
MODEL_TYPES: Final = {
    "bert": "bert",
    "distilbert": "bert",
    "roberta": "roberta",
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "albert": "albert",
    "mpnet": "mpnet",
    "modernbert": "modernbert",
    "gpt2": "gpt",
    "openai-gpt": "gpt",
    "xlnet": "xlnet",
    "transfo-xl": "transformer-xl",
}
