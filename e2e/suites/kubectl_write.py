"""kubectl create, apply, patch, replace and the like."""

import json
from pathlib import Path

from harness import (Kit, case, completed_job_status, config_map, contains, filtered, job,
                     manifest, pod, same)


def apply(kit: Kit, thing: dict) -> str:
    return kit.kubectl("apply", "--filename=-", stdin=thing)


@case
def create_from_a_manifest(kit: Kit):
    created = kit.kubectl("create", "--filename=-", stdin=[job("pi"), config_map("settings")])
    same(created, "job.batch/pi created\nconfigmap/settings created\n")
    defaulted = kit.get("job/pi")["spec"]
    same({key: defaulted[key] for key in ("backoffLimit", "completions", "completionMode", "suspend")},
         {"backoffLimit": 6, "completions": 1, "completionMode": "NonIndexed", "suspend": False})


@case
def every_example_is_accepted(kit: Kit):
    for example in sorted((Path(__file__).parents[2] / "examples").glob("*.yaml")):
        # Some have a namespace of their own.
        has_namespace = "kind: Namespace" in example.read_text()
        where = [] if has_namespace else ["--namespace", kit.namespace]
        created = kit.cluster.call("create", "--filename", str(example), *where)
        same((example.name, created.err, created.code), (example.name, "", 0))
        kit.cluster.call("delete", "--wait=false", "--filename", str(example), *where)


@case
def create_job_by_flags(kit: Kit):
    # With kubectl 1.32 and later these bodies are protobuf.
    same(kit.kubectl("create", "job", "hello", "--image=busybox", "--", "echo", "hello"), "job.batch/hello created\n")
    container = kit.get("job/hello")["spec"]["template"]["spec"]["containers"][0]
    same((container["name"], container["image"], container["command"]), ("hello", "busybox", ["echo", "hello"]))


@case
def create_cronjob_and_a_job_from_it(kit: Kit):
    kit.needs_kubectl(1, 21, "older ones know CronJobs of batch/v1beta1 only")
    kit.kubectl("create", "cronjob", "nightly", "--image=busybox", "--schedule=0 3 * * *", "--", "date")
    same(kit.kubectl("create", "job", "tonight", "--from=cronjob/nightly"), "job.batch/tonight created\n")
    tonight = kit.get("job/tonight")
    same(tonight["metadata"]["annotations"], {"cronjob.kubernetes.io/instantiate": "manual"})
    same(tonight["metadata"]["ownerReferences"][0]["name"], "nightly")
    same(filtered(kit.kubectl("get", "cronjobs")).splitlines()[1].split()[:6], ["nightly", "0", "3", "*", "*", "*"])


@case
def create_configmap_secret_and_serviceaccount_by_flags(kit: Kit):
    kit.kubectl("create", "configmap", "settings", "--from-literal=colour=blue", "--from-literal=size=7")
    same(kit.get("configmap/settings")["data"], {"colour": "blue", "size": "7"})
    kit.kubectl("create", "secret", "generic", "password", "--from-literal=word=swordfish")
    secret = kit.get("secret/password")
    same((secret["data"], secret["type"]), ({"word": "c3dvcmRmaXNo"}, "Opaque"))
    kit.kubectl("create", "serviceaccount", "robot")
    same(kit.get("serviceaccount/robot")["metadata"]["name"], "robot")


@case
def create_priorityclass_by_flags(kit: Kit):
    name = kit.namespace
    kit.kubectl("create", "priorityclass", name, "--value=7", "--description=of a test")
    same(kit.get(f"priorityclass/{name}")["value"], 7)
    kit.kubectl("delete", "priorityclass", name)


@case
def run_starts_a_pod(kit: Kit):
    same(kit.kubectl("run", "web", "--image=busybox", "--restart=Never"), "pod/web created\n")
    same(kit.get("pod/web")["metadata"]["labels"], {"run": "web"})


@case
def generated_names_are_reported(kit: Kit):
    thing = job("x")
    thing["metadata"] = {"generateName": "pi-"}
    created = kit.kubectl("create", "--filename=-", stdin=thing)
    same(len(created), len("job.batch/pi-xxxxx created\n"))


