"""Pods that really run: what becomes of their processes, what kubectl shows of it, and that nothing stays behind.

Needs a server with controllers and a node that runs processes.
"""

import functools
import json
import os
import shlex

from harness import Kit, Skip, case, config_map, contains, job, pod, same
from machine import Traces, data_directory, until

# Takes twice the limit of 32 MiB and keeps it, so that the machine has enough left however late it is looked at.
GREEDY = "x=$(head -c 67108864 /dev/zero | tr '\\0' x); sleep 60; : $x"


def leaves_nothing(function):
    """A case that gets `Traces` too, and after which nothing of its pods may be left."""

    @functools.wraps(function)
    def checked(kit: Kit):
        traces = Traces(kit)
        function(kit, traces)
        traces.expect_none()

    return case(checked)


def script(text: str, **more) -> dict:
    """A container that runs a shell script."""
    return {"name": "main", "image": "unused", "command": ["sh", "-c", text], **more}


def template(*containers: dict, **spec) -> dict:
    """A pod template for a Job."""
    return {"spec": {"restartPolicy": "Never", "containers": list(containers), **spec}}


def wait(kit: Kit, what: str, condition: str) -> None:
    """Waits as people do."""
    kit.kubectl("wait", f"--for=condition={condition}", what, "--timeout=60s")


def pods_of(kit: Kit, name: str) -> list[dict]:
    """The pods of a Job, oldest first."""
    items = kit.get("pods", f"--selector=batch.kubernetes.io/job-name={name}")["items"]
    return sorted(items, key=lambda item: (item["metadata"]["creationTimestamp"], item["metadata"]["name"]))


def state(thing: dict, container: str = "main") -> dict:
    """The state of a container, by its name."""
    status = thing["status"]
    for entry in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
        if entry["name"] == container:
            return entry
    raise AssertionError(f"no container {container} in {json.dumps(status)}")


def ended(thing: dict, container: str = "main") -> tuple:
    """How a container ended: exit code and reason."""
    terminated = state(thing, container)["state"].get("terminated", {})
    return terminated.get("exitCode"), terminated.get("reason")


def condition(thing: dict, kind: str) -> dict:
    """A condition of an object that is True."""
    for entry in thing["status"].get("conditions", []):
        if entry["type"] == kind and entry["status"] == "True":
            return entry
    raise AssertionError(f"no condition {kind} in {json.dumps(thing['status'])}")


def in_phase(kit: Kit, name: str, phase: str) -> dict:
    """The pod, once it is in that phase."""
    def look():
        found = kit.get(f"pod/{name}")
        return found if found["status"].get("phase") == phase else None
    return until(f"pod {name} is {phase}", look)


def needs(kit: Kit, ability: str) -> None:
    """Skips the case on a machine whose node cannot do this, with the reason that the Node gives."""
    for node in kit.get("nodes")["items"]:
        for entry in node["status"]["conditions"]:
            if entry["type"] == f"tally.dev/{ability}" and entry["status"] != "True":
                raise Skip(f"{entry['reason']}: {entry['message']}")


@leaves_nothing
def hello(kit: Kit, traces: Traces):
    kit.create(job("hello", template=template(script("echo hello"))))
    wait(kit, "job/hello", "complete")
    traces.note()
    same(kit.kubectl("logs", "job/hello"), "hello\n")
    status = kit.get("job/hello")["status"]
    same((status["succeeded"], status.get("failed")), (1, None))
    [ran] = pods_of(kit, "hello")
    same((ran["status"]["phase"], ended(ran)), ("Succeeded", (0, "Completed")))
    same(traces.processes(), [])


@leaves_nothing
def failures_are_retried_and_counted(kit: Kit, traces: Traces):
    kit.create(job("fails", backoffLimit=1, template=template(script("echo trying >&2; exit 3"))))
    wait(kit, "job/fails", "failed")
    status = kit.get("job/fails")["status"]
    same((status["failed"], status.get("succeeded")), (2, None))
    same(condition(kit.get("job/fails"), "Failed")["reason"], "BackoffLimitExceeded")
    same([(item["status"]["phase"], ended(item)) for item in pods_of(kit, "fails")], [("Failed", (3, "Error"))] * 2)


