"""Quotas, limits and priorities: what kubectl shows of them, and what they refuse."""

from harness import Kit, case, config_map, contains, filtered, job, pod, same


def asking(name: str, **resources) -> dict:
    """A pod whose container asks for resources."""
    thing = pod(name)
    thing["spec"]["containers"][0]["resources"] = resources
    return thing


@case
def describe_quota_shows_what_is_used(kit: Kit):
    kit.create(config_map("settings"))
    # Bodies of `create quota` are protobuf.
    kit.kubectl("create", "quota", "small", "--hard=pods=2,requests.cpu=1,limits.cpu=2,count/jobs.batch=1,configmaps=5")
    kit.create(job("pi"), asking("a", requests={"cpu": "250m"}, limits={"cpu": "500m"}))
    same(filtered(kit.kubectl("describe", "quota", "small")), """
        Name:  small
        Namespace:  <ns>
        Resource  Used  Hard
        --------  ----  ----
        configmaps  1  5
        count/jobs.batch  1  1
        limits.cpu  500m  2
        pods  1  2
        requests.cpu  250m  1
        """)
    same(filtered(kit.kubectl("get", "resourcequota")), """
        NAME  REQUEST  LIMIT  AGE
        small  configmaps: 1/5, count/jobs.batch: 1/1, pods: 1/2, requests.cpu: 250m/1  limits.cpu: 500m/2  <age>
        """)
    kit.kubectl("delete", "pod", "a", "--wait=false")
    kit.kubectl("delete", "job", "pi", "--cascade=background")
    same(kit.get("quota/small")["status"]["used"],
         {"configmaps": "1", "count/jobs.batch": "0", "limits.cpu": "0", "pods": "0", "requests.cpu": "0"})


@case
def what_does_not_fit_a_quota_is_refused(kit: Kit):
    kit.kubectl("create", "quota", "small", "--hard=pods=1,limits.cpu=1")
    refused = kit.refused("create", "--filename=-", stdin=pod("x"))
    contains(refused, 'pods "x" is forbidden: failed quota: small: must specify limits.cpu for: main')
    kit.create(asking("a", limits={"cpu": "500m"}))
    refused = kit.refused("create", "--filename=-", stdin=asking("b", limits={"cpu": "500m"}))
    contains(refused, '(Forbidden)', 'pods "b" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, '
                                     'limited: pods=1')
    kit.kubectl("patch", "quota", "small", "--patch", '{"spec":{"hard":{"pods":"2"}}}')
    kit.create(asking("b", limits={"cpu": "500m"}))


@case
def scoped_quotas_are_about_some_pods(kit: Kit):
    kit.kubectl("create", "quota", "idle", "--hard=pods=1", "--scopes=BestEffort")
    kit.create(pod("a"), asking("b", requests={"cpu": "1"}))
    contains(kit.refused("create", "--filename=-", stdin=pod("c")), "exceeded quota: idle")
    contains(filtered(kit.kubectl("describe", "quota", "idle")), "Scopes:  BestEffort", "pods  1  1")


@case
def limit_ranges_fill_in_and_refuse(kit: Kit):
    limits = [{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}}]
    kit.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "modest"}, "spec": {"limits": limits}})
    same(filtered(kit.kubectl("describe", "limitrange", "modest")), """
        Name:  modest
        Namespace:  <ns>
        Type  Resource  Min  Max  Default Request  Default Limit  Max Limit/Request Ratio
        ----  --------  ---  ---  ---------------  -------------  -----------------------
        Container  cpu  -  1  100m  500m  -
        """)
    same(filtered(kit.kubectl("get", "limits")), "NAME  CREATED AT\nmodest  <time>")
    kit.create(pod("web"))
    web = kit.get("pod/web")
    same(web["spec"]["containers"][0]["resources"], {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}})
    contains(web["metadata"]["annotations"]["kubernetes.io/limit-ranger"], "LimitRanger plugin set: cpu request for")
    contains(kit.refused("create", "--filename=-", stdin=asking("greedy", limits={"cpu": "2"})),
             "maximum cpu usage per Container is 1, but limit is 2")


@case
def describe_namespace_shows_quotas_and_limits(kit: Kit):
    kit.kubectl("create", "quota", "small", "--hard=pods=3")
    limits = [{"type": "Pod", "max": {"cpu": "4"}}]
    kit.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "modest"}, "spec": {"limits": limits}})
    contains(filtered(kit.kubectl("describe", "namespace", kit.namespace)), "Resource Quotas", "pods  0  3",
             "Resource Limits", "Pod  cpu  -  4")


@case
def quotas_and_limits_are_applied_and_explained(kit: Kit):
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"},
             "spec": {"hard": {"pods": "3"}}}
    for _ in range(2):
        same(kit.kubectl("apply", "--server-side", "--filename=-", stdin=quota),
             "resourcequota/small serverside-applied\n")
    quota["spec"]["hard"] = {"pods": "4", "secrets": "2"}
    kit.kubectl("apply", "--server-side", "--filename=-", stdin=quota)
    same(kit.get("quota/small")["status"]["hard"], {"pods": "4", "secrets": "2"})
    contains(kit.refused("create", "quota", "bad", "--hard=apples=1"), "must be a standard resource for quota")
    contains(kit.kubectl("explain", "limitrange.spec.limits"), "maxLimitRequestRatio")
    kit.needs_kubectl(1, 27, "older ones explain types in other words")
    contains(kit.kubectl("explain", "resourcequota.spec.hard"), "hard", "<map[string]Quantity>")


@case
def priority_classes_decide_priorities(kit: Kit):
    name = kit.namespace
    kit.kubectl("create", "priorityclass", name, "--value=7", "--preemption-policy=Never")
    kit.create(pod("a", priorityClassName=name), pod("b", priorityClassName="system-node-critical"), pod("c"))
    spec = {thing: kit.get(f"pod/{thing}")["spec"] for thing in "abc"}
    same([(spec[thing]["priority"], spec[thing]["preemptionPolicy"]) for thing in "abc"],
         [(7, "Never"), (2000001000, "PreemptLowerPriority"), (0, "PreemptLowerPriority")])
    contains(kit.refused("create", "--filename=-", stdin=pod("d", priorityClassName="nope")),
             'pods "d" is forbidden: no PriorityClass with name nope was found')
    kit.kubectl("delete", "priorityclass", name)
