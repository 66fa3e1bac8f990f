"""Bad inputs and their answers, row by row of the table of bad inputs (BI-…), over HTTPS.

Code and reason are contract. Elsewhere: rows about processes on the node (BI-89, BI-106 to BI-108) in the tests of the
`node` crate and in `pods`; history that is gone (BI-84) and slow headers (BI-15) in those of `apiserver`; a known user
without rights (BI-20) in `kubectl_tour`; what controllers make of figures at their limits (BI-51, BI-52) in
`jobs_at_work`; the installation (BI-120 to BI-125) in those of `cli` and `store`.
"""

import contextlib
import copy
import json
import ssl
import struct
import time

from harness import PATIENCE_SECS, Kit, case, completed_job_status, config_map, contains, job, pod, same
from wire import Reply, Wire, read_all

MERGE = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
YAML = {"Content-Type": "application/yaml"}
REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed",
           406: "NotAcceptable", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType", 422: "Invalid"}


def paths(kit: Kit) -> dict[str, str]:
    """Where the kinds of a case's namespace are."""
    core, batch = f"/api/v1/namespaces/{kit.namespace}", f"/apis/batch/v1/namespaces/{kit.namespace}"
    return {"jobs": f"{batch}/jobs", "cronjobs": f"{batch}/cronjobs", "pods": f"{core}/pods",
            "configmaps": f"{core}/configmaps", "secrets": f"{core}/secrets"}


def expect(row: str, reply: Reply, code: int, reason: str | None = None) -> Reply:
    """The answer of a row; the reason is the code's unless given."""
    wanted = REASONS.get(code) if reason is None else reason
    if reply.code != code or (wanted and reply.reason != wanted):
        raise AssertionError(f"{row}: expected {code} {wanted or ''}, got {reply!r}")
    return reply


def refuses(row: str, reply: Reply, field: str):
    """A 422 that is about this field and nothing else."""
    causes = expect(row, reply, 422).json.get("details", {}).get("causes", [])
    fields = sorted({cause.get("field") for cause in causes})
    if fields != [field]:
        raise AssertionError(f"{row}: expected {field} to be refused, and not {fields}")


def merged(value: dict, change: dict) -> dict:
    """`value` with a merge patch applied."""
    result = copy.deepcopy(value)
    for key, new in change.items():
        if new is None:
            result.pop(key, None)
        elif isinstance(new, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], new)
        else:
            result[key] = new
    return result


def spec(**change) -> dict:
    """A Job with a changed spec."""
    return merged(job("bad"), {"spec": change})


def in_pod(**change) -> dict:
    """A Job whose pods have a changed spec."""
    return spec(template={"spec": change})


def indexed(**change) -> dict:
    """An Indexed Job of three completions, changed."""
    return spec(**{"completionMode": "Indexed", "completions": 3, "parallelism": 1, **change})


# --- 6.1 transport and encoding


@case
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


