"""What people read most, as on a cluster: wide tables and descriptions, kept in `snapshots/` (JA-T1…JA-T7, AS-162).

`UPDATE_SNAPSHOTS=1 cargo xtask e2e --only snapshots/` writes them anew; read the difference before keeping it.
"""

import json

from harness import Kit, case, filtered, job, pod, snapshot

BEGIN, END = "2026-01-01T00:00:00Z", "2026-01-01T00:02:05Z"
# Beyond seconds, which every case filters: how long ago the times above are.
LONG_AGO = (r"(?<![\w.])(\d+y)?\d+[dy](\d+h)?\b", "<long ago>")


def shown(kit: Kit, *args: str) -> str:
    return filtered(kit.kubectl(*args), LONG_AGO)


def labelled(kit: Kit, thing: dict) -> dict:
    """With a label that only this case uses, since nodes and events are everybody's."""
    thing["metadata"].setdefault("labels", {})["case"] = kit.namespace
    return thing


def condition(kind: str, **more) -> dict:
    return {"type": kind, "status": "True", "lastProbeTime": END, "lastTransitionTime": END, **more}


def event(kit: Kit, name: str, kind: str, thing: str, reason: str, message: str, **more) -> dict:
    api_version = "batch/v1" if kind in ("Job", "CronJob") else "v1"
    uid = kit.get(f"{kind.lower()}/{thing}")["metadata"]["uid"]
    return labelled(kit, {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": kit.namespace},
        "involvedObject": {"apiVersion": api_version, "kind": kind, "namespace": kit.namespace, "name": thing,
                           "uid": uid},
        "reason": reason, "message": message, "type": "Normal", "count": 1, "firstTimestamp": BEGIN,
        "lastTimestamp": BEGIN, "source": {"component": "job-controller"}, **more})


def jobs_in_every_state(kit: Kit) -> None:
    kit.create(job("running", completions=5, parallelism=2), job("complete"), job("failed", backoffLimit=0),
               job("suspended", suspend=True), job("waiting"), job("queue", parallelism=3),
               job("indexed", completions=4, completionMode="Indexed", backoffLimitPerIndex=1, maxFailedIndexes=2,
                   activeDeadlineSeconds=3600))
    counters = {"ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}
    met, complete = (condition(kind, reason="CompletionsReached", message="Reached expected number of succeeded pods")
                     for kind in ("SuccessCriteriaMet", "Complete"))
    target, failed = (condition(kind, reason="BackoffLimitExceeded",
                                message="Job has reached the specified backoff limit")
                      for kind in ("FailureTarget", "Failed"))
    statuses = {
        "running": {"startTime": BEGIN, "active": 2, "succeeded": 2, "failed": 1, **counters, "ready": 1},
        "complete": {"startTime": BEGIN, "completionTime": END, "succeeded": 1, **counters,
                     "conditions": [met, complete]},
        "failed": {"startTime": BEGIN, "failed": 1, **counters, "conditions": [target, failed]},
        "suspended": {"conditions": [condition("Suspended", reason="JobSuspended", message="Job suspended")]},
        "indexed": {"startTime": BEGIN, "active": 1, "succeeded": 2, "failed": 1, "completedIndexes": "0,2",
                    "failedIndexes": "1", **counters},
    }
    for name, status in statuses.items():
        kit.write_status("jobs", name, status)


def cron_job(name: str, **spec) -> dict:
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
            "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job("x")["spec"]}, **spec}}


def cron_jobs(kit: Kit) -> None:
    kit.create(cron_job("often"), cron_job("zoned", timeZone="Europe/London", suspend=True),
               cron_job("kept", schedule="@daily", successfulJobsHistoryLimit=5, failedJobsHistoryLimit=0,
                        startingDeadlineSeconds=30, concurrencyPolicy="Replace"))
    active = {"apiVersion": "batch/v1", "kind": "Job", "namespace": kit.namespace, "name": "often-29454120",
              "uid": "11111111-2222-3333-4444-555555555555"}
    kit.write_status("cronjobs", "often", {"active": [active], "lastScheduleTime": BEGIN, "lastSuccessfulTime": END})


@case
def wide_tables_of_jobs_and_cronjobs(kit: Kit):
    jobs_in_every_state(kit)
    cron_jobs(kit)
    snapshot("get-jobs-cronjobs-wide", shown(kit, "get", "jobs,cronjobs", "--output=wide"))


def node(kit: Kit) -> dict:
    info = {"kubeletVersion": "v1.36.4", "osImage": "Debian GNU/Linux 12", "kernelVersion": "6.1.0-18-amd64",
            "containerRuntimeVersion": "tally://0.1.0", "architecture": "amd64", "bootID": "", "kubeProxyVersion": "",
            "machineID": "", "operatingSystem": "linux", "systemUUID": ""}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
             "lastHeartbeatTime": BEGIN, "lastTransitionTime": BEGIN}
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": "here"}]
    thing = labelled(kit, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": kit.namespace}})
    thing["metadata"]["labels"]["node-role.kubernetes.io/worker"] = ""
    thing["status"] = {"nodeInfo": info, "conditions": [ready], "addresses": addresses,
                       "capacity": {"cpu": "2", "memory": "4Gi", "pods": "110"}}
    return thing


def pods_in_every_state(kit: Kit) -> None:
    def container(state: dict, ready: bool = False, restarts: int = 0, **more) -> dict:
        return {"name": "main", "image": "busybox", "imageID": "", "ready": ready, "restartCount": restarts,
                "state": state, **more}

    ended = {"startedAt": BEGIN, "finishedAt": BEGIN}
    statuses = {
        "pending": {},
        "running": {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}],
                    "containerStatuses": [container({"running": {"startedAt": BEGIN}}, ready=True)]},
        "completed": {"phase": "Succeeded", "containerStatuses": [container(
            {"terminated": {"exitCode": 0, "reason": "Completed", **ended}})]},
        "failed": {"phase": "Failed",
                   "containerStatuses": [container({"terminated": {"exitCode": 3, "reason": "Error", **ended}})]},
        "looping": {"phase": "Running", "containerStatuses": [container(
            {"waiting": {"reason": "CrashLoopBackOff"}}, restarts=3,
            lastState={"terminated": {"exitCode": 1, "reason": "Error", **ended}})]},
        "evicted": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
    }
    for name, status in statuses.items():
        kit.create(labelled(kit, pod(name, nodeName=kit.namespace)))
        if status:
            kit.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "--patch",
                        json.dumps({"status": status}))


