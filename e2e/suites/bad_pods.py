"""Pods that misbehave (BI-106, BI-107): they fail with a reason, are counted, and take no more than they may.

What needs other limits than those of the product is in the tests of the `node` crate: containers that fork without end, leave
daemons behind, ignore SIGTERM or close their outputs. Needs a server with controllers and a node that runs processes.
"""

from harness import Kit, contains, job, pod, same
from machine import Traces, data_directory
from suites.pods import ended, in_phase, leaves_nothing, pods_of, script, state, template, wait

# What a kubelet keeps of a container's log: five files of 10 MiB.
LOG_FILES, LOG_FILE_BYTES = 5, 10 << 20


@leaves_nothing
def jobs_count_pods_that_cannot_start(kit: Kit, traces: Traces):
    rows = (("missing", {"command": ["no-such-command"]}, "executable file not found"),
            ("folder", {"command": ["/tmp"]}, "is a directory"),
            ("plain", {"command": ["/etc/passwd"]}, "permission denied"),
            ("nowhere", {"command": ["true"], "workingDir": "/no/such/folder"}, "chdir to cwd"))
    for name, container, _ in rows:
        kit.create(job(name, backoffLimit=1, template=template({"name": "main", "image": "unused", **container})))
    for name, _, reason in rows:
        wait(kit, f"job/{name}", "failed")
        status = kit.get(f"job/{name}")["status"]
        same((name, status["failed"], status["conditions"][-1]["reason"]), (name, 2, "BackoffLimitExceeded"))
        ran = pods_of(kit, name)
        same((name, [ended(one) for one in ran]), (name, [(128, "StartError")] * 2))
        for one in ran:
            contains(state(one)["state"]["terminated"]["message"], reason)
            same(state(one)["restartCount"], 0)
            # It was tried once; a loop would be told of again and again.
            events = kit.get("events", f"--field-selector=involvedObject.name={one['metadata']['name']},reason=Failed")
            same([event.get("count") for event in events["items"]], [1])


@leaves_nothing
def a_log_is_rotated_and_capped(kit: Kit, traces: Traces):
    """More than twice what is kept. It could be any amount: a file that is full becomes the last but one, and the oldest of
    five goes, so that what is kept depends on nothing but the size and the number of files."""
    text = "yes $(head -c 999 /dev/zero | tr '\\0' x) | head -c 120000000; echo the end"
    kit.create(pod("loud", containers=[script(text)]))
    ran = in_phase(kit, "loud", "Succeeded")
    files = list((data_directory() / "node/logs" / ran["metadata"]["uid"] / "main").glob("0.log*"))
    sizes = sorted(file.stat().st_size for file in files)
    same((len(sizes), sizes[-1] <= LOG_FILE_BYTES), (LOG_FILES, True))
    same(sum(sizes) > (LOG_FILES - 1) * LOG_FILE_BYTES - (64 << 10), True)
    same(kit.kubectl("logs", "loud", "--tail=1"), "the end\n")
