"""The subcommands of `headstart` by subject, each a function whose signature defines the flags."""
