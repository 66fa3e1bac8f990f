//! `tally run` on pipes: what it prints, how it ends, and what it says of input that it cannot use.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use common::{Sandbox, example, signal, until, wait};
use expect_test::expect;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::Value;

/// A pod that ends when it is asked to, and says so.
const PATIENT: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: patient}
spec:
  completions: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: none
        command: ["sh", "-c", "trap 'echo asked to end; exit 0' TERM; echo begun; while :; do sleep 0.05; done"]
"#;

#[test]
fn progress_goes_to_stderr_and_logs_to_stdout() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "--indexed", "--", "sh", "-c", "echo index $JOB_COMPLETION_INDEX"]).check(
        0,
        expect![[r#"
            [sh/0] index 0
            --- stderr ---
            job/sh: 0/1 done
            job/sh complete in TIME: 1/1 done
        "#]],
    );
}

#[test]
fn failures_are_told_with_index_exit_code_and_last_lines() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "--logs", "none", &example("failed-indexes.yaml")]).check(
        1,
        expect![[r#"
            --- stderr ---
            job/some-fail: 0/5 done
            job/some-fail failed after TIME: 3/5 done, 2 failed

            job/some-fail: FailedIndexes: Job has failed indexes
              index 1: exit code 4, pod some-fail-1-POD
                | piece 1 is broken
              index 3: exit code 4, pod some-fail-3-POD
                | piece 3 is broken

            error: the Job failed

            hint: `--data DIR` keeps everything, for `tally up --data DIR` to look into
        "#]],
    );
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "--quiet", "--", "no-such-command"]).check(
        1,
        expect![[r#"
            --- stderr ---

            job/no-such-command: BackoffLimitExceeded: Job has reached the specified backoff limit
              exit code 128 (StartError): exec: "no-such-command": executable file not found in $PATH, pod no-such-command-POD

            error: the Job failed

            hint: `--data DIR` keeps everything, for `tally up --data DIR` to look into
        "#]],
    );
}

#[test]
fn a_pod_without_a_command_says_what_to_do() {
    let sandbox = Sandbox::new();
    let manifest = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: image-only}\nspec: {backoffLimit: 0, template: \
                    {spec: {restartPolicy: Never, containers: [{name: a, image: nginx}]}}}\n";
    let ran = sandbox.run_with_input(&["run", "-q", "-"], manifest);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("CommandRequired: Pod was rejected: container \"a\" has no command"), "{}", ran.stderr);
}

/// A pod that was rejected has no log, and the next one is rejected too.
#[test]
fn pods_that_are_rejected_say_why_before_the_end() {
    let sandbox = Sandbox::new();
    let manifest = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: image-only}\nspec: {backoffLimit: 99, template: \
                    {spec: {restartPolicy: Never, containers: [{name: a, image: nginx}]}}}\n";
    let manifest = sandbox.file("m.yaml", manifest);
    let mut command = sandbox.command(&["run", "--pod-failure-backoff", "10ms", manifest.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let why = "CommandRequired: Pod was rejected: container \"a\" has no command";
    assert!(lines.any(|line| line.starts_with("job/image-only: pod image-only-") && line.contains(why)));
    // Others have failed for the same reason by then.
    assert!(lines.any(|line| line.starts_with("job/image-only: 0/1 done, ") && !line.contains(" 1 failed")));
    signal(&child, Signal::TERM);
    let rest: Vec<String> = lines.collect();
    assert_eq!(wait(&mut child).code(), Some(143), "{rest:?}");
    let told: Vec<&String> = rest.iter().filter(|line| line.contains(why)).collect();
    assert!(told.len() == 1 && told[0].starts_with("  CommandRequired: "), "once more in the report: {rest:?}");
}

#[test]
fn jobs_that_start_no_pods_are_told() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["run", "--parallelism", "0", "--", "true"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("note: job/true has `parallelism: 0`: it starts no pods")));
    signal(&child, Signal::TERM);
    drop(lines);
    assert_eq!(wait(&mut child).code(), Some(143));
}

