"""Wrong input: kubectl shows the server's words, and they are Kubernetes'."""

import json

from harness import Kit, case, config_map, contains, job, same


def create_refused(kit: Kit, thing: dict) -> str:
    return kit.refused("create", "--filename=-", stdin=thing)


@case
def what_is_missing_is_named(kit: Kit):
    same(kit.refused("get", "job", "nope"), 'Error from server (NotFound): jobs.batch "nope" not found\n')
    same(kit.refused("get", "pod", "nope"), 'Error from server (NotFound): pods "nope" not found\n')
    same(kit.refused("get", "widgets"), 'error: the server doesn\'t have a resource type "widgets"\n')


@case
def what_exists_is_not_created_again(kit: Kit):
    kit.create(job("pi"))
    contains(create_refused(kit, job("pi")), '(AlreadyExists)', 'jobs.batch "pi" already exists')


@case
def an_invalid_job_is_refused_field_by_field(kit: Kit):
    wrong = job("pi", parallelism=-1)
    wrong["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    refusal = create_refused(kit, wrong)
    contains(refusal, 'The Job "pi" is invalid:',
             "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
             'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"')


@case
def a_wrong_name_is_refused(kit: Kit):
    contains(create_refused(kit, config_map("No_Good")), "metadata.name: Invalid value", "RFC 1123 subdomain")


@case
def a_wrong_type_is_refused(kit: Kit):
    kit.needs_kubectl(1, 27, "older ones check types themselves, in other words")
    contains(create_refused(kit, job("pi", parallelism="two")), "(BadRequest)", "cannot unmarshal string",
             "of type int32")


@case
def an_unknown_field_is_refused(kit: Kit):
    kit.needs_kubectl(1, 27, "older ones check fields themselves, in other words")
    refusal = create_refused(kit, job("pi", paralelism=2))
    contains(refusal, 'strict decoding error: unknown field "spec.paralelism"')


@case
def what_is_immutable_stays(kit: Kit):
    kit.create(job("pi"))
    refusal = kit.refused("patch", "job", "pi", "--patch", json.dumps({"spec": {"completions": 5}}))
    contains(refusal, 'The Job "pi" is invalid: spec.completions: Invalid value: 5: field is immutable')


@case
def a_patch_that_does_not_fit_is_refused(kit: Kit):
    kit.needs_kubectl(1, 24, "older ones do not show the server's words")
    kit.create(config_map("settings", colour="blue"))
    refusal = kit.refused("patch", "cm", "settings", "--type=json", "--patch",
                          json.dumps([{"op": "test", "path": "/data/colour", "value": "red"}]))
    contains(refusal, "the server rejected our request due to an error in our request")


@case
def an_unknown_namespace_is_named(kit: Kit):
    answer = kit.cluster.call("--namespace", "nowhere", "create", "configmap", "settings")
    contains(answer.err, 'namespaces "nowhere" not found')


@case
def without_credentials_nothing_is_served(kit: Kit):
    answer = kit.cluster.call("--token", "0" * 64, "get", "jobs")
    same(answer.code, 1)
    contains(answer.err, "You must be logged in to the server")
