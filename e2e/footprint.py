"""How much memory the server under test takes, as the kernel counts it."""

import os
from pathlib import Path

# Of extra memory, for whatever a client sends.
EXTRA_MAX = 64 << 20


class Footprint:
    """The most memory that the server has from now on, beyond what it has now."""

    def __init__(self):
        pid = os.environ.get("TALLY_PID")
        self._process = Path("/proc") / pid if pid else None
        if not self._process:
            return
        self._before = self._field("VmRSS")
        try:
            # The high-water mark begins anew (proc(5)).
            (self._process / "clear_refs").write_text("5")
        except PermissionError:
            self._process = None

    def extra_bytes(self) -> int | None:
        """The high-water mark's distance; nothing where nobody may look."""
        return max(0, self._field("VmHWM") - self._before) if self._process else None

    def judge(self, extra_max: int = EXTRA_MAX) -> str:
        """Says how much it was; fails if it was too much."""
        if (extra := self.extra_bytes()) is None:
            return "memory not measured"
        told = f"{extra / (1 << 20):.0f} MiB of extra memory"
        if extra > extra_max:
            raise AssertionError(f"{told}; {extra_max >> 20} MiB are allowed")
        return told

    def _field(self, name: str) -> int:
        for line in (self._process / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
        raise AssertionError(f"the kernel does not tell {name}")
