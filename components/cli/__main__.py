"""`python -m components.cli` is the command `headstart`."""

from components.cli.entry import main

main()
