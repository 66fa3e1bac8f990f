"""kubectl get, describe, watch, wait and discovery."""

import json

from harness import Kit, case, completed_job_status, config_map, contains, filtered, job, pod, same


@case
def version_names_the_kubernetes_we_behave_as(kit: Kit):
    version = json.loads(kit.kubectl("version", "--output=json"))["serverVersion"]
    same((version["major"], version["minor"]), ("1", "36"))


@case
def api_versions_lists_the_served_groups(kit: Kit):
    same(kit.kubectl("api-versions").split(), [
        "authentication.k8s.io/v1", "authorization.k8s.io/v1", "batch/v1", "coordination.k8s.io/v1",
        "events.k8s.io/v1", "rbac.authorization.k8s.io/v1", "scheduling.k8s.io/v1", "v1"])


@case
def api_resources_lists_the_served_kinds(kit: Kit):
    rows = {line.split()[0]: line.split() for line in kit.kubectl("api-resources", "--no-headers").splitlines()}
    same(rows["jobs"], ["jobs", "batch/v1", "true", "Job"])
    same(rows["cronjobs"], ["cronjobs", "cj", "batch/v1", "true", "CronJob"])
    same(rows["pods"], ["pods", "po", "v1", "true", "Pod"])
    same(rows["nodes"], ["nodes", "no", "v1", "false", "Node"])
    for name in ("configmaps", "events", "leases", "limitranges", "namespaces", "priorityclasses", "resourcequotas",
                 "rolebindings", "secrets", "serviceaccounts"):
        contains(" ".join(rows), name)


@case
def get_prints_the_tables_of_kubernetes(kit: Kit):
    kit.create(job("pi", completions=3, parallelism=2), pod("web"))
    same(filtered(kit.kubectl("get", "jobs")), """
        NAME  STATUS  COMPLETIONS  DURATION  AGE
        pi  Running  0/3  <age>
        """)
    same(filtered(kit.kubectl("get", "jobs", "--output=wide")).splitlines()[0],
         "NAME  STATUS  COMPLETIONS  DURATION  AGE  CONTAINERS  IMAGES  SELECTOR")
    same(filtered(kit.kubectl("get", "pods")), """
        NAME  READY  STATUS  RESTARTS  AGE
        web  0/1  Pending  0  <age>
        """)
    same(filtered(kit.kubectl("get", "pods", "--output=wide")), """
        NAME  READY  STATUS  RESTARTS  AGE  IP  NODE  NOMINATED NODE  READINESS GATES
        web  0/1  Pending  0  <age>  <none>  <none>  <none>  <none>
        """)


@case
def get_prints_other_formats(kit: Kit):
    kit.needs_kubectl(1, 21, "older ones print managedFields")
    kit.create(config_map("settings", colour="blue"))
    same(filtered(kit.kubectl("get", "configmap/settings", "--output=yaml")), """
        apiVersion: v1
        data:
          colour: blue
        kind: ConfigMap
        metadata:
          creationTimestamp: "<time>"
          name: settings
          namespace: <ns>
          resourceVersion: "<rv>"
          uid: <uid>
        """)
    same(kit.kubectl("get", "cm", "settings", "--output=jsonpath={.data.colour}"), "blue")
    same(kit.kubectl("get", "cm", "settings", "--output=name"), "configmap/settings\n")
    same(filtered(kit.kubectl("get", "cm", "settings", "--output=custom-columns=N:.metadata.name,C:.data.colour")),
         "N  C\nsettings  blue")
    same(kit.kubectl("get", "cm", "settings", "--output=go-template={{.data.colour}}"), "blue")


@case
def get_selects_sorts_and_pages(kit: Kit):
    for name, tier in (("a", "front"), ("b", "back"), ("c", "back"), ("d", "front"), ("e", "back")):
        kit.create({**config_map(name), "metadata": {"name": name, "labels": {"tier": tier}}})

    def names(*args: str) -> str:
        listed = kit.kubectl("get", "configmaps", "--output=name", *args).split()
        return "".join(name.removeprefix("configmap/") for name in listed if name != "configmap/kube-root-ca.crt")

    same(names("--chunk-size=2"), "abcde")
    same(names("--selector=tier=back"), "bce")
    same(names("--selector=tier notin (back)", "--selector=tier"), "abcde")
    same(names("--selector=tier in (front),tier!=back"), "ad")
    same(names("--field-selector=metadata.name=c"), "c")
    same(names("--sort-by={.metadata.name}"), "abcde")
    contains(kit.kubectl("get", "configmaps", "--all-namespaces"), kit.namespace, "NAMESPACE")
    contains(kit.refused("get", "configmaps", "--field-selector=data.x=y"), "data.x")


@case
def several_kinds_and_categories_in_one_get(kit: Kit):
    kit.create(job("pi"), pod("web"))
    same(sorted(kit.kubectl("get", "jobs,pods", "--output=name").split()), ["job.batch/pi", "pod/web"])
    contains(kit.kubectl("get", "all"), "pod/web", "job.batch/pi")


@case
def get_watch_shows_each_change(kit: Kit):
    kit.create(job("before"))
    watch = kit.watch("get", "jobs", "--watch", "--output-watch-events")
    watch.wait_for(r"^ADDED +before ")
    kit.create(job("after"))
    watch.wait_for(r"^ADDED +after ")
    kit.write_status("jobs", "after", completed_job_status())
    watch.wait_for(r"^MODIFIED +after +Complete +1/1 +10s ")
    kit.kubectl("delete", "job", "before", "--wait=false")
    watch.wait_for(r"^DELETED +before ")


