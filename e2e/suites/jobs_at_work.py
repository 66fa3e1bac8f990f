"""Jobs whose figures are at their limits, at work (BI-51, BI-52). Needs a server that runs Jobs."""

import time

from footprint import EXTRA_MAX, Footprint
from harness import PATIENCE_SECS, Kit, case, job, same
from machine import until
from suites.pods import pods_of

LARGEST = (1 << 31) - 1
# Of memory, with everything that is known of a pod in the store, the controllers and the node.
POD_BYTES = 64 << 10


@case
def a_job_without_completions_is_complete_at_once(kit: Kit):
    kit.create(job("none", completions=0))
    kit.kubectl("wait", "--for=condition=complete", "job/none", "--timeout=60s")
    same(kit.get("pods")["items"], [])


@case
def a_job_of_two_thousand_million_completions_is_like_any_other(kit: Kit):
    kit.create(job("endless", completions=LARGEST, parallelism=2))
    until("some have succeeded", lambda: kit.get("job/endless")["status"].get("succeeded", 0) >= 3)
    # Others do not notice.
    begin = time.monotonic()
    kit.create(job("small"))
    kit.kubectl("wait", "--for=condition=complete", "job/small", "--timeout=60s")
    same(time.monotonic() - begin < 30, True)
    kit.kubectl("delete", "job", "endless")
    until("its pods are gone", lambda: not [
        item for item in kit.get("pods")["items"] if item["metadata"]["labels"]["job-name"] == "endless"])


@case
def a_job_of_two_thousand_million_pods_at_once_is_started_piece_by_piece(kit: Kit):
    """BI-51. Its pods wait for a node that will never come, so that there is no end to them but the controller's own pace:
    500 a sync, as upstream."""
    footprint = Footprint()
    endless = job("wide", completions=LARGEST, parallelism=LARGEST)
    endless["spec"]["template"]["spec"]["nodeSelector"] = {"none": "such"}
    kit.create(endless)
    until("more than one sync has made some", lambda: len(pods_of(kit, "wide")) > 500)
    # Others do not notice.
    begin = time.monotonic()
    kit.create(job("small"))
    kit.kubectl("wait", "--for=condition=complete", "job/small", "--timeout=60s")
    same(time.monotonic() - begin < 30, True)
    made = len(pods_of(kit, "wide"))
    kit.kubectl("delete", "job", "wide", "--wait=false")
    until("its pods are gone", lambda: not pods_of(kit, "wide"), 4 * PATIENCE_SECS)
    kit.note(f"{made} pods")
    # What it takes goes by the pods that there are, not by those that are wanted.
    kit.note(footprint.judge(EXTRA_MAX + made * POD_BYTES))