@leaves_nothing
def every_index_knows_its_number_and_host_name(kit: Kit, traces: Traces):
    text = "echo $JOB_COMPLETION_INDEX $HOSTNAME"
    kit.create(job("pieces", completionMode="Indexed", completions=3, parallelism=3, template=template(script(text))))
    wait(kit, "job/pieces", "complete")
    status = kit.get("job/pieces")["status"]
    same((status["succeeded"], status["completedIndexes"]), (3, "0-2"))
    said = sorted(kit.kubectl("logs", item["metadata"]["name"]) for item in pods_of(kit, "pieces"))
    same(said, [f"{index} pieces-{index}\n" for index in range(3)])


@leaves_nothing
def on_failure_restarts_in_the_same_pod(kit: Kit, traces: Traces):
    # The volume outlives a container's restart, so the second attempt finds the mark of the first.
    text = "echo attempt; test -e /state/mark && exit 0; touch /state/mark; exit 7"
    needs(kit, "VolumeMounts")
    kit.create(job("again", template=template(
        script(text, volumeMounts=[{"name": "state", "mountPath": "/state"}]),
        restartPolicy="OnFailure", volumes=[{"name": "state", "emptyDir": {}}])))
    wait(kit, "job/again", "complete")
    [ran] = pods_of(kit, "again")
    own = state(ran)
    same((own["restartCount"], ended(ran)), (1, (0, "Completed")))
    same(own["lastState"]["terminated"]["exitCode"], 7)
    name = ran["metadata"]["name"]
    same(kit.kubectl("logs", name, "--previous"), "attempt\n")
    same(kit.kubectl("logs", name), "attempt\n")
    same(kit.get("job/again")["status"].get("failed"), None)


@leaves_nothing
def a_jobs_deadline_ends_its_processes(kit: Kit, traces: Traces):
    kit.create(job("late", activeDeadlineSeconds=2, template=template(script("sleep 1000"))))
    until("it runs", lambda: kit.get("job/late")["status"].get("ready"))
    traces.note()
    same(len(traces.processes()) > 0, True)
    wait(kit, "job/late", "failed")
    same(condition(kit.get("job/late"), "Failed")["reason"], "DeadlineExceeded")
    until("its processes are gone", lambda: not traces.processes())
    same(kit.get("job/late")["status"]["failed"], 1)


@leaves_nothing
def a_pods_own_deadline_fails_it_in_place(kit: Kit, traces: Traces):
    kit.create(pod("late", activeDeadlineSeconds=1, containers=[script("exec sleep 1000")]))
    ran = in_phase(kit, "late", "Failed")
    same((ran["status"]["reason"], ended(ran)), ("DeadlineExceeded", (143, "Error")))
    same("deletionTimestamp" in ran["metadata"], False)


@leaves_nothing
def a_process_that_ignores_sigterm_is_killed_after_the_grace(kit: Kit, traces: Traces):
    # With a daemon in a session of its own, which no signal to the process group reaches.
    text = "trap '' TERM; setsid sh -c \"trap '' TERM; while :; do sleep 0.1; done\" & while :; do sleep 0.1; done"
    kit.create(pod("stubborn", terminationGracePeriodSeconds=1, containers=[script(text)]))
    in_phase(kit, "stubborn", "Running")
    traces.note()
    watch = kit.watch("get", "pod", "stubborn", "--watch", "--output=jsonpath={.status.phase} "
                      "{.status.containerStatuses[0].state.terminated.exitCode}{'\\n'}")
    watch.wait_for("^Running $")
    kit.kubectl("delete", "pod", "stubborn", "--timeout=60s")
    watch.wait_for("^Failed 137$")
    until("its processes are gone", lambda: not traces.processes())


@leaves_nothing
def a_process_that_heeds_sigterm_may_succeed(kit: Kit, traces: Traces):
    kit.create(pod("polite", containers=[script("trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")]))
    in_phase(kit, "polite", "Running")
    traces.note()
    until("it is ready", lambda: kit.kubectl("logs", "polite") == "ready\n")
    watch = kit.watch("get", "pod", "polite", "--watch", "--output=jsonpath={.status.phase}{'\\n'}")
    watch.wait_for("^Running$")
    kit.kubectl("delete", "pod", "polite", "--timeout=60s")
    watch.wait_for("^Succeeded$")


@leaves_nothing
def a_container_over_its_memory_limit_is_oom_killed(kit: Kit, traces: Traces):
    limits = {"limits": {"memory": "32Mi"}}
    kit.create(job("greedy", backoffLimit=0, template=template(script(GREEDY, resources=limits))))
    wait(kit, "job/greedy", "failed")
    [ran] = pods_of(kit, "greedy")
    same((ran["status"]["phase"], ended(ran)), ("Failed", (137, "OOMKilled")))


