//! What a shell needs: completions, manual pages, and the name of a kubectl plugin.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use common::Sandbox;

const COMMANDS: [&str; 9] = ["run", "up", "down", "status", "wait", "logs", "rerun", "controller", "version"];

#[test]
fn completions_know_all_commands() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = sandbox.run(&["completion", shell]);
        assert_eq!(script.code, Some(0));
        for command in COMMANDS {
            assert!(script.stdout.contains(command), "{shell} knows {command}");
        }
    }
    let refused = sandbox.run(&["completion", "cobol"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("\n\nhint: `tally completion --help`"), "{}", refused.stderr);
}

#[test]
fn every_command_has_a_manual_page() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["man", "pages"]).code, Some(0));
    for command in COMMANDS {
        let page = fs::read_to_string(sandbox.path().join(format!("pages/tally-{command}.1"))).expect(command);
        assert!(page.contains(".SH SYNOPSIS") || page.contains(".SH NAME"), "{command}");
    }
    sandbox.file("file", "");
    let refused = sandbox.run(&["man", "file/pages"]);
    assert!(refused.stderr.contains("hint: pass a directory you may write to"), "{}", refused.stderr);
}

#[test]
fn as_a_plugin_it_speaks_of_kubectl() {
    let sandbox = Sandbox::new();
    let plugin = sandbox.path().join("kubectl-tally");
    symlink(env!("CARGO_BIN_EXE_tally"), &plugin).unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(&plugin).args(arguments).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap(), output.status.code())
    };
    let (help, _, code) = run(&["--help"]);
    assert!(help.contains("Usage: kubectl tally [OPTIONS] <COMMAND>"), "{help}");
    assert_eq!(code, Some(0));
    let (help, ..) = run(&["run", "--help"]);
    assert!(help.contains("Usage: kubectl tally run "), "{help}");
    let (_, error, code) = run(&["wait"]);
    assert!(error.contains("hint: `kubectl tally wait --help`"), "{error}");
    assert_eq!(code, Some(2));
    let (version, ..) = run(&["version"]);
    assert!(version.contains("Kubernetes v1.36"), "{version}");
}