@case
def describe_job_reads_as_on_a_cluster(kit: Kit):
    kit.needs_kubectl(1, 32, "older ones print other lines")
    kit.create(job("pi", completions=3, parallelism=2, backoffLimit=4))
    same(filtered(kit.kubectl("describe", "job", "pi")), """
        Name:  pi
        Namespace:  <ns>
        Selector:  batch.kubernetes.io/controller-uid=<uid>
        Labels:  batch.kubernetes.io/controller-uid=<uid>
                          batch.kubernetes.io/job-name=pi
                          controller-uid=<uid>
                          job-name=pi
        Annotations:  <none>
        Parallelism:  2
        Completions:  3
        Completion Mode:  NonIndexed
        Suspend:  false
        Backoff Limit:  4
        Pods Statuses:  0 Active / 0 Succeeded / 0 Failed
        Pod Template:
          Labels:  batch.kubernetes.io/controller-uid=<uid>
                   batch.kubernetes.io/job-name=pi
                   controller-uid=<uid>
                   job-name=pi
          Containers:
           main:
            Image:  busybox
            Port:  <none>
            Host Port:  <none>
            Command:
              true
            Environment:  <none>
            Mounts:  <none>
          Volumes:  <none>
          Node-Selectors:  <none>
          Tolerations:  <none>
        Events:  <none>
        """)


@case
def describe_shows_events_of_the_object(kit: Kit):
    kit.create(pod("web"))
    web = kit.get("pod/web")
    kit.create({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": kit.namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": kit.namespace, "name": "web",
                           "uid": web["metadata"]["uid"]},
        "reason": "Tested", "message": "an event of the test", "type": "Normal", "count": 1,
        "source": {"component": "e2e"}, "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z"})
    contains(kit.kubectl("describe", "pod", "web"), "Tested", "an event of the test")
    contains(kit.kubectl("get", "events"), "Tested", "pod/web", "an event of the test")


@case
def describe_works_for_every_kind(kit: Kit):
    kit.needs_kubectl(1, 21, "older ones know CronJobs of batch/v1beta1 only")
    kit.create(config_map("settings", colour="blue"))
    kit.kubectl("create", "secret", "generic", "password", "--from-literal=word=swordfish")
    kit.kubectl("create", "cronjob", "nightly", "--image=busybox", "--schedule=0 3 * * *")
    contains(kit.kubectl("describe", "configmap", "settings"), "colour", "blue")
    contains(kit.kubectl("describe", "secret", "password"), "word:  9 bytes")
    contains(filtered(kit.kubectl("describe", "cronjob", "nightly")), "Schedule:  0 3 * * *", "Concurrency Policy:  Allow")
    contains(filtered(kit.kubectl("describe", "namespace", kit.namespace)), "Status:  Active")
    kit.kubectl("create", "serviceaccount", "robot")
    contains(filtered(kit.kubectl("describe", "serviceaccount", "robot")), "Name:  robot")


@case
def wait_returns_when_the_condition_holds(kit: Kit):
    kit.create(job("pi"))
    waiting = kit.watch("wait", "job/pi", "--for=condition=complete", "--timeout=60s")
    kit.write_status("jobs", "pi", completed_job_status())
    waiting.wait_for("job.batch/pi condition met")
    same(waiting.wait_for_exit(), 0)
    contains(kit.refused("wait", "job/pi", "--for=condition=failed", "--timeout=1s"), "timed out waiting")


@case
def wait_for_deletion_returns(kit: Kit):
    kit.needs_kubectl(1, 24, "older ones fail if the object is gone before they look")
    kit.create(config_map("settings"))
    waiting = kit.watch("wait", "configmap/settings", "--for=delete", "--timeout=60s")
    kit.kubectl("delete", "configmap", "settings")
    same(waiting.wait_for_exit(), 0)


@case
def raw_paths_are_served(kit: Kit):
    same(kit.kubectl("get", "--raw", "/healthz"), "ok")
    contains(kit.kubectl("get", "--raw", "/readyz?verbose"), "[+]", "readyz check passed")
    same(json.loads(kit.kubectl("get", "--raw", "/apis/batch/v1"))["groupVersion"], "batch/v1")
    listed = json.loads(kit.kubectl("get", "--raw", f"/api/v1/namespaces/{kit.namespace}/pods?limit=1"))
    same((listed["kind"], listed["items"]), ("PodList", []))
    contains(kit.kubectl("get", "--raw", "/metrics"), "# TYPE apiserver_request_total counter",
             'resource="pods",subresource="",scope="namespace",component="apiserver",code="200"}')


@case
def explain_describes_fields(kit: Kit):
    contains(kit.kubectl("explain", "job.spec.parallelism"), "KIND:", "Job", "parallelism", "<integer>")
    contains(kit.kubectl("explain", "cronjob.spec.jobTemplate.spec.template.spec.containers"), "image", "command")
    contains(kit.refused("explain", "job.spec.paralelism"), "paralelism")


@case
def auth_answers_for_the_administrator(kit: Kit):
    same(kit.kubectl("auth", "can-i", "create", "jobs"), "yes\n")
    same(kit.kubectl("auth", "can-i", "*", "*", "--all-namespaces"), "yes\n")
    contains(kit.kubectl("auth", "can-i", "--list"), "*.*")


@case
def auth_whoami_names_the_user(kit: Kit):
    kit.needs_kubectl(1, 28, "whoami is newer")
    contains(kit.kubectl("auth", "whoami"), "system:masters", "system:authenticated")
