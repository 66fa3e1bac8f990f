"""Jobs, CronJobs, pods and configuration that are refused, and what may not be done to them (BI-40 to BI-68, BI-100 to
BI-105), over HTTPS. Code and reason are contract.
"""

import json

from answers import JSON_PATCH, MERGE, bounded, expect, in_pod, indexed, merged, paths, refuses, spec
from harness import Kit, completed_job_status, config_map, job, pod
from wire import Wire

# --- 6.3 Job spec


@bounded
def job_specs_are_checked(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}

    def codes(operator: str, values: list, **more) -> dict:
        return {"action": "FailJob", "onExitCodes": {"operator": operator, "values": values, **more}}

    def policy(*rules: dict, **change) -> dict:
        return spec(podFailurePolicy={"rules": list(rules)}, **change)

    def success(**one) -> dict:
        return indexed(successPolicy={"rules": [one]})

    manual = {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}}
    rows = [
        *(("BI-40", spec(**{field: -1})) for field in ("parallelism", "completions", "backoffLimit",
                                                        "ttlSecondsAfterFinished", "activeDeadlineSeconds")),
        ("BI-41", in_pod(restartPolicy=None)),
        ("BI-41", in_pod(restartPolicy="Always")),
        ("BI-41", in_pod(restartPolicy="Sometimes")),
        ("BI-41", in_pod(containers=[])),
        ("BI-42", spec(selector={"matchLabels": {"a": "b"}})),
        ("BI-42", spec(manualSelector=True)),
        ("BI-42", spec(**manual)),
        ("BI-43", spec(completionMode="Sideways")),
        ("BI-43", indexed(completions=None)),
        ("BI-43", indexed(completions=200_000, parallelism=100_001)),
        ("BI-44", merged(indexed(completions=1001), {"metadata": {"name": "a" * 61}})),
        ("BI-45", spec(completions=3, successPolicy={"rules": [{"succeededCount": 1}]})),
        ("BI-45", indexed(successPolicy={"rules": []})),
        ("BI-45", indexed(successPolicy={"rules": None})),
        ("BI-45", success(succeededCount=4)),
        *(("BI-45 " + text, success(succeededIndexes=text))
          for text in ("0-", "-1", "1-0", "0,0", "a", "0-1-2", "0,", "0, 1", "3")),
        ("BI-46", spec(backoffLimitPerIndex=1)),
        ("BI-46", indexed(maxFailedIndexes=1)),
        ("BI-46", indexed(backoffLimitPerIndex=1, maxFailedIndexes=4)),
        ("BI-46", indexed(completions=100_001, backoffLimitPerIndex=1)),
        ("BI-47", policy(*[rule] * 21)),
        ("BI-47", policy({"action": "Ignore"})),
        ("BI-47", policy({**rule, **codes("In", [1])})),
        ("BI-47", policy(codes("In", [0]))),
        ("BI-47", policy(codes("In", [2, 1]))),
        ("BI-47", policy(codes("In", [1, 1]))),
        ("BI-47", policy(codes("In", []))),
        ("BI-47", policy(codes("In", list(range(1, 257))))),
        ("BI-47", policy(codes("In", [1], containerName="nobody"))),
        ("BI-47", policy({**rule, "action": "Explode"})),
        ("BI-47", policy({**rule, "action": "FailIndex"})),
        ("BI-47", policy(rule, template={"spec": {"restartPolicy": "OnFailure"}})),
        ("BI-49", spec(podReplacementPolicy="Whenever")),
        ("BI-49", policy(rule, podReplacementPolicy="TerminatingOrFailed")),
        *(("BI-50 " + name, spec(managedBy=name))
          for name in ("nodomain", "example.com/" + "a" * 52, "Example.com/a", "example.com/a b")),
    ]
    for row, body in rows:
        expect(row, wire.ask("POST", at["jobs"], body), 422)


