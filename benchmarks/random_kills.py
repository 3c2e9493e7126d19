"""SIGKILL of random processes of retrainings of a small project, at random times; at the end its outputs have the same
bits as without kills.

    python benchmarks/random_kills.py --count 200
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from tests.flows.faults.kills import random_kills
from tests.flows.faults.project import Session, environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10, help="number of kills")
    parser.add_argument("--seed", type=int, default=0, help="of the random times and processes")
    parser.add_argument("--keep", action="store_true", help="keep the projects and their logs")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headstart-kills-"))
    try:
        with environment(folder) as variables:
            print(random_kills(Session(folder, variables, seed=options.seed, count=options.count)))
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