@leaves_nothing
def what_a_container_has_started_counts_for_its_memory_limit(kit: Kit, traces: Traces):
    # In a session of its own, with nobody left between it and the container.
    text = f"greedy={shlex.quote(GREEDY)}; (setsid sh -c \"$greedy\" &) ; while :; do sleep 0.05; done"
    limits = {"limits": {"memory": "32Mi"}}
    kit.create(pod("parent", containers=[script(text, resources=limits)]))
    ran = in_phase(kit, "parent", "Failed")
    same(ended(ran), (137, "OOMKilled"))
    until("its processes are gone", lambda: not traces.processes())


@leaves_nothing
def init_containers_come_first_and_sidecars_end_last(kit: Kit, traces: Traces):
    needs(kit, "VolumeMounts")
    mount = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    side = script("trap 'echo side ends >> /shared/story; cat /shared/story; exit 0' TERM; "
                  "echo side >> /shared/story; while :; do sleep 0.05; done 2> /dev/null", **mount)
    kit.create(job("story", template=template(
        script("until grep -q side /shared/story; do sleep 0.05; done; echo main >> /shared/story", **mount),
        initContainers=[{**script("echo first >> /shared/story", **mount), "name": "first"},
                        {**side, "name": "side", "restartPolicy": "Always"}],
        volumes=[{"name": "shared", "emptyDir": {}}])))
    wait(kit, "job/story", "complete")
    [ran] = pods_of(kit, "story")
    same([ended(ran, name) for name in ("first", "side", "main")], [(0, "Completed")] * 3)
    same(kit.kubectl("logs", "job/story", "--container=side"), "first\nside\nmain\nside ends\n")


@leaves_nothing
def an_init_container_that_fails_fails_the_pod(kit: Kit, traces: Traces):
    kit.create(pod("p", initContainers=[{**script("exit 4"), "name": "first"}], containers=[script("true")]))
    ran = in_phase(kit, "p", "Failed")
    same(ended(ran, "first"), (4, "Error"))
    same(state(ran)["state"], {"waiting": {"reason": "PodInitializing"}})