@bounded
def odd_but_valid_jobs_are_accepted(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    negative = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [-2, -1]}}]}
    largest = (1 << 31) - 1
    for number, (row, body) in enumerate((
            ("BI-48", spec(podFailurePolicy=negative)),
            ("BI-51", spec(completions=largest)),
            ("BI-51", spec(parallelism=largest)),
            ("BI-52", spec(completions=0)))):
        expect(row, wire.ask("POST", at["jobs"], merged(body, {"metadata": {"name": f"odd-{number}"}})), 201)


# --- 6.4 updates, patches, deletes, status


@bounded
def writes_to_the_wrong_object_are_refused(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    stored = expect("", wire.ask("POST", at["jobs"], job("a")), 201).json
    one = f"{at['jobs']}/a"
    expect("BI-60", wire.ask("POST", at["jobs"], job("a")), 409, "AlreadyExists")
    expect("BI-60", wire.ask("PUT", f"{at['jobs']}/b", job("b")), 404)
    expect("BI-60", wire.ask("PUT", one, job("b")), 400)
    expect("", wire.ask("PATCH", one, {"metadata": {"labels": {"x": "y"}}}, MERGE), 200)
    version = {"metadata": {"resourceVersion": stored["metadata"]["resourceVersion"]}}
    expect("BI-61", wire.ask("PUT", one, stored), 409, "Conflict")
    expect("BI-61", wire.ask("PATCH", one, version, MERGE), 409, "Conflict")
    other = merged(kit.get("job/a"), {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}})
    expect("BI-61", wire.ask("PUT", one, other), 409, "Conflict")


