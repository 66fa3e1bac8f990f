"""Requests that make no sense, and their answers, row by row of the table of bad inputs (BI-…), over HTTPS.

Code and reason are contract, and so is what an answer may cost. What is wrong with connections (BI-13 to BI-15, BI-85) is in
`bad_connections`, with objects (BI-40 to BI-68, BI-100 to BI-105) in `bad_objects`. Elsewhere: rows about processes on the
node (BI-89, BI-106 to BI-108) in the tests of the `node` crate and in `pods` and `bad_pods`; history that is gone (BI-84)
and slow headers (BI-15) in those of `apiserver`; what controllers make of figures at their limits (BI-51, BI-52) in
`jobs_at_work`; the installation (BI-120 to BI-125) in those of `cli` and `store`.
"""

import json
import time

from answers import YAML, bounded, expect, merged, paths, spec
from harness import Kit, config_map, contains, job, pod, same
from wire import Wire

# --- 6.1 transport and encoding


@bounded
def bodies_are_bounded_and_well_formed(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    deep = 20_000
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9))
    rows = [
        ("BI-1", config_map("big", text="x" * (3 << 20)), {}, 413),
        ("BI-2", b"", {}, 400),
        ("BI-2", b"{", {}, 400),
        ("BI-2", b"[]", {}, 400),
        ("BI-3", b'{"a":' * deep + b"1" + b"}" * deep, {}, 400),
        ("BI-3", b"[" * deep + b"]" * deep, {}, 400),
        ("BI-3", b"a: " + b"[" * deep + b"]" * deep, YAML, 400),
        ("BI-3", b"- " * deep + b"a", YAML, 400),
        ("BI-3", b"{a: " * deep + b"}" * deep, YAML, 400),
        ("BI-4", bomb, YAML, 400),
        ("BI-4", "{a: [1, {b: [", YAML, 400),
        ("BI-7", {**job("bad"), "kind": "Pod"}, {}, 400),
        ("BI-7", {**job("bad"), "apiVersion": "batch/v2"}, {}, 400),
        ("BI-8", json.dumps(job("bad")), {"Content-Type": "text/plain"}, 415),
        ("BI-8", job("bad"), {"Accept": "text/html"}, 406),
    ]
    for row, body, headers, code in rows:
        begin = time.monotonic()
        expect(row, wire.ask("POST", at["jobs"], body, headers), code)
        # Debug builds on a busy machine are given ten times what the table allows.
        if (spent := time.monotonic() - begin) > 1.0:
            raise AssertionError(f"{row}: took {spent:.2f} s")
    kindless = {key: value for key, value in job("kindless").items() if key not in ("kind", "apiVersion")}
    expect("BI-7", wire.ask("POST", at["jobs"], kindless), 201)
    expect("BI-9", wire.ask("PATCH", f"{at['jobs']}/kindless", {"spec": {}}), 415)


