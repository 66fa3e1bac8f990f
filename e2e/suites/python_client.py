"""The official Python client. It decodes every answer into classes that refuse what lacks a required field."""

import datetime
import threading

from harness import Kit, case, completed_job_status, job, pod, same

try:
    import kubernetes
    from kubernetes import client, dynamic, watch
    from kubernetes.client.exceptions import ApiException
except ImportError:
    kubernetes = None


class Clients:
    """Typed clients of one API connection."""

    def __init__(self, kit: Kit):
        if kubernetes is None:
            raise AssertionError("the Python package `kubernetes` is missing; `cargo xtask e2e` installs it")
        self.api = kubernetes.config.new_client_from_config(str(kit.cluster.kubeconfig))
        self.core, self.batch = client.CoreV1Api(self.api), client.BatchV1Api(self.api)
        self.coordination, self.events = client.CoordinationV1Api(self.api), client.EventsV1Api(self.api)
        self.scheduling, self.version = client.SchedulingV1Api(self.api), client.VersionApi(self.api)


def refused(status: int, call, *args, **kwargs) -> None:
    try:
        call(*args, **kwargs)
    except ApiException as error:
        same(error.status, status)
    else:
        raise AssertionError(f"should have been refused with {status}")


@case
def create_read_list_patch_replace_delete_a_job(kit: Kit):
    batch, namespace = Clients(kit).batch, kit.namespace
    created = batch.create_namespaced_job(namespace, job("pi", completions=2))
    same((created.spec.backoff_limit, created.metadata.generation), (6, 1))
    same(batch.read_namespaced_job("pi", namespace).metadata.uid, created.metadata.uid)
    same([item.metadata.name for item in batch.list_namespaced_job(namespace).items], ["pi"])
    same([item.metadata.name for item in batch.list_job_for_all_namespaces(
        field_selector=f"metadata.namespace={namespace}").items], ["pi"])
    # A dict is a strategic merge patch, a list a JSON patch.
    same(batch.patch_namespaced_job("pi", namespace, {"spec": {"parallelism": 2}}).spec.parallelism, 2)
    patched = batch.patch_namespaced_job("pi", namespace, [{"op": "add", "path": "/metadata/labels/x", "value": "y"}])
    same(patched.metadata.labels["x"], "y")
    patched.spec.parallelism = 1
    same(batch.replace_namespaced_job("pi", namespace, patched).spec.parallelism, 1)
    refused(409, batch.replace_namespaced_job, "pi", namespace, patched)
    same(batch.delete_namespaced_job("pi", namespace, propagation_policy="Background").status, "Success")
    refused(404, batch.read_namespaced_job, "pi", namespace)


@case
def status_of_a_job_decodes(kit: Kit):
    batch = Clients(kit).batch
    batch.create_namespaced_job(kit.namespace, job("pi"))
    written = batch.patch_namespaced_job_status("pi", kit.namespace, {"status": completed_job_status()})
    same([condition.type for condition in written.status.conditions], ["SuccessCriteriaMet", "Complete"])
    same(written.status.completion_time - written.status.start_time, datetime.timedelta(seconds=10))
    same(batch.read_namespaced_job_status("pi", kit.namespace).status.succeeded, 1)


@case
def cronjobs_and_job_templates_decode(kit: Kit):
    batch = Clients(kit).batch
    spec = {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job("x")["spec"]}}
    created = batch.create_namespaced_cron_job(kit.namespace, {"metadata": {"name": "often"}, "spec": spec})
    same((created.spec.concurrency_policy, created.spec.suspend), ("Allow", False))
    same(created.spec.job_template.spec.template.spec.restart_policy, "Never")


