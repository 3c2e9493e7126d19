"""`python -m components.cli` is the command `headstart`."""

from components.cli.main import main

main()
