"""Jobs in namespaces that are full: the controller tells, waits and goes on. Needs a server that runs Jobs."""

from harness import Kit, case, contains, job, same
from machine import until


def refusals(kit: Kit, name: str) -> list[dict]:
    """The events about pods that could not be created."""
    selector = f"involvedObject.name={name},reason=FailedCreate"
    return kit.get("events", f"--field-selector={selector}")["items"]


def tries(kit: Kit, name: str) -> int:
    return sum(event.get("count") or 1 for event in refusals(kit, name))


@case
def a_job_waits_for_its_quota_without_hurry(kit: Kit):
    kit.kubectl("create", "quota", "none", "--hard=pods=0")
    kit.create(job("pi", completions=3, parallelism=3))
    until("an event FailedCreate", lambda: refusals(kit, "pi"))
    message = refusals(kit, "pi")[0]["message"]
    contains(message, 'Error creating: pods "pi-',
             "is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0")
    until("a third try", lambda: tries(kit, "pi") >= 3)
    status = kit.get("job/pi")["status"]
    same((status.get("active", 0), status.get("failed", 0)), (0, 0))
    # Each try comes later than the one before; a loop without pause would make hundreds.
    same(tries(kit, "pi") < 30, True)
    kit.kubectl("patch", "quota", "none", "--patch", '{"spec":{"hard":{"pods":"5"}}}')
    kit.kubectl("wait", "--for=condition=complete", "job/pi", "--timeout=120s")


@case
def a_job_runs_as_many_pods_as_fit(kit: Kit):
    kit.kubectl("create", "quota", "one", "--hard=pods=1,count/jobs.batch=1")
    kit.create(job("pi", completions=3, parallelism=3))
    refused = kit.refused("create", "--filename=-", stdin=job("second"))
    contains(refused, "exceeded quota: one, requested: count/jobs.batch=1, used: count/jobs.batch=1, ",
             "limited: count/jobs.batch=1")
    kit.kubectl("wait", "--for=condition=complete", "job/pi", "--timeout=120s")
    # Pods that have ended use nothing.
    same(kit.get("quota/one")["status"]["used"], {"count/jobs.batch": "1", "pods": "0"})
    same(kit.get("job/pi")["status"]["succeeded"], 3)
    kit.kubectl("delete", "job", "pi")
    until("room for another Job", lambda: kit.get("quota/one")["status"]["used"]["count/jobs.batch"] == "0")


@case
def an_unknown_priority_class_is_told_and_awaited(kit: Kit):
    name = kit.namespace
    thing = job("pi")
    thing["spec"]["template"]["spec"]["priorityClassName"] = name
    kit.create(thing)
    until("an event FailedCreate", lambda: refusals(kit, "pi"))
    contains(refusals(kit, "pi")[0]["message"], f"no PriorityClass with name {name} was found")
    kit.kubectl("create", "priorityclass", name, "--value=7")
    kit.kubectl("wait", "--for=condition=complete", "job/pi", "--timeout=120s")
    kit.kubectl("delete", "priorityclass", name)


@case
def what_is_deleted_with_its_namespace_includes_quotas(kit: Kit):
    kit.kubectl("create", "quota", "small", "--hard=pods=5")
    limits = [{"type": "Container", "default": {"cpu": "100m"}}]
    kit.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "modest"}, "spec": {"limits": limits}})
    kit.create(job("pi"))
    kit.kubectl("wait", "--for=condition=complete", "job/pi", "--timeout=120s")
    kit.kubectl("delete", "namespace", kit.namespace, "--timeout=60s")
    contains(kit.refused("get", "namespace", kit.namespace), "not found")