@case
def apply_twice_changes_nothing(kit: Kit):
    same(apply(kit, job("pi")), "job.batch/pi created\n")
    before = kit.get("job/pi")
    contains(before["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"], '"kind":"Job"')
    same(apply(kit, job("pi")), "job.batch/pi unchanged\n")
    same(kit.get("job/pi")["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"])


@case
def apply_changes_what_changed(kit: Kit):
    apply(kit, job("pi", parallelism=1, activeDeadlineSeconds=60))
    same(apply(kit, job("pi", parallelism=3)), "job.batch/pi configured\n")
    spec = kit.get("job/pi")["spec"]
    same((spec["parallelism"], spec.get("activeDeadlineSeconds")), (3, None))
    same(apply(kit, config_map("settings", colour="blue", size="7")), "configmap/settings created\n")
    same(apply(kit, config_map("settings", colour="red")), "configmap/settings configured\n")
    same(kit.get("configmap/settings")["data"], {"colour": "red"})


@case
def apply_merges_lists_by_their_keys(kit: Kit):
    thing = pod("web")
    apply(kit, thing)
    thing["spec"]["containers"][0]["image"] = "busybox:2"
    same(apply(kit, thing), "pod/web configured\n")
    container = kit.get("pod/web")["spec"]["containers"][0]
    same((container["image"], container["command"]), ("busybox:2", ["true"]))


@case
def server_side_apply_keeps_owners_apart(kit: Kit):
    def apply_server_side(thing: dict, *flags: str):
        return kit.try_kubectl("apply", "--server-side", *flags, "--filename=-", stdin=thing)

    for _ in range(2):
        same(apply_server_side(config_map("settings", colour="blue")).out, "configmap/settings serverside-applied\n")
    settings = kit.get("cm/settings")["metadata"]["resourceVersion"]
    apply_server_side(config_map("settings", colour="blue"))
    same(kit.get("cm/settings")["metadata"]["resourceVersion"], settings)

    same(apply_server_side(job("pi", parallelism=1)).out, "job.batch/pi serverside-applied\n")
    refusal = apply_server_side(job("pi", parallelism=3), "--field-manager=other")
    same(refusal.code, 1)
    contains(refusal.err, 'conflict with "kubectl": .spec.parallelism')
    apply_server_side(job("pi", parallelism=3), "--field-manager=other", "--force-conflicts")
    pi = json.loads(kit.kubectl("get", "--raw", f"/apis/batch/v1/namespaces/{kit.namespace}/jobs/pi"))
    same(pi["spec"]["parallelism"], 3)
    same(sorted({entry["manager"] for entry in pi["metadata"]["managedFields"]}), ["kubectl", "other"])


@case
def patch_in_three_ways(kit: Kit):
    kit.create(job("pi"))

    def patch(kind: str, body) -> str:
        return kit.kubectl("patch", "job", "pi", f"--type={kind}", "--patch", json.dumps(body))

    same(patch("strategic", {"spec": {"parallelism": 2}}), "job.batch/pi patched\n")
    same(patch("merge", {"metadata": {"labels": {"tier": "back"}}}), "job.batch/pi patched\n")
    same(patch("json", [{"op": "add", "path": "/metadata/annotations", "value": {"note": "x"}}]),
         "job.batch/pi patched\n")
    same(patch("merge", {"spec": {"parallelism": 2}}), "job.batch/pi patched (no change)\n")
    pi = kit.get("job/pi")
    same((pi["spec"]["parallelism"], pi["metadata"]["labels"]["tier"], pi["metadata"]["annotations"]),
         (2, "back", {"note": "x"}))


@case
def patch_the_status(kit: Kit):
    kit.needs_kubectl(1, 24, "--subresource is newer")
    kit.create(job("pi"))
    kit.kubectl("patch", "job", "pi", "--subresource=status", "--type=merge", "--patch",
                json.dumps({"status": completed_job_status()}))
    same(filtered(kit.kubectl("get", "job", "pi")).splitlines()[1], "pi  Complete  1/1  <age>  <age>")


