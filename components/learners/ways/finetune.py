"""`method: finetune`: encoder and head are trained together, layer group by layer group (ULMFiT, section 3.3)."""

from typing import Final

from components.learners.ways.base import Way

#: With fewer rows with labels, fine-tuning takes most of the time and was worse than the other ways on TREC and SST-2.
LEAST_ROWS: Final = 1000


class Finetune(Way):
    """Training of encoder and head."""

    least_rows = LEAST_ROWS
