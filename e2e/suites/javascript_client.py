"""The JavaScript client `@kubernetes/client-node`, from the npm registry; skipped where that cannot be installed."""

import functools
import json
import shutil
import subprocess
from pathlib import Path

from harness import PATIENCE_SECS, Kit, Skip, case, job, same

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "e2e" / "javascript"
HOME = ROOT / "target" / "e2e-javascript"


@functools.cache
def installed() -> Path:
    """A folder with the scripts and the client they use; made anew when the requirements change."""
    if not shutil.which("node") or not shutil.which("npm"):
        raise Skip("needs node and npm")
    wanted, stamp = (SOURCES / "package.json").read_text(), HOME / "installed.json"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(HOME, ignore_errors=True)
        HOME.mkdir(parents=True)
        shutil.copy(SOURCES / "package.json", HOME)
        npm = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"],
                             cwd=HOME, capture_output=True, text=True, timeout=20 * PATIENCE_SECS, check=False)
        if npm.returncode != 0:
            raise Skip(f"npm cannot install the client: {npm.stderr.strip()[-300:]}")
        stamp.write_text(wanted)
    for script in SOURCES.glob("*.mjs"):
        shutil.copy(script, HOME)
    return HOME


@case
def typed_calls_work(kit: Kit):
    done = subprocess.run(["node", str(installed() / "tour.mjs"), kit.namespace], env=kit.cluster.environment,
                          capture_output=True, text=True, timeout=4 * PATIENCE_SECS, check=False)
    same(done.stderr, "")
    same([json.loads(line) for line in done.stdout.splitlines()], [
        ["created", [6, True]], ["again", 409], ["invalid", 422], ["patched", 2], ["applied", [["e2e", "Apply"]]],
        ["listed", ["applied", "pi"]], ["secret", "swordfish"], ["generic", "blue"], ["deleted", "Success"],
        ["gone", 404]])


@case
def an_informer_lists_and_follows(kit: Kit):
    kit.create(job("first"))
    informer = kit.follow("node", str(installed() / "informer.mjs"), kit.namespace)
    informer.wait_for("^add first parallelism=1 cached=first$")
    kit.create(job("last"))
    informer.wait_for("^add last .* cached=first,last$")
    kit.kubectl("patch", "job", "first", "--patch", '{"spec":{"parallelism":3}}')
    informer.wait_for("^update first parallelism=3 cached=first,last$")
    kit.kubectl("delete", "job", "first", "--cascade=background")
    informer.wait_for("^delete first .* cached=last$")
    kit.kubectl("delete", "job", "last", "--cascade=background")
    informer.wait_for("^delete last ")
    same([line for line in informer.seen if line.startswith("error")], [])