@leaves_nothing
def config_maps_and_secrets_arrive_as_files_and_variables(kit: Kit, traces: Traces):
    needs(kit, "VolumeMounts")
    kit.create(config_map("settings", colour="blue"),
               {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"token": "s3cret"}})
    kit.create(job("reads", template=template(
        script("echo $COLOUR $TOKEN $ALL_colour; cat /settings/colour /keys/token; echo; stat -Lc %a /keys/token",
               env=[{"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "key", "key": "token"}}}],
               envFrom=[{"prefix": "ALL_", "configMapRef": {"name": "settings"}}],
               volumeMounts=[{"name": "settings", "mountPath": "/settings"}, {"name": "keys", "mountPath": "/keys"}]),
        volumes=[{"name": "settings", "configMap": {"name": "settings"}},
                 {"name": "keys", "secret": {"secretName": "key", "defaultMode": 0o400}}])))
    wait(kit, "job/reads", "complete")
    same(kit.kubectl("logs", "job/reads"), "blue s3cret blue\nblues3cret\n400\n")


@leaves_nothing
def a_pod_waits_for_its_config_map(kit: Kit, traces: Traces):
    reference = {"configMapKeyRef": {"name": "late", "key": "k"}}
    kit.create(job("waits", template=template(script("echo $V", env=[{"name": "V", "valueFrom": reference}]))))
    until("it says what is missing", lambda: [
        item for item in pods_of(kit, "waits")
        if "CreateContainerConfigError" in json.dumps(item["status"].get("containerStatuses", []))])
    kit.create(config_map("late", k="here"))
    wait(kit, "job/waits", "complete")
    same(kit.kubectl("logs", "job/waits"), "here\n")


@leaves_nothing
def logs_are_followed_until_the_container_ends(kit: Kit, traces: Traces):
    kit.create(job("talks", template=template(script("echo one; trap 'echo two; exit 0' TERM; sleep 1000 & wait"))))
    until("it runs", lambda: kit.get("job/talks")["status"].get("ready"))
    traces.note()
    follow = kit.watch("logs", "--follow", "job/talks")
    follow.wait_for("^one$")
    kit.kubectl("delete", "pods", "--all", "--wait=false")
    follow.wait_for("^two$")
    same(follow.wait_for_exit(), 0)


@leaves_nothing
def log_options_choose_what_is_shown(kit: Kit, traces: Traces):
    kit.create(pod("counts", containers=[script("seq 1 100")]))
    in_phase(kit, "counts", "Succeeded")
    same(kit.kubectl("logs", "counts", "--tail=2"), "99\n100\n")
    same(kit.kubectl("logs", "counts", "--limit-bytes=5"), "1\n2\n3")
    same(kit.kubectl("logs", "counts", "--since=1h").count("\n"), 100)
    stamped = kit.kubectl("logs", "counts", "--timestamps", "--tail=1")
    contains(stamped, "Z 100\n")
    contains(kit.refused("logs", "counts", "--previous"),
             'previous terminated container "main" in pod "counts" not found')


@leaves_nothing
def a_log_that_was_replaced_is_not_read(kit: Kit, traces: Traces):
    kit.create(pod("sly", containers=[script("echo mine")]))
    ran = in_phase(kit, "sly", "Succeeded")
    same(kit.kubectl("logs", "sly"), "mine\n")
    log = data_directory() / "node/logs" / ran["metadata"]["uid"] / "main/0.log"
    log.unlink()
    log.symlink_to("/etc/passwd")
    contains(kit.refused("logs", "sly"), "InternalError", "read the log of container `main`")
    log.unlink()
    os.mkfifo(log)
    contains(kit.refused("logs", "sly", "--follow"), "the log is not a regular file")
    log.unlink()
    log.mkdir()
    contains(kit.refused("logs", "sly"), "InternalError", "the log is not a regular file")
    log.rmdir()


@leaves_nothing
def logs_of_all_pods_come_with_their_names(kit: Kit, traces: Traces):
    kit.needs_kubectl(1, 32, "logs --all-pods")
    kit.create(job("all", completionMode="Indexed", completions=3, parallelism=3,
                   template=template(script("echo piece $JOB_COMPLETION_INDEX"))))
    wait(kit, "job/all", "complete")
    printed = kit.kubectl("logs", "job/all", "--all-pods=true", "--prefix")
    expected = sorted(f"[pod/{item['metadata']['name']}/main] {kit.kubectl('logs', item['metadata']['name'])}".strip()
                      for item in pods_of(kit, "all"))
    same(sorted(printed.strip().splitlines()), expected)


@leaves_nothing
def an_evicted_pod_is_replaced_and_not_counted(kit: Kit, traces: Traces):
    ignore = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
    kit.create(job("moves", backoffLimit=0, podFailurePolicy=ignore, podReplacementPolicy="Failed",
                   template=template(script("exec sleep 1000"), terminationGracePeriodSeconds=1)))
    until("it runs", lambda: kit.get("job/moves")["status"].get("ready"))
    traces.note()
    [first] = pods_of(kit, "moves")
    name = first["metadata"]["name"]
    watch = kit.watch("get", "pod", name, "--watch", "--output=jsonpath={.status.phase} "
                      "{.status.conditions[?(@.type=='DisruptionTarget')].reason}{'\\n'}")
    watch.wait_for("^Running $")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": name, "namespace": kit.namespace}}
    kit.kubectl("create", "--raw", f"/api/v1/namespaces/{kit.namespace}/pods/{name}/eviction", "--filename=-",
                stdin=eviction)
    watch.wait_for("^Failed EvictionByEvictionAPI$")
    until("another one runs", lambda: [
        item for item in pods_of(kit, "moves")
        if item["metadata"]["uid"] != first["metadata"]["uid"] and item["status"]["phase"] == "Running"])
    same(kit.get("job/moves")["status"].get("failed"), None)


@leaves_nothing
def drain_moves_pods_away(kit: Kit, traces: Traces):
    [node] = [item["metadata"]["name"] for item in kit.get("nodes")["items"]]
    kit.create(job("drained", template=template(script("exec sleep 1000"), terminationGracePeriodSeconds=1)))
    until("it runs", lambda: kit.get("job/drained")["status"].get("ready"))
    traces.note()
    try:
        kit.kubectl("drain", node, "--pod-selector=batch.kubernetes.io/job-name=drained", "--timeout=60s")
        until("its processes are gone", lambda: not traces.processes())
        waiting = until("another one waits", lambda: [
            item for item in pods_of(kit, "drained") if item["status"]["phase"] == "Pending"])
        same("nodeName" in waiting[0]["spec"], False)
    finally:
        kit.kubectl("uncordon", node)
    until("it runs again", lambda: kit.get("job/drained")["status"].get("ready"))


@leaves_nothing
def suspended_jobs_have_no_processes_and_resume(kit: Kit, traces: Traces):
    kit.create(job("pauses", parallelism=2, completions=2, template=template(
        script("exec sleep 1000"), terminationGracePeriodSeconds=1)))
    until("both run", lambda: kit.get("job/pauses")["status"].get("ready") == 2)
    traces.note()
    same(len(traces.processes()), 2)
    kit.kubectl("patch", "job", "pauses", "--type=merge", "--patch", json.dumps({"spec": {"suspend": True}}))
    wait(kit, "job/pauses", "suspended")
    until("their processes are gone", lambda: not traces.processes())
    until("their pods are gone", lambda: not pods_of(kit, "pauses"))
    status = kit.get("job/pauses")["status"]
    same((status.get("active"), status.get("failed"), status.get("succeeded")), (None, None, None))
    kit.kubectl("patch", "job", "pauses", "--type=merge", "--patch", json.dumps({"spec": {"suspend": False}}))
    until("both run again", lambda: kit.get("job/pauses")["status"].get("ready") == 2)


def sleeper(kit: Kit, traces: Traces) -> str:
    """A Job whose one pod runs; the pod's name."""
    kit.create(job("sleeps", template=template(script("exec sleep 1000"), terminationGracePeriodSeconds=1)))
    until("it runs", lambda: kit.get("job/sleeps")["status"].get("ready"))
    traces.note()
    [ran] = pods_of(kit, "sleeps")
    return ran["metadata"]["name"]


@leaves_nothing
def a_background_cascade_ends_the_processes_after_the_job(kit: Kit, traces: Traces):
    sleeper(kit, traces)
    kit.kubectl("delete", "job", "sleeps", "--cascade=background", "--timeout=60s")
    contains(kit.refused("get", "job", "sleeps"), "not found")
    until("its pods are gone", lambda: not kit.get("pods")["items"])
    same(traces.processes(), [])


@leaves_nothing
def a_foreground_cascade_ends_the_processes_before_the_job(kit: Kit, traces: Traces):
    sleeper(kit, traces)
    kit.kubectl("delete", "job", "sleeps", "--cascade=foreground", "--timeout=60s")
    contains(kit.refused("get", "job", "sleeps"), "not found")
    same((kit.get("pods")["items"], traces.processes()), ([], []))


@leaves_nothing
def orphans_go_on_running(kit: Kit, traces: Traces):
    name = sleeper(kit, traces)
    kit.kubectl("delete", "job", "sleeps", "--cascade=orphan", "--timeout=60s")
    until("nobody owns the pod", lambda: not kit.get(f"pod/{name}")["metadata"].get("ownerReferences"))
    until("nobody holds it", lambda: not kit.get(f"pod/{name}")["metadata"].get("finalizers"))
    same((kit.get(f"pod/{name}")["status"]["phase"], len(traces.processes())), ("Running", 1))


@leaves_nothing
def a_deleted_namespace_takes_its_processes_along(kit: Kit, traces: Traces):
    sleeper(kit, traces)
    kit.kubectl("delete", "namespace", kit.namespace, "--timeout=90s")
    same(traces.processes(), [])


@leaves_nothing
def commands_that_cannot_start_say_why(kit: Kit, traces: Traces):
    for name, container, reason in (
            ("missing", {"command": ["no-such-command"]}, "executable file not found"),
            ("folder", {"command": ["/tmp"]}, "is a directory"),
            ("plain", {"command": ["/etc/passwd"]}, "permission denied"),
            ("nowhere", {"command": ["true"], "workingDir": "/no/such/folder"}, "chdir to cwd")):
        kit.create(pod(name, containers=[{"name": "main", "image": "unused", **container}]))
        ran = in_phase(kit, name, "Failed")
        same(ended(ran), (128, "StartError"))
        contains(state(ran)["state"]["terminated"]["message"], reason)


@leaves_nothing
def a_pod_that_needs_its_image_is_told_what_to_do(kit: Kit, traces: Traces):
    kit.create(job("image", backoffLimit=0, template=template({"name": "main", "image": "busybox"})))
    wait(kit, "job/image", "failed")
    [ran] = pods_of(kit, "image")
    same(ran["status"]["reason"], "CommandRequired")
    contains(ran["status"]["message"], "set `command`")
