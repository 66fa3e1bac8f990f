"""Cases, kubectl, filters and comparisons. Standard library only."""

import base64
import difflib
import json
import os
import queue
import random
import re
import ssl
import string
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import traceback
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

PATIENCE_SECS = 30.0

# Everything is on this machine; no client may be sent through a proxy.
for _name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[_name]

_cases = []


class Skip(Exception):
    """Raised by a case that cannot run here; shown, and counted as skipped."""


@dataclass
class Answer:
    """What a command printed."""

    out: str
    err: str
    code: int


def case(function):
    """Registers a case; its name is its behaviour. It gets a `Kit`."""
    suite = function.__module__.rsplit(".", 1)[-1]
    _cases.append((f"{suite}/{function.__name__}", function))
    return function


def run_all(only: str) -> int:
    """Runs the chosen cases; the exit status for the shell."""
    passed, failed, skipped = 0, [], 0
    with tempfile.TemporaryDirectory(prefix="tally-e2e-") as scratch:
        cluster = Cluster(Path(scratch))
        print(f"kubectl {'.'.join(map(str, cluster.kubectl_version))} against {cluster.server}")
        for name, function in _cases:
            if only not in name:
                continue
            begin = time.monotonic()
            try:
                with Kit(cluster) as kit:
                    function(kit)
                notes = kit.notes
            except Skip as reason:
                skipped += 1
                print(f"skip {name}: {reason}")
            except Exception:  # noqa: BLE001 - whatever went wrong belongs in the report of this case
                failed.append(name)
                print(f"FAIL {name}\n{textwrap.indent(traceback.format_exc(), '    ')}")
            else:
                passed += 1
                print(f"ok   {name} ({', '.join([f'{time.monotonic() - begin:.1f} s', *notes])})")
            sys.stdout.flush()
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


class Cluster:
    """The server under test, and the kubectl that talks to it."""

    def __init__(self, scratch: Path):
        self.kubeconfig = Path(os.environ["KUBECONFIG"])
        self.scratch = scratch
        # Neither a person's cached discovery nor a proxy may come between kubectl and the server.
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(scratch), "KUBECONFIG": str(self.kubeconfig)}
        client = json.loads(self.call("version", "--client", "--output=json").out)["clientVersion"]
        self.kubectl_version = (int(client["major"]), int(client["minor"].rstrip("+")))
        self.server = self._config("{.clusters[0].cluster.server}")
        self.token = self._config("{.users[0].user.token}")
        self.authority = base64.b64decode(self._config("{.clusters[0].cluster.certificate-authority-data}")).decode()

    def _config(self, path: str) -> str:
        return self.call("config", "view", "--raw", f"--output=jsonpath={path}").out

    def request(self, method: str, path: str, body=None, **headers: str) -> tuple[int, str]:
        """The status and text that the server answers to a request with only these headers."""
        context = ssl.create_default_context(cadata=self.authority)
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=PATIENCE_SECS) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def call(self, *args: str, stdin: str = "", environment=None) -> Answer:
        """Runs kubectl to its end, whatever that is."""
        environment = {**self.environment, **(environment or {})}
        done = subprocess.run(["kubectl", *args], input=stdin, env=environment, cwd=self.scratch, capture_output=True,
                              text=True, timeout=4 * PATIENCE_SECS, check=False)
        return Answer(done.stdout, done.stderr, done.returncode)


class Kit:
    """What one case works with: kubectl in a namespace of its own."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.namespace = "e2e-" + "".join(random.choices(string.ascii_lowercase, k=8))
        self._watches: list[Watch] = []
        self.notes: list[str] = []
        # Of all answers to this case's own requests.
        self.slowest_secs = 0.0

    def note(self, text: str) -> None:
        """Shown with the result of the case."""
        self.notes.append(text)

    def __enter__(self):
        self.kubectl("create", "namespace", self.namespace)
        return self

    def __exit__(self, *_):
        for watch in self._watches:
            watch.end()

    def try_kubectl(self, *args: str, stdin=None) -> Answer:
        """kubectl in this case's namespace. `stdin` may be text, an object or a list of objects."""
        if stdin is not None and not isinstance(stdin, str):
            stdin = manifest(stdin)
        return self.cluster.call("--namespace", self.namespace, *args, stdin=stdin or "")

    def kubectl(self, *args: str, stdin=None) -> str:
        """What kubectl prints; it must succeed."""
        answer = self.try_kubectl(*args, stdin=stdin)
        if answer.code != 0:
            raise AssertionError(f"kubectl {' '.join(args)} exited with {answer.code}\n{answer.out}{answer.err}")
        return answer.out

    def refused(self, *args: str, stdin=None) -> str:
        """What kubectl complains about; it must fail."""
        answer = self.try_kubectl(*args, stdin=stdin)
        if answer.code == 0:
            raise AssertionError(f"kubectl {' '.join(args)} should have failed\n{answer.out}{answer.err}")
        return answer.err

    def create(self, *objects) -> None:
        """Creates objects from manifests."""
        self.kubectl("create", "--filename=-", stdin=list(objects))

    def get(self, *args: str) -> dict:
        """An object or a list as the server has it."""
        return json.loads(self.kubectl("get", "--output=json", *args))

    def watch(self, *args: str) -> "Watch":
        """A kubectl that goes on until the case ends, such as `get --watch`."""
        return self.follow("kubectl", "--namespace", self.namespace, *args)

    def follow(self, *command: str) -> "Watch":
        """A program that goes on until the case ends."""
        watch = Watch(self.cluster, list(command))
        self._watches.append(watch)
        return watch

    def write_status(self, resource: str, name: str, status: dict) -> None:
        """Replaces a status as a controller does."""
        path = f"/apis/batch/v1/namespaces/{self.namespace}/{resource}/{name}/status"
        authorization = f"Bearer {self.cluster.token}"
        body = {**self.get(f"{resource}/{name}"), "status": status}
        code, answer = self.cluster.request("PUT", path, body, Authorization=authorization,
                                            **{"Content-Type": "application/json"})
        if code != 200:
            raise AssertionError(f"PUT {path} answered {code}: {answer}")

    def needs_kubectl(self, major: int, minor: int, why: str) -> None:
        """Skips the case with an older kubectl."""
        if self.cluster.kubectl_version < (major, minor):
            raise Skip(f"needs kubectl {major}.{minor}: {why}")