@case
def unknown_and_duplicate_fields_are_told(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    unknown = spec(paralelism=2)
    reply = expect("BI-5", wire.ask("POST", at["jobs"], unknown), 201)
    same(reply.headers["Warning"], r'299 - "unknown field \"spec.paralelism\""')
    expect("BI-5", wire.ask("POST", f"{at['jobs']}?fieldValidation=Strict", unknown), 400)
    twice = '{"metadata":{"name":"a","name":"b"},"spec":%s}' % json.dumps(job("x")["spec"])
    expect("BI-6", wire.ask("POST", f"{at['jobs']}?fieldValidation=Strict", twice), 400)


@case
def integers_are_integers(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    for literal in ("1.5", "1.0", "1e2", '"3"', "true", str(1 << 31), str(10 ** 20)):
        body = json.dumps(spec(parallelism="@")).replace('"@"', literal)
        expect(f"BI-10 {literal}", wire.ask("POST", at["jobs"], body), 400)
    absent = json.dumps(spec(parallelism="@")).replace('"@"', "null")
    same(expect("BI-11", wire.ask("POST", at["jobs"], absent), 201).json["spec"]["parallelism"], 1)
    body = json.dumps(job("@@")).encode().replace(b"@@", b"a\xff\xfe")
    expect("BI-12", wire.ask("POST", at["jobs"], body), 422)


@case
def the_door_speaks_http_over_tls_only(kit: Kit):
    wire = Wire(kit)
    with wire.plain_socket() as plain:
        # BI-13
        plain.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        contains(read_all(plain).decode(), " 400 ", "Client sent an HTTP request to an HTTPS server.")
    for row, line, headers, code in (
            ("BI-14", b"GET /version HTTP/1.1", b"", b" 400 "),
            ("BI-14", b"GET /version HTTP/9.9", b"Host: localhost\r\n", b" 505 ")):
        with wire.socket("http/1.1") as connection:
            connection.sendall(line + b"\r\n" + headers + b"Connection: close\r\n\r\n")
            answer = read_all(connection)
            if code not in answer.split(b"\r\n")[0]:
                raise AssertionError(f"{row}: expected{code.decode()}, got {answer[:300]!r}")


# Frame types and flags of HTTP/2 (RFC 9113, section 6).
HEADERS, RST_STREAM, SETTINGS, CONTINUATION = 1, 3, 4, 9
END_STREAM, END_HEADERS = 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def integer(value: int, prefix: int, flags: int = 0) -> bytes:
    """A number as HPACK writes it after so many bits of prefix (RFC 7541, section 5.1)."""
    limit = (1 << prefix) - 1
    if value < limit:
        return bytes([flags | value])
    rest, digits = value - limit, [flags | limit]
    while rest >= 128:
        digits.append(rest % 128 + 128)
        rest //= 128
    return bytes([*digits, rest])


def request_headers(authority: bytes, path: bytes = b"/version", token: str = "") -> bytes:
    """`GET https://authority/path`, by indexes of the static table, where all of these names are."""
    def literal(index: int, value: bytes) -> bytes:
        return integer(index, 4) + integer(len(value), 7) + value
    bearer = literal(23, b"Bearer " + token.encode()) if token else b""
    return bytes([0x82, 0x87]) + literal(4, path) + literal(1, authority) + bearer


def is_cut_off(wire: Wire, flood) -> bool:
    """Whether the server ends a connection on which frames come without end."""
    with wire.socket("h2") as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
        try:
            for part in flood:
                connection.settimeout(PATIENCE_SECS)
                connection.sendall(part)
                # What the server says is read as it comes, so that it never waits for us.
                connection.settimeout(0.0001)
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(65536):
                        return True
            connection.settimeout(5)
            read_all(connection)
        except TimeoutError:
            return False
        except OSError:
            pass
        return True


@case
def floods_of_http_2_frames_end_their_own_connection_only(kit: Kit):
    wire = Wire(kit)
    authority = wire.host.encode()

    def resets():
        for number in range(10_000):
            stream = 2 * number + 1
            yield (frame(HEADERS, END_STREAM | END_HEADERS, stream, request_headers(authority))
                   + frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))

    def continuations():
        yield frame(HEADERS, 0, 1, request_headers(authority))
        for number in range(10_000):
            name = b"x%06d" % number
            yield frame(CONTINUATION, 0, 1, bytes([0, len(name)]) + name + bytes([100]) + b"v" * 100)

    for what, flood in (("streams that are reset", resets()), ("headers without end", continuations())):
        if not is_cut_off(wire, flood):
            raise AssertionError(f"BI-15: {what}: the connection stays open")
        same(wire.ask("GET", "/version").code, 200)


@case
def methods_that_make_no_sense_are_refused(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    for method, path in (("BREW", at["jobs"]), ("PUT", at["jobs"]), ("PATCH", at["jobs"]),
                         ("POST", f"{at['jobs']}/a"), ("TRACE", at["jobs"])):
        expect(f"BI-16 {method}", wire.ask(method, path, job("a") if method in ("PUT", "POST") else None), 405)


# --- 6.2 identity, names, metadata


@case
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
    for path in ("/version", "/healthz", "/livez", "/readyz"):
        same(wire.ask("GET", path, token=None).code, 200)
    for path in ("/metrics", "/apis", "/api", "/openapi/v2", "/openapi/v3"):
        expect("BI-22", wire.ask("GET", path, token=None), 403)


@case
def other_host_names_are_refused(kit: Kit):
    wire = Wire(kit)
    for host in ("evil.example", "evil.example:6443", "169.254.169.254"):
        reply = wire.ask("GET", "/version", headers={"Host": host})
        if reply.code != 403:
            raise AssertionError(f"BI-23 {host}: {reply!r}")
    for host in (f"localhost:{wire.port}", f"127.0.0.1:{wire.port}", "kubernetes.default.svc", f"[::1]:{wire.port}"):
        same(wire.ask("GET", "/version", headers={"Host": host}).code, 200)


@case
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


@case
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


@case
def tricks_with_paths_lead_nowhere(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    kit.create(config_map("settings"))
    for path in (f"{at['configmaps']}%2fsettings", f"{at['configmaps']}/..%2fsettings",
                 f"{at['configmaps']}//settings", f"{at['configmaps']}/../configmaps/settings",
                 f"{at['configmaps']}/%2e%2e/configmaps/settings"):
        same(("BI-31", path, wire.ask("GET", path).code), ("BI-31", path, 404))


# --- 6.3 Job spec


@case
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


@case
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


@case
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


@case
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


@case
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


@case
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


@case
def job_statuses_are_checked(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    begin, end = "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"
    expect("", wire.ask("POST", at["jobs"], spec(completions=3)), 201)
    lists = "status.uncountedTerminatedPods"
    rows = [
        ({"active": -1}, "status.active"), ({"active": 1, "ready": 2}, "status.ready"),
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


# --- 6.5 lists, watches, logs


@case
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


@case
def a_watch_that_is_never_read_harms_nobody(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    silent = []
    for _ in range(50):
        connection = wire.socket("http/1.1")
        connection.sendall(f"GET {at['configmaps']}?watch=1 HTTP/1.1\r\nHost: localhost\r\n"
                           f"Authorization: Bearer {kit.cluster.token}\r\n\r\n".encode())
        silent.append(connection)
    # More than the buffers of a connection and of the server together hold.
    for number in range(40):
        expect("BI-85", wire.ask("POST", at["configmaps"], config_map(f"m-{number}", text="x" * 500_000)), 201)
    begin = time.monotonic()
    same(wire.ask("GET", f"{at['configmaps']}/m-0").code, 200)
    if (spent := time.monotonic() - begin) > 1.0:
        raise AssertionError(f"BI-85: others wait {spent:.1f} s")
    for connection in silent:
        connection.close()


def frames(connection: ssl.SSLSocket):
    """The frames that the server sends: kind, flags and payload."""
    buffer = b""
    while True:
        while len(buffer) >= 9 and len(buffer) >= 9 + (length := int.from_bytes(buffer[:3], "big")):
            yield buffer[3], buffer[4], buffer[9:9 + length]
            buffer = buffer[9 + length:]
        if not (more := connection.recv(1 << 16)):
            return
        buffer += more


@case
def ten_thousand_watches_of_one_client_are_bounded(kit: Kit):
    """BI-85: what is over the limit of a connection is refused, and others are served."""
    wire, at = Wire(kit), paths(kit)
    headers = request_headers(wire.host.encode(), f"{at['configmaps']}?watch=1".encode(), kit.cluster.token)
    connections, allowed, asked = 10, 1000, 1100
    with contextlib.ExitStack() as open_ones:
        for _ in range(connections):
            connection = open_ones.enter_context(wire.socket("h2"))
            connection.settimeout(4 * PATIENCE_SECS)
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
            # The server's limit comes first; a client that does not care for it goes on all the same.
            for number in range(asked):
                connection.sendall(frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, headers))
            answered = refused = 0
            for kind, flags, payload in frames(connection):
                # `:status: 200` of the static table, and more to come.
                answered += kind == HEADERS and payload[0] == 0x88 and not flags & END_STREAM
                refused += kind == RST_STREAM
                if answered + refused == asked:
                    break
            if (answered, refused) != (allowed, asked - allowed):
                raise AssertionError(f"BI-85: of {asked} watches {answered} are answered and {refused} refused")
        begin = time.monotonic()
        expect("BI-85", wire.ask("POST", at["configmaps"], config_map("seen", text="x")), 201)
        same(wire.ask("GET", f"{at['configmaps']}/seen").code, 200)
        if (spent := time.monotonic() - begin) > 5.0:
            raise AssertionError(f"BI-85: others wait {spent:.1f} s while {connections * allowed} watches are open")


@case
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


# --- 6.6 CronJobs, pods and configuration


def cron_job(name: str = "often", **change) -> dict:
    thing = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
             "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job("x")["spec"]}}}
    return merged(thing, {"spec": change})


@case
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


@case
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


@case
def configuration_is_checked(kit: Kit):
    wire, at = Wire(kit), paths(kit)
    for key in ("..", "..a", "a/b"):
        body = {**config_map("bad"), "data": {key: "x"}}
        expect(f"BI-105 {key}", wire.ask("POST", at["configmaps"], body), 422)
    large = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bad"},
             "stringData": {"a": "x" * ((1 << 20) + 1)}}
    expect("BI-105", wire.ask("POST", at["secrets"], large), 422)