@case
def a_full_pod_status_decodes(kit: Kit):
    core = Clients(kit).core
    core.create_namespaced_pod(kit.namespace, pod("web"))
    terminated = {"exitCode": 3, "reason": "Error", "startedAt": "2026-01-01T00:00:00Z",
                  "finishedAt": "2026-01-01T00:00:05Z"}
    status = {"phase": "Failed", "containerStatuses": [{
        "name": "main", "image": "busybox", "imageID": "", "ready": False, "restartCount": 0,
        "state": {"terminated": terminated}}]}
    written = core.patch_namespaced_pod_status("web", kit.namespace, {"status": status})
    same(written.status.container_statuses[0].state.terminated.exit_code, 3)
    same(core.read_namespaced_pod("web", kit.namespace).status.phase, "Failed")


@case
def a_watch_sees_everything_and_resumes(kit: Kit):
    batch, namespace = Clients(kit).batch, kit.namespace
    batch.create_namespaced_job(namespace, job("first"))
    start = batch.list_namespaced_job(namespace).metadata.resource_version
    batch.create_namespaced_job(namespace, job("second"))
    batch.patch_namespaced_job("second", namespace, {"spec": {"parallelism": 2}})
    batch.delete_namespaced_job("first", namespace, propagation_policy="Background")

    seen, versions = [], []
    for event in watch.Watch().stream(batch.list_namespaced_job, namespace, resource_version=start, timeout_seconds=30):
        seen.append((event["type"], event["object"].metadata.name))
        versions.append(event["object"].metadata.resource_version)
        if len(seen) == 3:
            break
    same(seen, [("ADDED", "second"), ("MODIFIED", "second"), ("DELETED", "first")])
    resumed = watch.Watch().stream(batch.list_namespaced_job, namespace, resource_version=versions[1],
                                   timeout_seconds=30)
    event = next(iter(resumed))
    same((event["type"], event["object"].metadata.name), ("DELETED", "first"))


@case
def a_watch_without_news_ends_in_time(kit: Kit):
    batch = Clients(kit).batch
    same(list(watch.Watch().stream(batch.list_namespaced_job, kit.namespace, timeout_seconds=1)), [])


@case
def a_live_watch_is_told_at_once(kit: Kit):
    clients = Clients(kit)
    opened, names = threading.Event(), []

    def follow():
        stream = watch.Watch().stream(clients.core.list_namespaced_config_map, kit.namespace, timeout_seconds=30)
        for event in stream:
            names.append(event["object"].metadata.name)
            opened.set()
            if names[-1] == "last":
                return

    thread = threading.Thread(target=follow, daemon=True)
    clients.core.create_namespaced_config_map(kit.namespace, {"metadata": {"name": "first"}})
    thread.start()
    opened.wait(30)
    Clients(kit).core.create_namespaced_config_map(kit.namespace, {"metadata": {"name": "last"}})
    thread.join(30)
    same(names[-1:], ["last"])


@case
def lists_come_in_pages(kit: Kit):
    core, namespace = Clients(kit).core, kit.namespace
    for number in range(5):
        core.create_namespaced_secret(namespace, {"metadata": {"name": f"s-{number}"}, "stringData": {"n": str(number)}})
    first = core.list_namespaced_secret(namespace, limit=2)
    same((len(first.items), first.metadata.remaining_item_count), (2, 3))
    rest = core.list_namespaced_secret(namespace, limit=10, _continue=first.metadata._continue)
    same([item.metadata.name for item in rest.items], ["s-2", "s-3", "s-4"])
    same(rest.items[0].data, {"n": "Mg=="})


@case
def collections_are_deleted_by_selector(kit: Kit):
    core, namespace = Clients(kit).core, kit.namespace
    for name, tier in (("a", "front"), ("b", "back")):
        core.create_namespaced_config_map(namespace, {"metadata": {"name": name, "labels": {"tier": tier}}})
    core.delete_collection_namespaced_config_map(namespace, label_selector="tier=back")
    left = [item.metadata.name for item in core.list_namespaced_config_map(namespace, label_selector="tier").items]
    same(left, ["a"])


