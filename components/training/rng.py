"""Random numbers as a function of counters (contract 6): no state to store, and any position is reached in O(1)."""

import hashlib

import numpy as np


def counter_seed(*counters: int | str) -> int:
    """A 63-bit seed that depends on its counters only (seed, purpose, epoch, step, rank ...)."""
    digest = hashlib.blake2b(",".join(map(str, counters)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def counter_rng(*counters: int | str) -> np.random.Generator:
    """A NumPy generator seeded by counters."""
    return np.random.Generator(np.random.Philox(counter_seed(*counters)))
