"""What a package manager does with a rendered chart: one release of several kinds, upgraded, hooked and removed."""

import json

from harness import Kit, case, contains, same

LABELS = """
    app.kubernetes.io/name: report
    app.kubernetes.io/instance: {release}
    app.kubernetes.io/version: "{version}"
    app.kubernetes.io/managed-by: Helm
    helm.sh/chart: report-{version}
"""

CHART = """
---
# Source: report/templates/serviceaccount.yaml
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {release}-report
  labels:{labels}
automountServiceAccountToken: false
---
# Source: report/templates/secret.yaml
apiVersion: v1
kind: Secret
metadata:
  name: {release}-report
  labels:{labels}
type: Opaque
stringData:
  password: "swordfish"
---
# Source: report/templates/configmap.yaml
apiVersion: v1
kind: ConfigMap
metadata:
  name: {release}-report
  labels:{labels}
data:
  report.sh: |
    #!/bin/sh
    # {{{{ not a template any more }}}}
    echo "report {version}"
  settings.json: |
    {{"colour": "{colour}"}}
---
# Source: report/templates/cronjob.yaml
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {release}-report
  labels:{labels}
spec:
  schedule: "0 3 * * *"
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      backoffLimit: 2
      template:
        metadata:
          annotations:
            checksum/config: "{version}"
        spec:
          restartPolicy: OnFailure
          serviceAccountName: {release}-report
          containers:
            - name: report
              image: "example.com/report:{version}"
              command: ["/bin/sh", "/etc/report/report.sh"]
              envFrom:
                - secretRef: {{name: {release}-report}}
              volumeMounts:
                - {{name: config, mountPath: /etc/report}}
          volumes:
            - name: config
              configMap: {{name: {release}-report, defaultMode: 0555}}
"""

HOOK = """
---
# Source: report/templates/migrate.yaml
apiVersion: batch/v1
kind: Job
metadata:
  name: {release}-report-migrate-{version}
  labels:{labels}
  annotations:
    "helm.sh/hook": pre-install,pre-upgrade
    "helm.sh/hook-weight": "-5"
    "helm.sh/hook-delete-policy": before-hook-creation,hook-succeeded
spec:
  ttlSecondsAfterFinished: 600
  backoffLimit: 1
  template:
    metadata:
      name: {release}-report-migrate
    spec:
      restartPolicy: Never
      containers:
        - name: migrate
          image: "example.com/report:{version}"
          args: ["migrate", "--to={version}"]
"""


def rendered(template: str, version: str, colour: str = "blue") -> str:
    """A template as `helm template` prints it."""
    labels = LABELS.format(release="nightly", version=version).rstrip("\n")
    return template.format(release="nightly", version=version, colour=colour, labels=labels)


SELECTOR = "--selector=app.kubernetes.io/instance=nightly"
KINDS = "cronjobs,jobs,configmaps,secrets,serviceaccounts"


@case
def a_release_is_installed_upgraded_and_removed(kit: Kit):
    kit.needs_kubectl(1, 21, "older ones know CronJobs of batch/v1beta1 only")
    same(kit.kubectl("create", "--filename=-", stdin=rendered(HOOK, "1.0.0")),
         "job.batch/nightly-report-migrate-1.0.0 created\n")
    hook = kit.get("job/nightly-report-migrate-1.0.0")
    same(hook["metadata"]["annotations"]["helm.sh/hook"], "pre-install,pre-upgrade")
    kit.kubectl("delete", "job", "nightly-report-migrate-1.0.0", "--cascade=background")

    installed = kit.kubectl("apply", "--filename=-", stdin=rendered(CHART, "1.0.0"))
    same(installed.splitlines(), [f"{kind}/nightly-report created"
                                  for kind in ("serviceaccount", "secret", "configmap", "cronjob.batch")])
    same(kit.get("cm/nightly-report")["data"]["report.sh"],
         '#!/bin/sh\n# {{ not a template any more }}\necho "report 1.0.0"\n')
    template = kit.get("cronjob/nightly-report")["spec"]["jobTemplate"]["spec"]["template"]
    same(template["spec"]["volumes"][0]["configMap"], {"name": "nightly-report", "defaultMode": 0o555})

    # Nothing changed; then a new version of everything but the secret's content.
    again = kit.kubectl("apply", "--filename=-", stdin=rendered(CHART, "1.0.0"))
    contains(again, "configmap/nightly-report unchanged", "cronjob.batch/nightly-report unchanged")
    upgraded = kit.kubectl("apply", "--filename=-", stdin=rendered(CHART, "1.1.0", "red"))
    contains(upgraded, "cronjob.batch/nightly-report configured", "configmap/nightly-report configured")
    names = kit.kubectl("get", KINDS, SELECTOR, "--output=name").split()
    same(sorted(names), ["configmap/nightly-report", "cronjob.batch/nightly-report", "secret/nightly-report",
                         "serviceaccount/nightly-report"])
    same(json.loads(kit.get("cm/nightly-report")["data"]["settings.json"]), {"colour": "red"})

    kit.kubectl("delete", KINDS, SELECTOR)
    same(kit.kubectl("get", KINDS, SELECTOR, "--output=name"), "")


@case
def a_release_is_applied_on_the_server(kit: Kit):
    kit.needs_kubectl(1, 22, "server-side apply is newer")
    manager = "--field-manager=helm"
    for version in ("1.0.0", "1.1.0"):
        applied = kit.kubectl("apply", "--server-side", manager, "--filename=-", stdin=rendered(CHART, version))
        same({line.rsplit(" ", 1)[1] for line in applied.splitlines()}, {"serverside-applied"})
    stored = json.loads(kit.kubectl("get", "cronjob/nightly-report", "--output=json", "--show-managed-fields"))
    same([(entry["manager"], entry["operation"]) for entry in stored["metadata"]["managedFields"]],
         [("helm", "Apply")])
    template = stored["spec"]["jobTemplate"]["spec"]["template"]
    same((template["spec"]["containers"][0]["image"], template["metadata"]["annotations"]["checksum/config"]),
         ("example.com/report:1.1.0", "1.1.0"))
    # Somebody's change by hand is in the way of the next upgrade, until it is overruled.
    kit.kubectl("patch", "cronjob", "nightly-report", "--patch", '{"spec":{"schedule":"0 4 * * *"}}')
    refused = kit.refused("apply", "--server-side", manager, "--filename=-", stdin=rendered(CHART, "1.2.0"))
    contains(refused, 'conflict with "kubectl-patch"', ".spec.schedule")
    kit.kubectl("apply", "--server-side", manager, "--force-conflicts", "--filename=-", stdin=rendered(CHART, "1.2.0"))
    same(kit.get("cronjob/nightly-report")["spec"]["schedule"], "0 3 * * *")


@case
def an_upgrade_can_be_previewed(kit: Kit):
    kit.needs_kubectl(1, 22, "older ones compare otherwise")
    kit.kubectl("apply", "--filename=-", stdin=rendered(CHART, "1.0.0"))
    changed = kit.try_kubectl("diff", "--filename=-", stdin=rendered(CHART, "1.1.0"))
    same(changed.code, 1)
    contains(changed.out, "image: example.com/report:1.0.0", "image: example.com/report:1.1.0", 'report 1.1.0')
    same(kit.get("cm/nightly-report")["metadata"]["labels"]["app.kubernetes.io/version"], "1.0.0")