#[test]
fn output_that_cannot_be_written_is_told_as_it_is() {
    let sandbox = Sandbox::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = sandbox.command(&["run", "--", "echo", "hi"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: write to standard output\n  caused by: No space left on device\n"), "{stderr}");
}

/// A limit on the size of files stands for a full disk. Nothing that waits for the store would come to an end.
#[test]
fn a_store_that_takes_no_more_writes_ends_the_run() {
    let sandbox = Sandbox::new();
    // Without this the limit would end it by a signal, which a full disk does not send.
    let shell = ["-c", "trap '' XFSZ; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_tally")];
    let script = "echo begun; while ! [ -e go ]; do sleep 0.02; done";
    let run = ["run", "--data", "kept", "--indexed", "--completions", "9", "--", "sh", "-c", script];
    let mut command = sandbox.program("sh", &[&shell[..], &run].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("[sh/0] begun"));
    let limit = Rlimit { current: Some(1), maximum: None };
    prlimit(Some(Pid::from_child(&child)), Resource::Fsize, limit).unwrap();
    sandbox.file("go", "");
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(wait(&mut child).code(), Some(1), "{stderr}");
    let (_, error) = stderr.split_once("\nerror: ").expect("why it ended");
    assert!(error.contains("the store takes no more writes: ") && error.contains("File too large"), "{stderr}");
    assert!(!stderr.contains("suspended") && !stderr.contains("did not finish"), "no claims: {stderr}");
    nothing_is_left(&sandbox);
}

#[test]
fn only_logs_of_failed_pods_are_shown_on_request() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["run", "-q", "--logs=failed", &example("failed-indexes.yaml")]);
    let mut lines: Vec<&str> = ran.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[some-fail/1] piece 1 is broken", "[some-fail/3] piece 3 is broken"]);
}

/// Retries of a container in its pod have logs of their own.
#[test]
fn logs_of_earlier_attempts_are_shown_too() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&[
        "run",
        "-q",
        "--retries",
        "1",
        "--pod-failure-backoff",
        "10ms",
        "--",
        "sh",
        "-c",
        "if [ -e tried ]; then echo second; else touch tried; echo first; exit 1; fi",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said: Vec<&str> = ran.stdout.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(said, ["first", "second"]);
}

#[test]
fn programs_get_json_a_line() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["run", "-o", "json", &example("failed-indexes.yaml")]);
    let objects: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let logs: Vec<&Value> = objects.iter().filter(|it| it["type"] == "log").collect();
    assert_eq!(logs.len(), 5);
    assert!(logs.iter().any(|it| it["index"] == 1 && it["line"] == "piece 1 is broken"));
    let last = objects.last().unwrap();
    assert_eq!((&last["type"], &last["succeeded"]), (&"summary".into(), &false.into()));
    assert_eq!(last["jobs"][0]["reason"], "FailedIndexes");
    let failure = &last["failures"][0];
    assert_eq!((&failure["failedIndexes"], &failure["failures"][0]["exitCode"]), (&"1,3".into(), &4.into()));
    assert_eq!(failure["failures"][0]["log"][0], "piece 1 is broken");
    assert_eq!(ran.code, Some(1));
}

#[test]
fn programs_that_want_no_progress_get_logs_and_a_summary() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["run", "-q", "-o", "json", "--", "echo", "hi"]);
    let kinds: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["type"].take()).collect();
    assert_eq!(kinds, ["log", "summary"]);
}

#[test]
fn programs_get_a_summary_of_an_interrupted_run() {
    let sandbox = Sandbox::new();
    let manifest = sandbox.file("patient.yaml", PATIENT);
    let mut command = sandbox.command(&["run", "-o", "json", manifest.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("\"line\":\"begun\"")));
    signal(&child, Signal::INT);
    let last: Value = serde_json::from_str(&lines.last().expect("more to come")).expect("JSON");
    assert_eq!((&last["type"], &last["succeeded"]), (&"summary".into(), &false.into()), "{last}");
    assert_eq!((&last["jobs"][0]["job"], &last["jobs"][0]["outcome"]), (&"patient".into(), &Value::Null), "{last}");
    assert_eq!(wait(&mut child).code(), Some(130));
}

