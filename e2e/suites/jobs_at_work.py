"""Jobs whose figures are at their limits, at work (BI-51, BI-52). Needs a server that runs Jobs."""

import time

from harness import Kit, case, job, same
from machine import until

LARGEST = (1 << 31) - 1


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
