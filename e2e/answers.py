"""What the table of bad inputs (BI-…) expects of an answer, and the objects that its rows are made of."""

import copy
import functools

from footprint import Footprint
from harness import Kit, case, job
from wire import Reply

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


# The table allows 100 ms. Debug builds on a busy machine may take longer; what takes this long hangs.
HANGS_SECS = 10.0


def bounded(function):
    """A case that is told how long the slowest of its answers took and how much memory all of them together, and fails if
    one hangs or if they take more than the table allows."""

    @functools.wraps(function)
    def measured(kit: Kit):
        footprint = Footprint()
        function(kit)
        kit.note(f"slowest answer {1000 * kit.slowest_secs:.0f} ms")
        if kit.slowest_secs > HANGS_SECS:
            raise AssertionError(f"an answer took {kit.slowest_secs:.1f} s")
        kit.note(footprint.judge())

    return case(measured)