#[test]
fn a_command_becomes_a_job_that_can_be_printed() {
    let sandbox = Sandbox::new();
    let arguments = ["run", "--dry-run=client", "-o", "yaml", "--indexed", "--completions", "9", "--retries", "2"];
    sandbox.run(&[&arguments[..], &["--", "./work.sh", "$(x)"]].concat()).check(
        0,
        expect![[r#"
            apiVersion: batch/v1
            kind: Job
            metadata:
              name: work-sh
            spec:
              completions: 9
              parallelism: 1
              completionMode: Indexed
              backoffLimitPerIndex: 2
              template:
                spec:
                  restartPolicy: Never
                  containers:
                  - name: main
                    image: tally.dev/none
                    command:
                    - ./work.sh
                    - $$(x)
                    workingDir: DIR
            --- stderr ---
        "#]],
    );
    // What was printed can be run, also by the server's own reckoning.
    let printed = sandbox.run(&["run", "--dry-run=server", "-o", "json", "--", "true"]);
    let job: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(job["spec"]["podReplacementPolicy"], "TerminatingOrFailed", "defaults are in");
}

#[test]
fn commands_run_where_and_as_they_were_typed() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["run", "-q", "--", "sh", "-c", "pwd; echo $OWN"]);
    let output = command.env("OWN", "mine").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let said: Vec<&str> = text.lines().filter_map(|line| line.split_once("] ")).map(|(_, text)| text).collect();
    assert_eq!(said, [sandbox.path().canonicalize().unwrap().to_str().unwrap(), "mine"]);
}

