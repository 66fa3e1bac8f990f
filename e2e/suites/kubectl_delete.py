"""kubectl delete: cascades, finalizers, grace. No controller runs, so what deletion leaves behind stays visible."""

import json

from harness import Kit, case, config_map, contains, job, pod, same


def owned_pod(kit: Kit, name: str, owner: str) -> dict:
    """A pod whose controller is the Job `owner`."""
    uid = kit.get(f"job/{owner}")["metadata"]["uid"]
    thing = pod(name)
    thing["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": uid,
                                             "controller": True, "blockOwnerDeletion": True}]
    return thing


@case
def background_removes_the_job_at_once(kit: Kit):
    kit.create(job("pi"))
    kit.create(owned_pod(kit, "pi-1", "pi"))
    contains(kit.kubectl("delete", "job", "pi", "--cascade=background"), 'job.batch "pi" deleted')
    contains(kit.refused("get", "job", "pi"), 'jobs.batch "pi" not found')
    # The garbage collector's part is done by a controller.
    same(kit.get("pod/pi-1")["metadata"].get("deletionTimestamp"), None)


@case
def foreground_waits_for_dependents(kit: Kit):
    kit.create(job("pi"))
    kit.kubectl("delete", "job", "pi", "--cascade=foreground", "--wait=false")
    metadata = kit.get("job/pi")["metadata"]
    same(metadata["finalizers"], ["foregroundDeletion"])
    same("deletionTimestamp" in metadata, True)
    # A second deletion changes nothing; taking the finalizer off ends it.
    kit.kubectl("delete", "job", "pi", "--cascade=foreground", "--wait=false")
    kit.kubectl("patch", "job", "pi", "--type=merge", "--patch", json.dumps({"metadata": {"finalizers": None}}))
    contains(kit.refused("get", "job", "pi"), "not found")


@case
def orphan_leaves_dependents_alone(kit: Kit):
    kit.create(job("pi"))
    kit.create(owned_pod(kit, "pi-1", "pi"))
    kit.kubectl("delete", "job", "pi", "--cascade=orphan", "--wait=false")
    same(kit.get("job/pi")["metadata"]["finalizers"], ["orphan"])
    same(kit.get("pod/pi-1")["metadata"]["ownerReferences"][0]["name"], "pi")


@case
def finalizers_hold_an_object_until_they_are_gone(kit: Kit):
    held = config_map("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    kit.create(held)
    waiting = kit.watch("delete", "configmap", "held")
    waiting.wait_for('configmap "held" deleted')
    same("deletionTimestamp" in kit.get("cm/held")["metadata"], True)
    kit.kubectl("patch", "cm", "held", "--type=json", "--patch",
                json.dumps([{"op": "remove", "path": "/metadata/finalizers"}]))
    same(waiting.wait_for_exit(), 0)


@case
def pods_on_a_node_get_their_grace(kit: Kit):
    node = kit.namespace
    kit.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    kit.create(pod("web", nodeName=node))
    kit.kubectl("delete", "pod", "web", "--wait=false")
    metadata = kit.get("pod/web")["metadata"]
    same(metadata["deletionGracePeriodSeconds"], 30)
    contains(kit.kubectl("get", "pod", "web"), "Terminating")
    kit.kubectl("delete", "pod", "web", "--grace-period=0", "--force")
    contains(kit.refused("get", "pod", "web"), 'pods "web" not found')
    kit.kubectl("delete", "node", node)


@case
def pods_without_a_node_go_at_once(kit: Kit):
    kit.create(pod("web"))
    contains(kit.kubectl("delete", "pod", "web"), 'pod "web" deleted')
    contains(kit.refused("get", "pod", "web"), "not found")


@case
def delete_by_selector_and_all(kit: Kit):
    for name, tier in (("a", "front"), ("b", "back"), ("c", "back")):
        kit.create({**config_map(name), "metadata": {"name": name, "labels": {"tier": tier}}})
    kit.kubectl("delete", "configmaps", "--selector=tier=back")
    left = [name for name in kit.kubectl("get", "cm", "--output=name").split() if not name.endswith("kube-root-ca.crt")]
    same(left, ["configmap/a"])
    kit.create(job("one"), job("two"))
    kit.kubectl("delete", "jobs", "--all")
    same(kit.kubectl("get", "jobs", "--output=name"), "")


@case
def delete_by_manifest_and_ignore_what_is_missing(kit: Kit):
    kit.create(job("pi"))
    contains(kit.kubectl("delete", "--filename=-", stdin=job("pi")), 'job.batch "pi" deleted')
    contains(kit.refused("delete", "--filename=-", stdin=job("pi")), 'jobs.batch "pi" not found')
    same(kit.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=job("pi")), "")


@case
def dry_run_deletes_nothing(kit: Kit):
    kit.create(job("pi"))
    contains(kit.kubectl("delete", "job", "pi", "--dry-run=server"), "(server dry run)")
    same("deletionTimestamp" in kit.get("job/pi")["metadata"], False)


@case
def a_deleted_namespace_takes_nothing_new(kit: Kit):
    kit.kubectl("delete", "namespace", kit.namespace, "--wait=false")
    same(kit.get(f"namespace/{kit.namespace}")["status"]["phase"], "Terminating")
    refusal = kit.refused("create", "configmap", "late")
    contains(refusal, f"unable to create new content in namespace {kit.namespace} because it is being terminated")