class Watch:
    """A running program, mostly kubectl, whose lines arrive one by one."""

    def __init__(self, cluster: Cluster, command: list[str]):
        self._process = subprocess.Popen(command, env=cluster.environment, cwd=cluster.scratch, text=True,
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._lines: queue.Queue = queue.Queue()
        self.seen: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def wait_for(self, pattern: str, patience: float = PATIENCE_SECS) -> str:
        """The next line that matches; a failure if the process ends or is silent."""
        deadline = time.monotonic() + patience
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line matches {pattern!r}; seen:\n" + "\n".join(self.seen)) from None
            if line is None:
                raise AssertionError(f"ended before {pattern!r}; seen:\n" + "\n".join(self.seen))
            self.seen.append(line)
            if re.search(pattern, line):
                return line

    def wait_for_exit(self) -> int:
        """The exit status, once the process has ended by itself."""
        return self._process.wait(PATIENCE_SECS)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def manifest(objects) -> str:
    """Objects as one document that kubectl reads; JSON is YAML."""
    if isinstance(objects, dict):
        return json.dumps(objects)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def filtered(text: str, *more: tuple[str, str]) -> str:
    """`text` without what differs from run to run: times, ages, uids, versions, trailing blanks."""
    rules = (
        (r"\be2e-[a-z]{8}\b", "<ns>"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uid>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
        (r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<time>"),
        (r'(resourceVersion: )"\d+"', r'\1"<rv>"'),
        (r"(?<![\w.])\d+(ms|s)\b", "<age>"),
        (r"[ \t]+$", ""),
    )
    for pattern, instead in (*rules, *more):
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    # Filters change widths, so columns are compared by their words.
    return "\n".join(re.sub(r"(?<=\S) {2,}", "  ", line) for line in text.strip("\n").splitlines())


def same(answered, expected) -> None:
    """Fails with a difference that people can read. Expected text may be indented as the code around it; line ends at
    either end of a text do not count."""
    if isinstance(expected, str) and isinstance(answered, str):
        answered, expected = answered.strip("\n"), textwrap.dedent(expected).strip("\n")
    if answered == expected:
        return
    if not isinstance(answered, str) or not isinstance(expected, str):
        answered, expected = (json.dumps(value, indent=2, sort_keys=True) for value in (answered, expected))
    lines = difflib.unified_diff(expected.splitlines(), answered.splitlines(), "expected", "answered", lineterm="")
    raise AssertionError("\n" + "\n".join(lines))


def snapshot(name: str, answered: str) -> None:
    """Compares with `snapshots/NAME.txt`. With UPDATE_SNAPSHOTS in the environment, writes it instead."""
    path = Path(__file__).parent / "snapshots" / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(answered.strip("\n") + "\n")
    same(answered, path.read_text() if path.exists() else "")


def contains(text: str, *parts: str) -> None:
    """Fails unless `text` has every part."""
    for part in parts:
        if part not in text:
            raise AssertionError(f"{part!r} is not in:\n{text}")


def job(name: str, **spec) -> dict:
    """A Job that would run `true` once."""
    template = {"spec": {"restartPolicy": "Never",
                         "containers": [{"name": "main", "image": "busybox", "command": ["true"]}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"template": template, **spec}}


def pod(name: str, **spec) -> dict:
    """A pod that would run `true` once."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"restartPolicy": "Never",
                     "containers": [{"name": "main", "image": "busybox", "command": ["true"]}], **spec}}


def config_map(name: str, **data: str) -> dict:
    """A ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def completed_job_status() -> dict:
    """The status of a Job that has succeeded, as the Job controller leaves it."""
    begin, end = "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"
    condition = {"status": "True", "lastProbeTime": end, "lastTransitionTime": end, "reason": "CompletionsReached",
                 "message": "Reached expected number of succeeded pods"}
    return {"startTime": begin, "completionTime": end, "succeeded": 1, "ready": 0, "terminating": 0,
            "uncountedTerminatedPods": {},
            "conditions": [{"type": "SuccessCriteriaMet", **condition}, {"type": "Complete", **condition}]}