@bounded
def unknown_and_duplicate_fields_are_told(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    unknown = spec(paralelism=2)
    reply = expect("BI-5", wire.ask("POST", at["jobs"], unknown), 201)
    same(reply.headers["Warning"], r'299 - "unknown field \"spec.paralelism\""')
    expect("BI-5", wire.ask("POST", f"{at['jobs']}?fieldValidation=Strict", unknown), 400)
    twice = '{"metadata":{"name":"a","name":"b"},"spec":%s}' % json.dumps(job("x")["spec"])
    expect("BI-6", wire.ask("POST", f"{at['jobs']}?fieldValidation=Strict", twice), 400)


@bounded
def integers_are_integers(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    for literal in ("1.5", "1.0", "1e2", '"3"', "true", str(1 << 31), str(10 ** 20)):
        body = json.dumps(spec(parallelism="@")).replace('"@"', literal)
        expect(f"BI-10 {literal}", wire.ask("POST", at["jobs"], body), 400)
    absent = json.dumps(spec(parallelism="@")).replace('"@"', "null")
    same(expect("BI-11", wire.ask("POST", at["jobs"], absent), 201).json["spec"]["parallelism"], 1)
    body = json.dumps(job("@@")).encode().replace(b"@@", b"a\xff\xfe")
    expect("BI-12", wire.ask("POST", at["jobs"], body), 422)


@bounded
def methods_that_make_no_sense_are_refused(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    for method, path in (("BREW", at["jobs"]), ("PUT", at["jobs"]), ("PATCH", at["jobs"]),
                         ("POST", f"{at['jobs']}/a"), ("TRACE", at["jobs"])):
        expect(f"BI-16 {method}", wire.ask(method, path, job("a") if method in ("PUT", "POST") else None), 405)


# --- 6.2 identity, names, metadata


@bounded
def only_the_bearer_of_a_token_is_known(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    expect("BI-20", wire.ask("GET", at["jobs"], token=None), 403)
    expect("BI-20", wire.ask("GET", at["jobs"], token="0" * 64), 401)
    token = kit.cluster.token
    for headers in ({"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}, {"Impersonate-User": "admin"}):
        reply = wire.ask("GET", at["jobs"], headers=headers, token=None)
        if reply.code not in (401, 403):
            raise AssertionError(f"BI-21: {headers}: {reply!r}")
    expect("BI-21", wire.ask("GET", f"{at['jobs']}?access_token={token}&token={token}", token=None), 403)
    basic = wire.ask("GET", at["jobs"], headers={"Authorization": "Basic YWRtaW46YWRtaW4="}, token=None)
    if basic.code not in (401, 403):
        raise AssertionError(f"BI-21: basic: {basic!r}")
    # Somebody who is known, and has no rights.
    account = f"/api/v1/namespaces/{kit.namespace}/serviceaccounts"
    expect("", wire.ask("POST", account, {"metadata": {"name": "robot"}}), 201)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    robot = expect("", wire.ask("POST", f"{account}/robot/token", asked), 201).json["status"]["token"]
    expect("BI-20", wire.ask("GET", at["jobs"], token=robot), 403)
    expect("BI-20", wire.ask("POST", at["jobs"], job("a"), token=robot), 403)
    for headers in ({"Impersonate-User": "admin"}, {"Impersonate-Group": "system:masters", "Impersonate-User": "a"}):
        expect("BI-21", wire.ask("GET", at["jobs"], headers=headers, token=robot), 403)
    expect("BI-21", wire.ask("GET", at["jobs"], headers={"X-Remote-Group": "system:masters"}, token=robot), 403)
    for path in ("/version", "/healthz", "/livez", "/readyz"):
        same(wire.ask("GET", path, token=None).code, 200)
    for path in ("/metrics", "/apis", "/api", "/openapi/v2", "/openapi/v3"):
        expect("BI-22", wire.ask("GET", path, token=None), 403)


@bounded
def other_host_names_are_refused(kit: Kit):
    wire = Wire(kit)
    for host in ("evil.example", "evil.example:6443", "169.254.169.254"):
        reply = wire.ask("GET", "/version", headers={"Host": host})
        if reply.code != 403:
            raise AssertionError(f"BI-23 {host}: {reply!r}")
    for host in (f"localhost:{wire.port}", f"127.0.0.1:{wire.port}", "kubernetes.default.svc", f"[::1]:{wire.port}"):
        same(wire.ask("GET", "/version", headers={"Host": host}).code, 200)


@bounded
def names_follow_the_rules(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    for name in ("Up", "a_b", "a/b", ".", "..", "-a", "a-", "a..b", "é", "a b", "a%2fb", "a" * 254):
        expect(f"BI-24 {name}", wire.ask("POST", at["jobs"], job(name)), 422)
    expect("BI-25", wire.ask("POST", at["jobs"], job("a" * 64)), 422)
    dotted = expect("BI-25", wire.ask("POST", at["jobs"], job("a.b")), 201)
    contains(dotted.headers["Warning"], "metadata.name")
    nameless = {**job("x"), "metadata": {}}
    expect("BI-26", wire.ask("POST", at["jobs"], nameless), 422)
    for prefix in ("Bad_", "-a", "a" * 300):
        expect("BI-26", wire.ask("POST", at["jobs"], {**nameless, "metadata": {"generateName": prefix}}), 422)


@bounded
def metadata_follows_the_rules(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    elsewhere = merged(job("a"), {"metadata": {"namespace": "elsewhere"}})
    expect("BI-27", wire.ask("POST", at["jobs"], elsewhere), 400)
    expect("BI-27", wire.ask("POST", "/apis/batch/v1/namespaces/nowhere-at-all/jobs", job("a")), 404)

    def owner(**more) -> dict:
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1", **more}

    rows = [
        ("BI-28", {"labels": {"a": "b" * 64}}),
        ("BI-28", {"labels": {"not a key": "b"}}),
        ("BI-28", {"annotations": {"a": "x" * (256 << 10), "b": "y"}}),
        ("BI-29", {"ownerReferences": [owner(controller=True), owner(controller=True, uid="u-2", name="p")]}),
        ("BI-29", {"ownerReferences": [owner(uid="")]}),
        ("BI-29", {"ownerReferences": [owner(kind="Event")]}),
        ("BI-29", {"finalizers": ["unqualified"]}),
    ]
    for row, metadata in rows:
        expect(f"{row} {list(metadata)}", wire.ask("POST", at["jobs"], merged(job("a"), {"metadata": metadata})), 422)
    for query in (f"fieldManager={'m' * 129}", "dryRun=Maybe", "fieldValidation=Foo"):
        expect(f"BI-30 {query}", wire.ask("POST", f"{at['jobs']}?{query}", job("a")), 422)


@bounded
def tricks_with_paths_lead_nowhere(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    kit.create(config_map("settings"))
    for path in (f"{at['configmaps']}%2fsettings", f"{at['configmaps']}/..%2fsettings",
                 f"{at['configmaps']}//settings", f"{at['configmaps']}/../configmaps/settings",
                 f"{at['configmaps']}/%2e%2e/configmaps/settings"):
        same(("BI-31", path, wire.ask("GET", path).code), ("BI-31", path, 404))


# --- 6.5 lists, watches, logs


@bounded
def list_and_watch_options_are_checked(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    rows = [
        ("BI-80", "limit=abc", 400), ("BI-80", f"limit={10 ** 20}", 400), ("BI-80", "continue=garbage", 400),
        ("BI-81", "resourceVersion=abc", 400), ("BI-81", "resourceVersion=-1", 400),
        ("BI-81", "resourceVersionMatch=Exact", 422), ("BI-81", "resourceVersion=1&resourceVersionMatch=Odd", 422),
        ("BI-82", "fieldSelector=spec.none=1", 400), ("BI-82", "labelSelector=a%20in%20b", 400),
        ("BI-82", "fieldSelector=%3D%3D%3D", 400),
        ("BI-83", "sendInitialEvents=true", 422), ("BI-83", "watch=1&sendInitialEvents=true", 422),
    ]
    for row, query, code in rows:
        expect(f"{row} {query}", wire.ask("GET", f"{at['jobs']}?{query}"), code)


@bounded
def log_options_are_checked(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    kit.create(pod("web"))
    expect("BI-86", wire.ask("GET", f"{at['pods']}/nobody/log"), 404)
    expect("BI-86", wire.ask("GET", f"{at['pods']}/web/log?container=nobody"), 400)
    both = "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z"
    for query in ("tailLines=-1", "sinceSeconds=0", "limitBytes=0", both):
        expect(f"BI-87 {query}", wire.ask("GET", f"{at['pods']}/web/log?{query}"), 422)
    for query in ("sinceTime=x", f"tailLines={10 ** 20}"):
        expect(f"BI-88 {query}", wire.ask("GET", f"{at['pods']}/web/log?{query}"), 400)
