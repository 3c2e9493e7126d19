"""The repository that the workspace of a stack is cloned from, and a clone that commits to it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from infra.stack import stack
from infra.stack.params import overlay

IDENTITY = ("-c", "user.name=Colleague", "-c", "user.email=colleague@localhost")


class Colleague:
    """A clone of the origin with the bucket as DVC's remote."""

    def __init__(self, running: stack.Stack) -> None:
        self._running = running
        self._branch = running.values["HEADSTART_BRANCH"]
        self.path = running.layout.folder / "colleague"
        if not self.path.is_dir():
            self._call("git", "clone", "--quiet", "--branch", self._branch, str(running.layout.origin), str(self.path))
            self._call("dvc", "remote", "add", "--local", "--default", "s3", self._environment()["HEADSTART_REMOTE"])

    def commit_params(self, over: Path) -> None:
        """Override keys of params.yaml by those of `over`, commit and push."""
        overlay(self.path / "params.yaml", over)
        self._commit("Settings of the local stack", "params.yaml")

    def commit_data(self, message: str) -> str:
        """Add data/ as a new version, push it to the bucket, commit and push; returns the commit."""
        self._call("dvc", "add", "--quiet", "data")
        self._call("dvc", "push", "--quiet", "data.dvc")
        return self._commit(message, "data.dvc")

    def head(self) -> str:
        """The head of the origin's branch."""
        return stack.git("rev-parse", self._branch, folder=self._running.layout.origin)

    def log(self) -> list[str]:
        """The commits of the origin since the settings of the local stack, newest first."""
        lines = stack.git("log", "-10", "--format=%h %an: %s", self._branch, folder=self._running.layout.origin)
        kept = []
        for line in lines.splitlines():
            kept.append(line)
            if line.endswith("Settings of the local stack"):
                break
        return kept

    def _commit(self, message: str, path: str) -> str:
        self._call("git", "add", "--force", path)
        if stack.git("status", "--porcelain", "--untracked-files=no", folder=self.path):
            self._call("git", *IDENTITY, "commit", "--quiet", "--message", message)
        # Scheduled runs push, too.
        self._call("git", *IDENTITY, "pull", "--quiet", "--rebase", "origin", self._branch)
        self._call("git", "push", "--quiet", "origin", f"HEAD:{self._branch}")
        return stack.git("rev-parse", "HEAD", folder=self.path)

    def _environment(self) -> dict[str, str]:
        return self._running.client_environment()

    def _call(self, *words: str) -> None:
        folder = self.path if self.path.is_dir() else self._running.layout.folder
        done = subprocess.run(
            words, cwd=folder, env=self._environment(), capture_output=True, text=True, check=False, timeout=3600
        )
        if done.returncode:
            raise stack.StackError(f"{' '.join(words[:3])}: {done.stderr.strip() or done.stdout.strip()}")