@bounded
def what_is_settled_stays(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    expect("", wire.ask("POST", at["jobs"], merged(spec(completions=2), {"metadata": {"name": "plain"}})), 201)
    expect("", wire.ask("POST", at["jobs"], merged(indexed(), {"metadata": {"name": "indexed"}})), 201)
    container = {"name": "main", "image": "other", "command": ["true"]}
    for change in ({"template": {"spec": {"containers": [container]}}}, {"selector": {"matchLabels": {"a": "b"}}},
                   {"completionMode": "Indexed"}, {"managedBy": "example.com/a"}, {"podFailurePolicy": policy},
                   {"completions": 5}):
        expect(f"BI-62 {list(change)}", wire.ask("PATCH", f"{at['jobs']}/plain", {"spec": change}, MERGE), 422)
    for change in ({"successPolicy": {"rules": [{"succeededCount": 1}]}}, {"backoffLimitPerIndex": 1}):
        expect(f"BI-62 {list(change)}", wire.ask("PATCH", f"{at['jobs']}/indexed", {"spec": change}, MERGE), 422)
    both = {"spec": {"completions": 4, "parallelism": 4}}
    expect("BI-63", wire.ask("PATCH", f"{at['jobs']}/indexed", both, MERGE), 200)
    expect("BI-63", wire.ask("PATCH", f"{at['jobs']}/indexed", {"spec": {"completions": 5}}, MERGE), 422)


@bounded
def patches_are_bounded_and_well_formed(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    expect("", wire.ask("POST", at["configmaps"], config_map("a", x="y" * 1000)), 201)
    one = f"{at['configmaps']}/a"
    operation = {"op": "add", "path": "/data/a", "value": "b"}
    bomb = [{"op": "add", "path": "/metadata/annotations", "value": {}}]
    bomb += [{"op": "copy", "from": "/data", "path": f"/metadata/annotations/a{n}"} for n in range(9_000)]
    rows = [
        ("BI-64 count", [operation] * 10_001, 413),
        ("BI-64 no list", operation, 400),
        ("BI-64 unknown", [{"op": "multiply", "path": "/data/a"}], 422),
        ("BI-64 missing", [{"op": "remove", "path": "/data/none"}], 422),
        ("BI-64 test", [{"op": "test", "path": "/data/x", "value": "z"}], 422),
        ("BI-64 copies", bomb, 422),
    ]
    for row, body, code in rows:
        expect(row, wire.ask("PATCH", one, body, JSON_PATCH), code)
    expect("BI-65", wire.ask("PATCH", one, '"text"', MERGE), 400)
    apply = {"Content-Type": "application/apply-patch+yaml"}
    expect("BI-65", wire.ask("PATCH", one, config_map("a"), apply), 422)


@bounded
def deletes_are_checked(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    expect("", wire.ask("POST", at["jobs"], job("a")), 201)
    one = f"{at['jobs']}/a"
    for preconditions in ({"uid": "nobody"}, {"resourceVersion": "1"}):
        expect("BI-66", wire.ask("DELETE", one, {"preconditions": preconditions}), 409, "Conflict")
    expect("BI-66", wire.ask("DELETE", one, {"propagationPolicy": "Sideways"}), 422)
    expect("BI-66", wire.ask("DELETE", one, {"propagationPolicy": "Orphan", "orphanDependents": True}), 422)
    expect("BI-66", wire.ask("DELETE", f"{one}?gracePeriodSeconds=abc"), 400)
    kit.get("job/a")


def condition(kind: str, status: str = "True") -> dict:
    return {"type": kind, "status": status, "lastProbeTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}


@bounded
def job_statuses_are_checked(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    begin, end = "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"
    expect("", wire.ask("POST", at["jobs"], spec(completions=3)), 201)
    lists = "status.uncountedTerminatedPods"
    rows = [
        *(({counter: -1}, f"status.{counter}") for counter in ("active", "succeeded", "failed", "terminating", "ready")),
        ({"active": 1, "ready": 2}, "status.ready"),
        ({"startTime": begin, "conditions": [condition("Failed")]}, "status.conditions"),
        ({"startTime": begin, "completionTime": end, "conditions": [condition("Complete")]}, "status.conditions"),
        ({"startTime": begin, "conditions": [condition("SuccessCriteriaMet"), condition("FailureTarget")]},
         "status.conditions"),
        ({"startTime": begin, "completionTime": end}, "status.completionTime"),
        ({"uncountedTerminatedPods": {"succeeded": ["a", "a"]}}, f"{lists}.succeeded[1]"),
        ({"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a"]}}, f"{lists}.failed[0]"),
        ({"uncountedTerminatedPods": {"failed": [""]}}, f"{lists}.failed[0]"),
        ({"completedIndexes": "0"}, "status.completedIndexes"),
    ]
    one = f"{at['jobs']}/bad/status"
    for status, field in rows:
        refuses(f"BI-67 {status}", wire.ask("PATCH", one, {"status": status}, MERGE), field)
    indexed = merged(job("indexed"), {"spec": {"completionMode": "Indexed", "completions": 3}})
    expect("", wire.ask("POST", at["jobs"], indexed), 201)
    no_limit = wire.ask("PATCH", f"{at['jobs']}/indexed/status", {"status": {"failedIndexes": "0"}}, MERGE)
    refuses("BI-67 no limit of its own", no_limit, "status.failedIndexes")

    running = {"startTime": begin, "active": 1, "succeeded": 1, "failed": 1, "ready": 0, "terminating": 0}
    expect("", wire.ask("PATCH", one, {"status": running}, MERGE), 200)
    finished = [condition("FailureTarget"), condition("Failed")]
    for status, field in (
        ({"succeeded": 0}, "status.succeeded"), ({"failed": 0}, "status.failed"),
        ({"startTime": "2026-01-01T00:00:05Z"}, "status.startTime"),
        ({"conditions": finished}, "status.active"),
        ({"conditions": finished, "active": 0, "terminating": 1}, "status.terminating"),
        ({"conditions": finished, "active": 0, "uncountedTerminatedPods": {"failed": ["x"]}}, lists),
    ):
        refuses(f"BI-68 {status}", wire.ask("PATCH", one, {"status": status}, MERGE), field)
    # Each of them without what is wrong with it.
    expect("BI-68", wire.ask("PATCH", one, {"status": {"conditions": finished, "active": 0}}, MERGE), 200)
    expect("", wire.ask("POST", at["jobs"], job("done")), 201)
    done = f"{at['jobs']}/done/status"
    expect("", wire.ask("PATCH", done, {"status": completed_job_status()}, MERGE), 200)
    met = condition("SuccessCriteriaMet")
    for conditions in ([met, condition("Complete", "False")], [met, condition("Failed")], []):
        expect("BI-68", wire.ask("PATCH", done, {"status": {"conditions": conditions}}, MERGE), 422)


# --- 6.6 CronJobs, pods and configuration


def cron_job(name: str = "often", **change) -> dict:
    thing = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
             "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job("x")["spec"]}}}
    return merged(thing, {"spec": change})


@bounded
def cron_jobs_are_checked(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    schedules = ("", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 32 * *", "* * * 13 *", "* * * * 8",
                 "*/0 * * * *", "5-1 * * * *", "* * L * *", "@reboot", "TZ=UTC * * * * *", "CRON_TZ=UTC * * * * *",
                 "TZ=UTC", "TZ=", "CRON_TZ=")
    for schedule in schedules:
        expect(f"BI-100 {schedule!r}", wire.ask("POST", at["cronjobs"], cron_job(schedule=schedule)), 422)
    for number, schedule in enumerate(("59 23 31 2 *", "* * * * MON", "@hourly")):
        body = cron_job(f"fine-{number}", schedule=schedule)
        expect(f"BI-101 {schedule}", wire.ask("POST", at["cronjobs"], body), 201)
    zones = ("", "Local", "Mars/Olympus", "europe/london", "Europe/ London", "../etc/passwd", "/etc/localtime",
             "Europe/../Europe/London")
    for zone in zones:
        expect(f"BI-102 {zone!r}", wire.ask("POST", at["cronjobs"], cron_job(timeZone=zone)), 422)
    expect("BI-103", wire.ask("POST", at["cronjobs"], cron_job("a" * 52)), 201)
    rows = [cron_job("a" * 53), cron_job(concurrencyPolicy="Maybe"), cron_job(startingDeadlineSeconds=-1),
            cron_job(successfulJobsHistoryLimit=-1), cron_job(failedJobsHistoryLimit=-1),
            cron_job(jobTemplate={"spec": {"selector": {"matchLabels": {"a": "b"}}}}),
            cron_job(jobTemplate={"spec": {"manualSelector": True}})]
    for body in rows:
        expect("BI-103", wire.ask("POST", at["cronjobs"], body), 422)


@bounded
def pods_are_checked(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    main = {"name": "main", "image": "busybox"}

    def with_main(**change) -> dict:
        return pod("bad", containers=[{**main, **change}])

    def mounted(mount: dict, volume: dict) -> dict:
        return pod("bad", containers=[{**main, "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}],
                   volumes=[{"name": "v", **volume}])

    empty = {"emptyDir": {}}
    rows = [
        mounted({}, {"hostPath": {"path": "/a/../b"}}),
        mounted({"subPath": "../up"}, empty),
        mounted({"subPath": "/absolute"}, empty),
        mounted({"name": "unknown"}, empty),
        pod("bad", containers=[main, main]),
        with_main(name="Not_Good"), with_main(env=[{"name": "", "value": "x"}]),
        with_main(env=[{"name": "A=B", "value": "x"}]), with_main(image=""),
        with_main(securityContext={"runAsUser": -1}),
        pod("bad", activeDeadlineSeconds=0), pod("bad", activeDeadlineSeconds=1 << 31),
        mounted({}, {"configMap": {"name": "c", "items": [{"key": "k", "path": "../up"}]}}),
    ]
    for body in rows:
        expect(f"BI-104 {json.dumps(body['spec'])}", wire.ask("POST", at["pods"], body), 422)


@bounded
def configuration_is_checked(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    for key in ("..", "..a", "a/b"):
        body = {**config_map("bad"), "data": {key: "x"}}
        expect(f"BI-105 {key}", wire.ask("POST", at["configmaps"], body), 422)
    large = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bad"},
             "stringData": {"a": "x" * ((1 << 20) + 1)}}
    expect("BI-105", wire.ask("POST", at["secrets"], large), 422)
