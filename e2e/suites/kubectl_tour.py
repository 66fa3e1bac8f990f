"""The rest of kubectl: explanations, watches without a list, tokens, rights, changes of manager."""

import json

from harness import Kit, case, config_map, contains, job, same


@case
def explain_goes_all_the_way_down(kit: Kit):
    kit.needs_kubectl(1, 27, "older ones explain in other words")
    contains(kit.kubectl("explain", "job.spec.podReplacementPolicy", "--recursive"), "KIND:", "Job", "batch",
             "FIELD: podReplacementPolicy <string>", "ENUM:", "Failed", "TerminatingOrFailed")
    whole = kit.kubectl("explain", "job", "--recursive")
    contains(whole, "podFailurePolicy", "onExitCodes", "succeededIndexes", "ttlSecondsAfterFinished", "managedFields")
    contains(kit.kubectl("explain", "cronjob.spec", "--output=plaintext-openapiv2"), "jobTemplate", "timeZone")


@case
def watch_only_shows_changes_and_nothing_else(kit: Kit):
    kit.create(job("before"))
    watch = kit.watch("get", "jobs", "--watch-only", "--output=name")
    # What is created before the watch is open is not shown, so it is created until it is.
    for number in range(100):
        kit.create(job(f"after-{number}"))
        try:
            watch.wait_for("^job.batch/after-", patience=1.0)
            break
        except AssertionError:
            continue
    same([line for line in watch.seen if "before" in line], [])
    same(any("after-" in line for line in watch.seen), True)


@case
def lists_in_chunks_are_complete_while_things_change(kit: Kit):
    kit.create(*[config_map(f"m-{number:02}") for number in range(30)])
    listed = kit.kubectl("get", "configmaps", "--chunk-size=4", "--output=name").split()
    same([name for name in listed if "/m-" in name], [f"configmap/m-{number:02}" for number in range(30)])


@case
def client_side_apply_turns_into_server_side_apply(kit: Kit):
    kit.needs_kubectl(1, 26, "older ones do not take over what they applied before")
    kit.kubectl("apply", "--filename=-", stdin=config_map("settings", colour="blue", size="7"))
    same(kit.kubectl("apply", "--server-side", "--filename=-", stdin=config_map("settings", colour="blue")),
         "configmap/settings serverside-applied\n")
    # What was applied from the client and is not applied any more goes.
    same(kit.get("cm/settings")["data"], {"colour": "blue"})
    shown = kit.kubectl("get", "cm", "settings", "--output=json", "--show-managed-fields")
    owners = {(entry["manager"], entry["operation"]) for entry in json.loads(shown)["metadata"]["managedFields"]}
    same(sorted(owners), [("kubectl", "Apply"), ("kubectl-last-applied", "Apply")])


@case
def managers_share_an_object_field_by_field(kit: Kit):
    kit.needs_kubectl(1, 22, "server-side apply is newer")

    def apply(manager: str, *flags: str, **data: str):
        return kit.try_kubectl("apply", "--server-side", f"--field-manager={manager}", *flags, "--filename=-",
                               stdin=config_map("settings", **data))

    same([apply("a", colour="blue").code, apply("b", size="7").code], [0, 0])
    refused = apply("b", size="7", colour="red")
    contains(refused.err, 'Apply failed with 1 conflict: conflict with "a": .data.colour')
    same(apply("b", "--force-conflicts", size="7", colour="red").code, 0)
    # Both want the same: nobody's claim is lost, and nothing goes while one of them still applies it.
    same(apply("a", colour="red").code, 0)
    same(apply("b", size="7").code, 0)
    same(kit.get("cm/settings")["data"], {"colour": "red", "size": "7"})
    same(apply("a").code, 0)
    same(kit.get("cm/settings")["data"], {"size": "7"})


@case
def edit_shows_the_object_and_refuses_nonsense(kit: Kit):
    kit.create(job("pi", parallelism=1))

    def edit(editor: str):
        return kit.cluster.call("--namespace", kit.namespace, "edit", "job", "pi", environment={"KUBE_EDITOR": editor})

    same(edit("true").err, "Edit cancelled, no changes made.\n")
    refused = edit("sed -i s/parallelism:.1/parallelism:\\ -4/")
    same(refused.code, 1)
    contains(refused.err, 'jobs.batch "pi" is invalid', "no valid changes were saved")
    same(kit.get("job/pi")["spec"]["parallelism"], 1)


@case
def tokens_of_service_accounts_are_known(kit: Kit):
    kit.needs_kubectl(1, 24, "create token is newer")
    kit.kubectl("create", "serviceaccount", "robot")
    token = kit.kubectl("create", "token", "robot", "--duration=10m").strip()
    same(token.count("."), 2)
    user = f"system:serviceaccount:{kit.namespace}:robot"
    kit.needs_kubectl(1, 28, "whoami is newer")
    whoami = kit.cluster.call("auth", "whoami", "--output=json", "--token", token, environment=anonymous(kit))
    same(json.loads(whoami.out)["status"]["userInfo"]["username"], user)


@case
def roles_decide_what_a_service_account_may_do(kit: Kit):
    kit.needs_kubectl(1, 24, "create token is newer")
    kit.kubectl("create", "serviceaccount", "robot")
    kit.kubectl("create", "role", "reader", "--verb=get,list,watch", "--resource=jobs.batch")
    kit.kubectl("create", "rolebinding", "robot-reads", "--role=reader", f"--serviceaccount={kit.namespace}:robot")
    user = f"system:serviceaccount:{kit.namespace}:robot"
    for verb, thing, answer in (("list", "jobs", "yes"), ("create", "jobs", "no"), ("list", "secrets", "no")):
        asked = kit.try_kubectl("auth", "can-i", verb, thing, f"--as={user}")
        same((verb, thing, asked.out.strip().splitlines()[-1]), (verb, thing, answer))
    token = kit.kubectl("create", "token", "robot").strip()

    def as_robot(*args: str):
        return kit.cluster.call("--namespace", kit.namespace, *args, "--token", token, environment=anonymous(kit))

    same(as_robot("get", "jobs").code, 0)
    contains(as_robot("get", "secrets").err, f'User "{user}" cannot list resource "secrets"')
    contains(as_robot("create", "job", "x", "--image=busybox").err, 'cannot create resource "jobs"')


def anonymous(kit: Kit) -> dict:
    """An environment whose kubeconfig has no user, so that `--token` is the only credential."""
    config = json.loads(kit.cluster.call("config", "view", "--raw", "--output=json").out)
    config["users"] = [{"name": user["name"], "user": {}} for user in config["users"]]
    path = kit.cluster.scratch / f"anonymous-{kit.namespace}"
    path.write_text(json.dumps(config))
    return {"KUBECONFIG": str(path)}