@case
def events_and_leases_keep_microseconds(kit: Kit):
    clients, namespace = Clients(kit), kit.namespace
    time = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.timezone.utc)
    lease = client.V1Lease(metadata=client.V1ObjectMeta(name="leader"),
                           spec=client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15, renew_time=time))
    same(clients.coordination.create_namespaced_lease(namespace, lease).spec.renew_time, time)
    event = client.EventsV1Event(
        metadata=client.V1ObjectMeta(name="it-happened"), event_time=time, action="Testing", reason="Tested",
        note="a note", type="Normal", reporting_controller="example.com/e2e", reporting_instance="one",
        regarding=client.V1ObjectReference(kind="Namespace", name=namespace, api_version="v1", namespace=namespace))
    same(clients.events.create_namespaced_event(namespace, event).event_time, time)
    # The same event in the older shape.
    older = clients.core.read_namespaced_event("it-happened", namespace)
    same((older.message, older.involved_object.name), ("a note", namespace))


@case
def refusals_carry_their_code(kit: Kit):
    clients, namespace = Clients(kit), kit.namespace
    clients.core.create_namespaced_config_map(namespace, {"metadata": {"name": "a"}})
    refused(409, clients.core.create_namespaced_config_map, namespace, {"metadata": {"name": "a"}})
    refused(422, clients.batch.create_namespaced_job, namespace, job("pi", parallelism=-1))
    refused(400, clients.batch.create_namespaced_job, namespace, job("pi", parallelism="x"))
    refused(404, clients.core.read_namespace, "nowhere")


@case
def cluster_scoped_kinds_decode(kit: Kit):
    clients = Clients(kit)
    same(clients.version.get_code().minor.rstrip("+"), "36")
    names = {item.metadata.name for item in clients.core.list_namespace().items}
    same({"default", "kube-system", "kube-public", "kube-node-lease"} <= names, True)
    classes = {item.metadata.name: item.value for item in clients.scheduling.list_priority_class().items}
    same(classes["system-node-critical"], 2000001000)
    same(isinstance(clients.core.list_node().items, list), True)


@case
def the_dynamic_client_finds_kinds_by_discovery(kit: Kit):
    dynamic_client = dynamic.DynamicClient(Clients(kit).api)
    jobs = dynamic_client.resources.get(api_version="batch/v1", kind="Job")
    created = jobs.create(namespace=kit.namespace, body=job("pi"))
    same(created.spec.completions, 1)
    same([item.metadata.name for item in jobs.get(namespace=kit.namespace).items], ["pi"])
    jobs.delete("pi", namespace=kit.namespace)


@case
def an_informer_keeps_a_copy_of_what_is_there(kit: Kit):
    """What people write around the Python client: list, watch from there, and start over when history is gone."""
    clients, namespace = Clients(kit), kit.namespace
    cache, versions, listed, done = {}, [], threading.Event(), threading.Event()

    def follow():
        initial = clients.batch.list_namespaced_job(namespace)
        cache.update({item.metadata.name: item for item in initial.items})
        version = initial.metadata.resource_version
        listed.set()
        while not done.is_set():
            stream = watch.Watch()
            for event in stream.stream(clients.batch.list_namespaced_job, namespace, resource_version=version,
                                       allow_watch_bookmarks=True, timeout_seconds=5):
                version = event["raw_object"]["metadata"]["resourceVersion"]
                versions.append(int(version))
                if event["type"] == "DELETED":
                    cache.pop(event["object"].metadata.name)
                elif event["type"] != "BOOKMARK":
                    cache[event["object"].metadata.name] = event["object"]
                if not cache and versions:
                    done.set()
                    return

    other = Clients(kit).batch
    other.create_namespaced_job(namespace, job("first"))
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    listed.wait(30)
    for name in ("second", "third"):
        other.create_namespaced_job(namespace, job(name))
    for name in ("first", "second", "third"):
        other.patch_namespaced_job(name, namespace, {"spec": {"parallelism": 2}})
        other.delete_namespaced_job(name, namespace, propagation_policy="Background")
    thread.join(60)
    same((done.is_set(), cache), (True, {}))
    same(versions, sorted(versions))