@case
def wide_tables_of_pods_events_and_nodes(kit: Kit):
    kit.needs_kubectl(1, 24, "older ones cannot patch a status")
    kit.create(node(kit))
    kit.kubectl("patch", "node", kit.namespace, "--subresource=status", "--type=merge", "--patch",
                json.dumps({"status": node(kit)["status"]}))
    kit.kubectl("taint", "node", kit.namespace, "node.kubernetes.io/not-ready-")
    pods_in_every_state(kit)
    kit.create(
        event(kit, "running.1", "Pod", "running", "Started", "Container started",
              source={"component": "kubelet", "host": "here"}, count=3, lastTimestamp=END),
        event(kit, "failed.1", "Pod", "failed", "BackOff", "Back-off restarting failed container", type="Warning"))
    selector = f"--selector=case={kit.namespace}"
    text = shown(kit, "get", "pods,events,nodes", selector, "--output=wide")
    kit.kubectl("delete", "node", kit.namespace)
    snapshot("get-pods-events-nodes-wide", text)


@case
def descriptions_of_jobs(kit: Kit):
    kit.needs_kubectl(1, 32, "older ones print other lines")
    jobs_in_every_state(kit)
    kit.create(
        event(kit, "complete.1", "Job", "complete", "SuccessfulCreate", "Created pod: complete-4f2xk"),
        event(kit, "complete.2", "Job", "complete", "Completed", "Job completed", lastTimestamp=END),
        event(kit, "failed.2", "Job", "failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit",
              type="Warning"))
    for name in ("running", "complete", "failed", "indexed", "suspended"):
        snapshot(f"describe-job-{name}", shown(kit, "describe", "job", name))


@case
def descriptions_of_cronjobs(kit: Kit):
    kit.needs_kubectl(1, 32, "older ones print other lines")
    cron_jobs(kit)
    kit.create(event(kit, "often.1", "CronJob", "often", "SuccessfulCreate", "Created job often-29454120",
                     source={"component": "cronjob-controller"}))
    for name in ("often", "zoned", "kept"):
        snapshot(f"describe-cronjob-{name}", shown(kit, "describe", "cronjob", name))
