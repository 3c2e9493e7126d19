"""The programs of `flows`, of which this process knows the name only."""

#: Subcommand -> help text of the programs of `flows`. Each is a module that is executed in place of this process, so
#: that this one does not import Prefect.
FLOWS = {
    "fit": "Train a model from labelled data: `init` if there is no params.yaml, then `retrain`.",
    "retrain": "Run every stage that is not up to date, from raw data to the promoted classifier.",
    "plan": "Show what a run would do, why, and what it would cost; nothing is run.",
    "sync": "Pull code and data, retrain, push and commit the result.",
    "schedule": "Retrain on a cron schedule; or only create the notifications of failed and late runs (--notify).",
    "forget": "Remove documents from data, labels, outputs and caches, with a certificate.",
    "ui": "Serve the pages of the project on 127.0.0.1 until stopped: runs, champion, errors, labelling, lineage.",
    "lectures": "Measure what lectures on transfer learning say, and write one page about it.",
    "gc": "Delete old checkpoints, caches, versions and logs; without --yes, only list them.",
    "label": "Append the answers in a file to the file of labels, with who and when; --undo takes them back.",
    "promote": "Compare the challenger with the champion again, or choose the champion: --version V --reason TEXT.",
}
#: Subcommand -> its module if the names differ: the module `retrain` is the flow, which imports Prefect.
PROGRAMS = {"retrain": "retrain_command", "plan": "costs"}