#[test]
fn input_that_cannot_be_used_is_refused_with_place_and_field() {
    let sandbox = Sandbox::new();
    let job = |spec: &str| format!("apiVersion: batch/v1\nkind: Job\nmetadata: {{name: x}}\nspec: {spec}\n");
    let fine = job("{template: {spec: {restartPolicy: Never, containers: [{name: a, image: b, command: [echo]}]}}}");
    let run = |text: &str| sandbox.run_with_input(&["run", "-"], text);

    run("a: [\n").check_refused(
        2,
        expect![[r#"
            error: standard input, document 1, line 1: did not find expected node content

            hint: correct the YAML and run again; nothing was started
        "#]],
    );
    run(&format!("{fine}---\nkind: Job\n")).check_refused(
        2,
        expect![[r#"
            error: standard input, document 2: apiVersion: Required value

            hint: every object has `apiVersion`, `kind` and `metadata.name`; nothing was started
        "#]],
    );
    run(&job("{completions: -1, template: {spec: {containers: [{name: a, image: b}]}}}")).check_refused(
        2,
        expect![[r#"
            error: standard input, document 1: Job `x` has 2 faults
              spec.completions: Invalid value: -1: must be greater than or equal to 0
              spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"

            hint: correct what is named and run again; nothing was started
        "#]],
    );
    run(&fine.replace("image:", "imag:")).check_refused(
        2,
        expect![[r#"
            error: standard input, document 1: Job `x`: Job in version "v1" cannot be handled as a Job: strict decoding error: unknown field "spec.template.spec.containers[0].imag"

            hint: correct what is named and run again; nothing was started
        "#]],
    );
    run(&format!("{fine}---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\n")).check_refused(
        2,
        expect![[r#"
            error: standard input, document 2: there is no kind `Deployment` in `apps/v1`

            hint: tally runs Jobs, and knows what they use: ConfigMap, Secret, ServiceAccount, Namespace and the like
        "#]],
    );
    run(&fine.replace("spec: {template", "spec: {managedBy: x.dev/y, template")).check_refused(
        2,
        expect![[r#"
            error: standard input, document 1: spec.managedBy: no controller `x.dev/y` runs here

            hint: leave the field out to run this Job with `tally run`
        "#]],
    );
    // A CronJob is run as a Job of its name.
    let cron = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: x}\nspec: {}\n";
    run(&format!("{fine}---\n{cron}")).check_refused(
        2,
        expect![[r#"
            error: standard input, document 2: Job `x` is already in standard input, document 1

            hint: give one of them another name, or say `generateName` in its place; nothing was started
        "#]],
    );
    run("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n").check_refused(
        2,
        expect![[r#"
            error: there is no Job in -

            hint: `tally run` runs objects of kind Job or CronJob in `batch/v1`
        "#]],
    );
}

#[test]
fn places_that_cannot_be_used_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "missing.yaml"]).check_refused(
        2,
        expect![[r#"
            error: read `missing.yaml`
              caused by: No such file or directory

            hint: pass files or directories with manifests, or `-` for standard input
        "#]],
    );
    sandbox.file("file", "");
    sandbox.run(&["run", "--data", "file/data", "--", "true"]).check_refused(
        1,
        expect![[r#"
            error: use the data directory `DIR/file/data`
              caused by: Not a directory

            hint: pass a directory you may write to with `--data DIR`
        "#]],
    );
    let mut command = sandbox.command(&["run", "--", "true"]);
    let output = command.env("TMPDIR", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with("error: make a temporary directory\n") && text.contains("\nhint: set `TMPDIR`"), "{text}");
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run"]).check_refused(
        2,
        expect![[r#"
            error: the following required arguments were not provided:
              <FILE|DIR|->...

            hint: `tally run --help` lists what can be said
        "#]],
    );
    sandbox.run(&["run", "--completions", "3", &example("hello.yaml")]).check_refused(
        2,
        expect![[r#"
            error: `--completions` and the like describe the Job of a command, and there is no command

            hint: change the manifest, or say `tally run -- COMMAND`
        "#]],
    );
    sandbox.run(&["run", "-o", "yaml", "--", "true"]).check_refused(
        2,
        expect![[r#"
            error: `-o yaml` prints objects, and a run has none to print

            hint: add `--dry-run=client`, or say `-o json`
        "#]],
    );
    for wrong in [&["run", "--logs=some", "--", "true"][..], &["run", "x", "--", "true"], &["runn"], &["--nope"]] {
        let ran = sandbox.run(wrong);
        assert_eq!(ran.code, Some(2), "{wrong:?}");
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains("\n\nhint: "), "{}", ran.stderr);
        assert!(ran.stderr.contains("--help` lists what can be said\n"), "{}", ran.stderr);
    }
    let meant = sandbox.run(&["runn"]).stderr;
    assert!(meant.contains("\n\nhint: a similar subcommand exists: `run`; `tally --help` lists"), "{meant}");
}

#[test]
fn what_is_kept_can_be_looked_at_and_not_run_twice() {
    let sandbox = Sandbox::new();
    let arguments = ["run", "-q", "--data", "kept", "--name", "once", "--", "echo", "hi"];
    assert_eq!(sandbox.run(&arguments).code, Some(0));
    sandbox.run(&arguments).check_refused(
        2,
        expect![[r#"
            error: command line, document 1: Job `once`: jobs.batch "once" already exists

            hint: it is there from an earlier run: give this one another name with `--name NAME`, or take another `--data` directory
        "#]],
    );
    let data = sandbox.path().join("kept");
    let up = testkit::Tally::start(env!("CARGO_BIN_EXE_tally").as_ref(), &data, &[]).unwrap();
    let shown = sandbox.run(&["logs", "job/once", "--no-prefix", "--data", "kept"]);
    assert_eq!((shown.stdout.as_str(), shown.code), ("hi\n", Some(0)), "{shown:?}");
    drop(up);
}

/// What is missing is told while the run waits for it.
#[test]
fn pods_that_cannot_start_are_told() {
    let sandbox = Sandbox::new();
    let job = |name: &str, container: &str, volumes: &str| {
        format!(
            "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec: {{template: {{spec: {{restartPolicy: \
             Never, containers: [{{name: a, image: b, command: [echo]{container}}}]{volumes}}}}}}}\n"
        )
    };
    let variable = job("variable", ", envFrom: [{configMapRef: {name: missing}}]", "");
    let volume = job(
        "volume",
        ", volumeMounts: [{name: v, mountPath: /v}]",
        ", volumes: [{name: v, configMap: {name: absent}}]",
    );
    let manifest = sandbox.file("m.yaml", &format!("{variable}{volume}"));
    let mut command = sandbox.command(&["run", manifest.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = [false; 2];
    while said != [true; 2] {
        let line = lines.next().expect("both are told before it ends");
        said[0] |= line.starts_with("job/variable: ")
            && line.contains("waiting: CreateContainerConfigError: configmap \"missing\" not found");
        said[1] |= line.starts_with("job/volume: ") && line.contains("waiting: FailedMount: ");
    }
    signal(&child, Signal::TERM);
    assert_eq!(wait(&mut child).code(), Some(143));
}

#[test]
fn namespaces_that_are_named_are_there() {
    let sandbox = Sandbox::new();
    let manifest = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: made-, namespace: elsewhere}\nspec: \
                    {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b, command: [echo, $(NS)], \
                    env: [{name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]}]}}}\n";
    let ran = sandbox.run_with_input(&["run", "-q", "-"], manifest);
    assert!(ran.stdout.starts_with("[made-") && ran.stdout.ends_with("] elsewhere\n"), "{ran:?}");
    let ran =
        sandbox.run_with_input(&["run", "-q", "-n", "mine", "-"], &manifest.replace(", namespace: elsewhere", ""));
    assert!(ran.stdout.ends_with("] mine\n"), "{ran:?}");
}

/// Whoever runs a Job wants to see it, however short its time to live.
#[test]
fn a_job_is_not_cleaned_up_before_it_was_shown() {
    let sandbox = Sandbox::new();
    let manifest = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: brief}\nspec: {ttlSecondsAfterFinished: 0, \
                    template: {spec: {restartPolicy: Never, containers: [{name: a, image: b, command: [echo, hi]}]}}}\n";
    let ran = sandbox.run_with_input(&["run", "-q", "-"], manifest);
    assert!(ran.code == Some(0) && ran.stdout.ends_with("] hi\n"), "{ran:?}");
}

#[test]
fn ctrl_c_ends_pods_gracefully() {
    for (signal_sent, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let sandbox = Sandbox::new();
        let manifest = sandbox.file("patient.yaml", PATIENT);
        let mut child = sandbox
            .command(&["run", manifest.to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("[patient/0] begun"));
        signal(&child, signal_sent);
        assert!(lines.any(|line| line == "[patient/0] asked to end"));
        assert_eq!(wait(&mut child).code(), Some(code));
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(stderr.contains("stopping 1 Job; Ctrl-C again stops at once\n"), "{stderr}");
        assert!(stderr.contains(": 1 Job did not finish\n\nhint: their pods have ended"), "{stderr}");
        nothing_is_left(&sandbox);
    }
}

#[test]
fn a_second_ctrl_c_ends_everything_at_once() {
    let sandbox = Sandbox::new();
    // A process that its own shell has started, and that ignores being asked as well.
    let stubborn = PATIENT
        .replace("echo asked to end; exit 0", "echo no")
        .replace("echo begun;", "(trap '' TERM; sleep 999; sleep 999) & echo begun;")
        .replace("restartPolicy: Never\n", "restartPolicy: Never\n      terminationGracePeriodSeconds: 600\n");
    let manifest = sandbox.file("stubborn.yaml", &stubborn);
    let mut child = sandbox.command(&["run", "-q", manifest.to_str().unwrap()]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("[patient/0] begun"));
    signal(&child, Signal::INT);
    assert!(lines.any(|line| line == "[patient/0] no"), "it was asked");
    // Its grace period is not waited for: that would be longer than `wait` waits.
    signal(&child, Signal::INT);
    assert_eq!(wait(&mut child).code(), Some(130));
    nothing_is_left(&sandbox);
}

/// `nohup` means that a closed terminal ends nothing.
#[test]
fn a_hangup_that_is_ignored_ends_nothing() {
    let sandbox = Sandbox::new();
    let gate = sandbox.path().join("gate");
    let script = format!("echo begun; while ! [ -e {} ]; do sleep 0.02; done", gate.display());
    let nohup = ["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_tally")];
    let mut command = sandbox.program("sh", &[&nohup[..], &["run", "-q", "--", "sh", "-c", &script]].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.next().is_some_and(|line| line.ends_with("] begun")));
    signal(&child, Signal::HUP);
    fs::write(&gate, "").unwrap();
    assert_eq!(wait(&mut child).code(), Some(0));
}

/// What was interrupted can be gone on with: its Job is there.
#[test]
fn what_is_kept_of_an_interrupted_run_is_named() {
    let sandbox = Sandbox::new();
    let manifest = sandbox.file("patient.yaml", PATIENT);
    let mut command = sandbox.command(&["run", "-q", "--data", "kept", manifest.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("[patient/0] begun"));
    signal(&child, Signal::INT);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(wait(&mut child).code(), Some(130));
    let up = format!("`tally up --data {}/kept` lets you resume them", sandbox.path().display());
    assert!(stderr.contains(&up) && stderr.contains("another `--data` directory begins again\n"), "{stderr}");
}

/// A pager that waits for a key does not keep a run from being ended.
#[test]
fn signals_are_heard_while_nobody_reads() {
    let sandbox = Sandbox::new();
    let gate = sandbox.path().join("gate");
    // More than a pipe and all queues on the way hold.
    let script = format!("yes | head -c 8000000; touch {}; sleep 999", gate.display());
    for (signal_sent, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut child = sandbox
            .command(&["run", "-q", "--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("everything is said", || gate.exists());
        signal(&child, signal_sent);
        assert_eq!(wait(&mut child).code(), Some(code));
        nothing_is_left(&sandbox);
        fs::remove_file(&gate).unwrap();
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
    let sandbox = Sandbox::new();
    let chatty = ["run", "-q", "--", "sh", "-c", "while :; do echo y; sleep 0.01; done"];
    let mut child = sandbox.command(&chatty).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(wait(&mut child).code(), Some(141));
    nothing_is_left(&sandbox);
}

/// Nobody reads from the beginning, so Jobs end while they are being stopped. However many those are, each one is either
/// said to be complete or counted as one that did not finish.
#[test]
fn only_jobs_that_were_stopped_are_said_not_to_have_finished() {
    let sandbox = Sandbox::new();
    let job = |name: &str| {
        format!(
            "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec: {{template: {{spec: {{restartPolicy: \
             Never, containers: [{{name: a, image: b, command: [echo, hi]}}]}}}}}}\n"
        )
    };
    let manifest = sandbox.file("four.yaml", &["a", "b", "c", "d"].map(job).concat());
    let mut command = sandbox.command(&["run", manifest.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(wait(&mut child).code(), Some(141), "{stderr}");
    let complete = stderr.lines().filter(|line| line.contains(" complete in ")).count();
    let (_, rest) = stderr.split_once("error: nobody reads the output any more: ").expect("why it ended");
    let unfinished = rest.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
    assert_eq!(complete + unfinished, 4, "{stderr}");
}

/// No process and no file of the run is left behind.
fn nothing_is_left(sandbox: &Sandbox) {
    let runs = |dir: &std::path::Path| {
        fs::read_dir(dir)
            .expect("a folder")
            .filter(|it| {
                it.as_ref().expect("a plain name").file_name().to_str().expect("a plain name").starts_with("tally-run")
            })
            .count()
    };
    assert_eq!(runs(sandbox.path()), 0);
    let own = sandbox.path().to_str().expect("a plain path").to_owned();
    until("all processes have ended", || {
        let processes = fs::read_dir("/proc").expect("a plain path").filter_map(Result::ok);
        !processes.map(|it| it.path()).any(|process| {
            let has = |file: &str, text: &str| {
                fs::read(process.join(file)).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
            };
            // Pods have the home directory of whoever runs them.
            (has("cmdline", "__nursery") && has("cmdline", &own)) || has("environ", &format!("HOME={own}\0"))
        })
    });
}

/// However many pods there are, each one's log is shown once.
#[test]
fn no_log_is_lost_or_shown_twice() {
    let sandbox = Sandbox::new();
    let arguments = ["run", "-q", "--indexed", "--completions", "300", "--parallelism", "60"];
    let ran = sandbox.run(&[&arguments[..], &["--", "sh", "-c", "echo $JOB_COMPLETION_INDEX"]].concat());
    let mut indexes: Vec<u32> =
        ran.stdout.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, (0..300).collect::<Vec<_>>());
}