@case
def label_and_annotate(kit: Kit):
    kit.create(config_map("settings"))
    same(kit.kubectl("label", "cm", "settings", "tier=back"), "configmap/settings labeled\n")
    contains(kit.refused("label", "cm", "settings", "tier=front"), "--overwrite is false")
    kit.kubectl("label", "cm", "settings", "tier=front", "--overwrite")
    kit.kubectl("annotate", "cm", "settings", "note=hello")
    metadata = kit.get("cm/settings")["metadata"]
    same((metadata["labels"], metadata["annotations"]), ({"tier": "front"}, {"note": "hello"}))
    kit.kubectl("label", "cm", "settings", "tier-")
    same(kit.get("cm/settings")["metadata"].get("labels"), None)


@case
def edit_sends_what_the_editor_changed(kit: Kit):
    kit.create(job("pi", parallelism=1))
    editor = "sed -i s/parallelism:.1/parallelism:\\ 4/"
    edited = kit.cluster.call("--namespace", kit.namespace, "edit", "job", "pi", environment={"KUBE_EDITOR": editor})
    same(edited.out, "job.batch/pi edited\n")
    same(kit.get("job/pi")["spec"]["parallelism"], 4)


@case
def diff_shows_what_apply_would_change(kit: Kit):
    apply(kit, config_map("settings", colour="blue"))
    same(kit.try_kubectl("diff", "--filename=-", stdin=config_map("settings", colour="blue")).out, "")
    changed = kit.try_kubectl("diff", "--filename=-", stdin=config_map("settings", colour="red"))
    same(changed.code, 1)
    contains(changed.out, "-  colour: blue", "+  colour: red")


@case
def suspend_and_resume_a_job(kit: Kit):
    kit.create(job("pi"))
    for suspend, status in ((True, "Suspended"), (False, "Running")):
        kit.kubectl("patch", "job/pi", "--patch", json.dumps({"spec": {"suspend": suspend}}))
        contains(kit.kubectl("get", "job", "pi", "--output=jsonpath={.spec.suspend}"), str(suspend).lower())
    same(kit.get("job/pi")["metadata"]["generation"], 3)


@case
def replace_writes_the_whole_object(kit: Kit):
    kit.create(config_map("settings", colour="blue", size="7"))
    replaced = kit.kubectl("replace", "--filename=-", stdin=config_map("settings", colour="red"))
    same(replaced, "configmap/settings replaced\n")
    same(kit.get("cm/settings")["data"], {"colour": "red"})


@case
def replace_of_a_stale_object_is_a_conflict(kit: Kit):
    kit.create(config_map("settings", colour="blue"))
    stale = kit.get("cm/settings")
    kit.kubectl("label", "cm", "settings", "tier=back")
    refusal = kit.refused("replace", "--filename=-", stdin=stale)
    contains(refusal, 'Operation cannot be fulfilled on configmaps "settings": the object has been modified')


@case
def dry_run_stores_nothing(kit: Kit):
    created = kit.kubectl("create", "--dry-run=server", "--filename=-", stdin=job("pi"))
    same(created, "job.batch/pi created (server dry run)\n")
    kit.refused("get", "job", "pi")
    apply(kit, config_map("settings", colour="blue"))
    kit.kubectl("apply", "--dry-run=server", "--filename=-",
                stdin=config_map("settings", colour="red"))
    same(kit.get("cm/settings")["data"], {"colour": "blue"})


@case
def nodes_are_cordoned_and_tainted(kit: Kit):
    name = kit.namespace
    kit.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    same(kit.kubectl("cordon", name), f"node/{name} cordoned\n")
    contains(kit.kubectl("get", "node", name), "SchedulingDisabled")
    same(kit.kubectl("uncordon", name), f"node/{name} uncordoned\n")
    kit.kubectl("taint", "node", name, "dedicated=batch:NoSchedule")
    taints = {taint["key"]: taint for taint in kit.get(f"node/{name}")["spec"]["taints"]}
    same(taints["dedicated"], {"effect": "NoSchedule", "key": "dedicated", "value": "batch"})
    kit.kubectl("delete", "node", name)


@case
def large_manifests_are_accepted(kit: Kit):
    kit.create(config_map("large", text="x" * 900_000))
    same(len(kit.get("cm/large")["data"]["text"]), 900_000)
    many = [config_map(f"many-{number}") for number in range(50)]
    kit.kubectl("create", "--filename=-", stdin=manifest(many))
    listed = kit.kubectl("get", "configmaps", "--output=name", "--chunk-size=7").split()
    same(sum(name.startswith("configmap/many-") for name in listed), 50)
