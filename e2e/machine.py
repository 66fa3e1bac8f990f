"""What the pods of a case leave on the machine: processes, mounts, control groups, files. Nothing, if all is well."""

import os
import time
from pathlib import Path

from harness import PATIENCE_SECS, Kit, Skip


def data_directory() -> Path:
    """Where the server under test keeps everything; only one that runs pods on this machine says so."""
    path = os.environ.get("TALLY_DATA")
    if not path:
        raise Skip("needs a server that runs pods on this machine")
    return Path(path)


def until(what: str, condition, patience_secs: float = PATIENCE_SECS):
    """Waits until `condition` returns something true, and returns that."""
    deadline = time.monotonic() + patience_secs
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain until {what}")
        time.sleep(0.05)


class Traces:
    """Notes the pods of a case while they exist, and looks for traces of them afterwards."""

    def __init__(self, kit: Kit):
        self._kit = kit
        self._node = data_directory() / "node"
        self._uids: set[str] = set()

    def note(self) -> None:
        """Remembers the pods that exist now."""
        self._uids.update(item["metadata"]["uid"] for item in self._kit.get("pods")["items"])

    def expect_none(self) -> None:
        """Deletes everything of the case; then nothing of its pods may be left."""
        self.note()
        if not self._uids:
            raise AssertionError("no pod was noted, so nothing can be looked for")
        self._kit.kubectl("delete", "cronjobs,jobs,pods", "--all", "--wait=false")
        until("the pods are gone", lambda: not self._kit.get("pods")["items"])
        try:
            until("nothing is left", lambda: not self._found())
        except AssertionError:
            raise AssertionError("left behind:\n" + "\n".join(self._found())) from None

    def processes(self) -> list[int]:
        """Processes of the noted pods that run now."""
        return [pid for pid, uid in _marked_processes() if uid in self._uids]

    def _found(self) -> list[str]:
        found = [f"process {pid}" for pid in self.processes()]
        found += [f"mount {line}" for line in _mounts() if str(self._node) in line]
        groups = Path("/sys/fs/cgroup").glob("**/tally-*/*.*.*")
        found += [f"control group {path}" for path in groups if path.name.split(".")[0] in self._uids]
        for folder in ("pods", "logs"):
            found += [f"file {path}" for path in (self._node / folder).iterdir() if path.name in self._uids]
        # Working directories are handed on, but only empty ones; no other case runs at the same time.
        found += [f"file {path}" for path in (self._node / "work").glob("*/*")]
        return found


def _marked_processes():
    """Process numbers and the pods' uids, by the mark that the node puts into every environment."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        for variable in environment.split(b"\0"):
            if variable.startswith(b"TALLY_INSTANCE="):
                yield int(folder.name), variable.partition(b"=")[2].split(b"/")[0].decode()


def _mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()
