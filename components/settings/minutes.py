"""Limits of training, free of other imports: the command line shows them."""

from typing import Final

#: Limit of `auto.minutes` in the settings that `headstart init` and `headstart.fit` write.
FIRST_MINUTES: Final = 5.0
