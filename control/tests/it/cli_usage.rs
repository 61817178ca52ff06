//! Tests of help, usage and exit statuses: 0 success, 1 the run failed, 2 wrong usage or invalid configuration.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test stops at the first surprise")]

use crate::support::file;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use file::File;

fn srv6d(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srv6d"));
    command.args(arguments).env_remove("SRV6D_SOCKET").output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const VALID: &str = "[node]\nsource = \"fcbb:0:1004::1\"\n\n[[block]]\nprefix = \"fcbb::/32\"\n\n\
                     [[port]]\nname = \"srv6d-absent\"\n\n[[sid]]\nsid = \"fcbb:0:1004::/48\"\nbehavior = \"uN\"\n";

#[test]
fn help_names_every_command_and_the_exit_statuses() {
    let output = srv6d(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = stdout(&output);
    for word in ["run", "check", "reload", "show", "doctor", "lab", "completion", "Exit status", "First steps"] {
        assert!(help.contains(word), "{word} is missing in\n{help}");
    }
    for hidden in ["guard", "cleanup"] {
        assert!(!help.contains(hidden), "{hidden} is nobody's business");
    }
}

#[test]
fn every_command_explains_itself_with_an_example_or_a_consequence() {
    for command in ["run", "check", "reload", "show", "explain", "doctor", "completion"] {
        let output = srv6d(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{command}");
        let help = stdout(&output);
        assert!(help.contains("Usage: srv6d"), "{command}");
        assert!(help.contains("Examples:") || help.contains("No packet is lost"), "{command}:\n{help}");
    }
}

/// What was not typed does not stand in the usage: the socket of the environment.
#[test]
fn usage_names_only_what_was_typed() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srv6d"));
    let output = command.arg("show").env("SRV6D_SOCKET", "/nowhere/srv6d.sock").output().unwrap();
    let usage = stderr(&output);
    assert!(usage.contains("Usage: srv6d show <TOPIC>"), "{usage}");
    let output = Command::new(env!("CARGO_BIN_EXE_srv6d"))
        .args(["show", "ports"])
        .env("SRV6D_SOCKET", "/nowhere/srv6d.sock")
        .output()
        .unwrap();
    assert!(stderr(&output).contains("/nowhere/srv6d.sock"), "{}", stderr(&output));
}

/// A negative value is a wrong value, and no option.
#[test]
fn a_negative_setting_of_a_link_is_refused_for_what_it_is() {
    for (option, value, says) in [("--loss", "-1%", "is no share of packets"), ("--queue", "-5", "-5 is not in 1..")] {
        let output = srv6d(&["lab", "impair", "leaf00-spine00", option, value]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

#[test]
fn no_line_of_the_help_is_broken_twice() {
    let words = "run,check,reload,rollback,sync,path-server,place,job,job start,job place,job join,job wait,job show,job end,show,explain,capture,traceroute,ping,doctor,completion,man,sonic,sonic check,\
                 sonic convert,sonic run,sonic ready,sonic install-words,lab,lab up,lab exec,lab fail,lab impair,lab top,lab capture,lab demo,lab scale";
    for command in words.split(',') {
        let arguments: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = stdout(&srv6d(&arguments));
        let lines: Vec<&str> = help.lines().collect();
        // A line of the text that is longer than the terminal is wrapped, and leaves a word or two on a line of their
        // own.
        let is_left_over = |three: &[&str]| match three {
            [long, short, next] => {
                let is_text = |line: &str| line.starts_with(|c: char| !c.is_whitespace());
                long.len() > 85 && short.len() < 14 && is_text(short) && is_text(next)
            }
            _ => false,
        };
        let left_over: Vec<&[&str]> = lines.windows(3).filter(|three| is_left_over(three)).collect();
        assert!(left_over.is_empty(), "{command}: {left_over:?}");
    }
}

#[test]
fn wrong_usage_is_status_2_and_suggests() {
    let output = srv6d(&["shwo", "ports"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("'show'"), "{}", stderr(&output));
    for (typed, hidden) in [("trase", "trace"), ("cleanu", "cleanup"), ("gard", "guard")] {
        let said = stderr(&srv6d(&[typed]));
        assert!(said.contains(typed) && !said.contains(&format!("'{hidden}'")), "{said}");
    }
    for arguments in [&["show"][..], &["show", "prots"], &["run", "--fast"], &["completion", "cmd.exe"], &[]] {
        let output = srv6d(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!stderr(&output).is_empty(), "{arguments:?}");
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

#[test]
fn who_waits_without_a_daemon_is_told_once_what_for() {
    let socket = std::env::temp_dir().join(format!("srv6d-none-{}.sock", std::process::id()));
    let output = srv6d(&["wait", "--peers", "--timeout", "1s", "--socket", socket.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert_eq!(said.matches("waiting for the daemon").count(), 1, "{said}");
    assert!(said.contains(socket.to_str().unwrap()), "{said}");
}

#[test]
fn foreign_names_cannot_command_the_terminal() {
    let config_db =
        r#"{"INTERFACE": {"p\u001b[31mX": {}}, "SRV6_MY_SIDS": {"a\u001b[2Jb|fcbb::/48": {"action": "uN"}}}"#;
    let database = File::new("names.json", config_db);
    let switch = File::new("names.toml", &format!("[sonic]\nconfig_db = {:?}\n", database.path()));
    for arguments in [
        &["sonic", "check", "--config-db", database.path()][..],
        &["sonic", "convert", "--config-db", database.path()],
        &["check", "--offline", switch.path()],
        &["check", switch.path()],
    ] {
        let output = srv6d(arguments);
        let said = stdout(&output) + &stderr(&output);
        assert!(!said.contains('\u{1b}') && said.contains("\\u{1b}"), "{arguments:?}: {said}");
    }
    // JSON has its own form for them.
    let output = srv6d(&["sonic", "check", "--json", "--config-db", database.path()]);
    assert!(!stdout(&output).contains('\u{1b}') && stdout(&output).contains("a\\u001b[2Jb"), "{}", stdout(&output));
}

#[test]
fn offline_a_file_for_another_machine_is_whole() {
    let host = "[node]\nsource = \"fcbb:0:800::2\"\n[workers]\ncores = [4000]\n[[port]]\nname = \"srv6d-absent\"\n\
                [[route]]\nprefix = \"fcbb::/32\"\nvia = \"fcbb:0:800::1\"\n\
                [[steer]]\nprefix = \"fcbb:0:800:2::/64\"\nsegments = [\"fcbb:0:1004:1001:1006:fe06::\"]\n";
    let file = File::new("offline.toml", host);
    assert_eq!(srv6d(&["check", file.path()]).status.code(), Some(2), "this machine has fewer cores");
    let output = srv6d(&["check", "--offline", file.path()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("1 ports, 0 SIDs, 1 steered prefixes, 1 routes") && !said.contains("waits"), "{said}");
}

#[test]
fn advice_leads_somewhere() {
    let refused = |text: &str| {
        let file = File::new("advice.toml", text);
        let output = srv6d(&["check", file.path()]);
        assert_eq!(output.status.code(), Some(2), "{text}: {}", stdout(&output));
        stderr(&output)
    };
    let said = refused(&VALID.replace("\"uN\"", "\"End.DX2\""));
    assert!(said.contains("srv6d does not have End.DX2") && said.contains("leave the SID to the kernel"), "{said}");
    assert!(!said.contains("write \"End.X\""), "{said}");
    let said = refused(&VALID.replace("\"fcbb::/32\"", "fcbb::/32"));
    assert!(said.contains("a text without quotes") && said.contains("write prefix = \"fcbb::/32\""), "{said}");
    for list in ["[10.0.0.0/8]", "[\"192.0.2.0/24\", 10.0.0.0/8]", "[\n  10.0.0.0/8,\n]", "[ 10.0.0.0/8 ] # ours"] {
        let said = refused(&VALID.replace("-absent\"", &format!("-absent\"\nallowed_sources = {list}")));
        let fix = "fix: texts are written in quotes: \"10.0.0.0/8\"";
        assert!(said.contains("a text without quotes") && said.contains(fix), "{list}: {said}");
        assert_eq!(said.matches("error: ").count(), 1, "{list}: {said}");
    }
    let said = stderr(&srv6d(&["trace", "fcbb::1"]));
    assert!(said.contains("srv6d capture") && !said.contains("place"), "{said}");
    for name in ["../../x", "a b", "sixteen-letters-", ".."] {
        let said = refused(&format!("{VALID}\n[host]\ninterface = \"{name}\"\n"));
        assert!(said.contains(&format!("{name:?} does not fit here")), "{said}");
        let said = refused(&VALID.replace("srv6d-absent", name));
        assert!(said.contains(&format!("{name:?} does not fit here")), "{said}");
    }
    for (name, what) in [("lo", "lo is the loopback device"), ("srv6d-absent", "is the device of port srv6d-absent")] {
        let said = refused(&format!("{VALID}\n[host]\ninterface = \"{name}\"\n"));
        assert!(said.contains(what) && said.contains("a name that no device has"), "{said}");
    }
}

#[test]
fn what_is_no_file_is_refused_by_name() {
    for file in ["/dev/zero", "/"] {
        let output = srv6d(&["check", file]);
        assert_eq!(output.status.code(), Some(2));
        let said = stderr(&output);
        assert!(said.contains(&format!("cannot read {file}: no regular file")) && said.contains("fix: "), "{said}");
    }
}

#[test]
fn no_daemon_is_status_1_and_says_how_to_start_one() {
    for arguments in [&["show", "ports"][..], &["show", "counters", "--json"], &["reload"]] {
        let arguments = [&["--socket", "/nonexistent/srv6d.sock"][..], arguments].concat();
        let output = srv6d(&arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let error = stderr(&output);
        assert!(error.contains("not running") && error.contains("srv6d run --config"), "{error}");
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn valid_configuration_is_status_0_and_says_what_it_waits_for() {
    let file = File::new("valid", VALID);
    let output = srv6d(&["check", file.path()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("valid: 1 ports, 1 SIDs"), "{said}");
    assert!(said.contains("waits for network device srv6d-absent"), "{said}");
}

#[test]
fn invalid_configuration_is_status_2_and_names_line_key_and_fix() {
    let file = File::new("invalid", &VALID.replace("behavior", "behaviour"));
    for command in ["check", "run", "doctor"] {
        let arguments: &[&str] = if command == "check" { &[file.path()] } else { &["--config", file.path()] };
        let output = srv6d(&[&[command], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{command}");
        let error = stderr(&output);
        assert!(error.contains(&format!("{}:12:1: ", file.path())), "{command}: {error}");
        assert!(error.contains("behaviour") && error.contains("behavior") && error.contains("fix: "), "{error}");
    }
}

#[test]
fn check_speaks_json() {
    let invalid = File::new("json", &VALID.replace("behavior", "behaviour"));
    let output = srv6d(&["check", "--json", invalid.path()]);
    assert_eq!(output.status.code(), Some(2));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.pointer("/valid"), Some(&false.into()));
    assert_eq!(report.pointer("/errors/0/line"), Some(&12.into()));

    let valid = File::new("json-valid", VALID);
    let output = srv6d(&["check", "--json", valid.path()]);
    assert_eq!(output.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.pointer("/valid"), Some(&true.into()));
    assert_eq!(report.pointer("/pending/0/severity"), Some(&"pending".into()));
}

#[test]
fn check_speaks_json_of_what_it_cannot_read_too() {
    let latin = std::env::temp_dir().join(format!("srv6d-latin-{}.toml", std::process::id()));
    std::fs::write(&latin, b"# caf\xe9\n").unwrap();
    for (file, what) in [("/nonexistent/srv6d.toml", "No such file"), (latin.to_str().unwrap(), "UTF-8")] {
        for arguments in [&["check", "--json", file][..], &["check", "--offline", "--json", file]] {
            let output = srv6d(arguments);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}");
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let said = report.pointer("/errors/0/what").and_then(serde_json::Value::as_str).unwrap();
            assert!(said.contains("cannot read") && said.contains(what), "{report}");
            assert_eq!(report.pointer("/valid"), Some(&false.into()));
        }
    }
    std::fs::remove_file(latin).unwrap();
}

#[test]
fn a_socket_that_cannot_be_is_found_by_check() {
    let with = |api: &str| File::new("socket-path.toml", &format!("{VALID}\n[api]\nsocket = \"{api}\"\n"));
    let long = with(&format!("/run/{}", "x".repeat(103)));
    let said = stderr(&srv6d(&["check", long.path()]));
    assert!(said.contains("[api] socket: a path of 108 bytes") && said.contains("at most 107 bytes"), "{said}");
    let file = with("/etc/hostname");
    let output = srv6d(&["check", file.path()]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("[api] socket: /etc/hostname is a file, and no socket\nfix: "), "{said}");
    let output = srv6d(&["check", "--json", file.path()]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.pointer("/errors/0/entry"), Some(&"[api] socket".into()), "{report}");
    assert_eq!(srv6d(&["check", "--offline", file.path()]).status.code(), Some(0), "another machine may have none");
}

#[test]
fn missing_file_is_status_2_and_named() {
    for arguments in [&["check", "/nonexistent/srv6d.toml"][..], &["run", "--config", "/nonexistent/srv6d.toml"]] {
        let output = srv6d(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains("cannot read /nonexistent/srv6d.toml"), "{}", stderr(&output));
    }
}

#[test]
fn run_without_privileges_or_directory_fails_before_it_touches_anything() {
    let file = File::new("socket", VALID);
    let output = srv6d(&["--socket", "/proc/srv6d.sock", "run", "--config", file.path()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot listen on /proc/srv6d.sock"), "{}", stderr(&output));
}

#[test]
fn a_log_level_that_is_none_is_named() {
    let file = File::new("level", VALID);
    let mut command = Command::new(env!("CARGO_BIN_EXE_srv6d"));
    command.args(["--socket", "/proc/srv6d.sock", "run", "--config", file.path()]);
    let output = command.env("RUST_LOG", "srv6d=verbose").output().unwrap();
    let error = stderr(&output);
    assert!(error.contains("WARN RUST_LOG is passed over") && error.contains("RUST_LOG=debug"), "{error}");
    let output = command.env("RUST_LOG", "debug").output().unwrap();
    assert!(!stderr(&output).contains("RUST_LOG"), "{}", stderr(&output));
}

#[test]
fn doctor_looks_at_the_machine_without_a_daemon() {
    let output = srv6d(&["--socket", "/nonexistent/srv6d.sock", "doctor", "--json", "srv6d-absent"]);
    assert_eq!(output.status.code(), Some(1), "an interface that does not exist is in the way");
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = findings.as_array().unwrap();
    let of = |subject: &str, check: &str| {
        findings.iter().find(|f| f.get("subject") == Some(&subject.into()) && f.get("check") == Some(&check.into()))
    };
    assert!(of("machine", "kernel").is_some());
    assert_eq!(of("srv6d-absent", "interface").unwrap().get("verdict"), Some(&"FAIL".into()));
}

#[test]
fn completion_scripts_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = srv6d(&["completion", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(stdout(&output).contains("doctor"), "{shell}");
    }
}

#[test]
fn the_configuration_has_a_manual_page_that_groff_reads() {
    let directory = std::env::temp_dir().join(format!("srv6d-man5-{}", std::process::id()));
    let output = srv6d(&["man", directory.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = directory.join("srv6d.toml.5");
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains(".SH steer\n") && text.contains("\\fBdomain_sources\\fR"), "{text}");
    match Command::new("groff").args(["-t", "-man", "-Tutf8"]).arg(&page).output() {
        Ok(shown) => {
            // A word that is longer than its column is wide is no mistake.
            let complaints = stderr(&shown).lines().filter(|line| !line.contains("can't break line")).count();
            assert!(shown.status.success() && complaints == 0, "{}", stderr(&shown));
            assert!(stdout(&shown).contains("configuration of srv6d"), "{}", stdout(&shown));
        }
        Err(why) => println!("SKIPPED: groff cannot be run: {why}"),
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn every_command_of_the_help_has_a_manual_page() {
    let directory = std::env::temp_dir().join(format!("srv6d-man-{}", std::process::id()));
    let output = srv6d(&["man", directory.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for (page, expected) in [
        ("srv6d.1", "srv6d\\-show(1)"),
        ("srv6d-show.1", ".SH EXAMPLES"),
        ("srv6d-lab-up.1", "\\-\\-routing"),
        ("srv6d-sonic-run.1", "config_db.json"),
    ] {
        let text = fs::read_to_string(directory.join(page)).unwrap_or_default();
        assert!(text.contains(expected), "{page}: {text}");
    }
    assert!(!directory.join("srv6d-guard.1").exists(), "it is nobody's business");
    fs::remove_dir_all(&directory).unwrap();
    let output = srv6d(&["man", "/proc/srv6d"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot write manual pages into /proc/srv6d"), "{}", stderr(&output));
}

/// Returns the installed files below a directory, as relative paths.
fn installed(root: &Path) -> Vec<String> {
    let listed = Command::new("find").arg(root).args(["-type", "f", "-printf", "%P\n"]).output().unwrap();
    stdout(&listed).lines().map(str::to_owned).collect()
}

#[test]
fn make_install_puts_all_in_place_and_uninstall_takes_it_away() {
    let root = std::env::temp_dir().join(format!("srv6d-install-{}", std::process::id()));
    let built = root.join("target/release");
    fs::create_dir_all(&built).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_srv6d"), built.join("srv6d")).unwrap();
    let destination = root.join("destination");
    let make = |what: &str, prefix: &str| {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let variables = [("TARGET", &root.join("target")), ("DESTDIR", &destination)];
        let variables = variables.map(|(name, path)| format!("{name}={}", path.display()));
        let mut command = Command::new("make");
        command.args(["--silent", "--directory"]).arg(repository).arg(what).args(variables);
        // The flags of a surrounding make are not meant for this one.
        command.arg(format!("PREFIX={prefix}")).env_remove("MAKEFLAGS").output().unwrap()
    };
    let done = make("install", "/usr");
    assert!(done.status.success(), "{}", stderr(&done));
    let files = installed(&destination);
    for file in [
        "usr/bin/srv6d",
        "usr/share/man/man1/srv6d.1",
        "usr/share/man/man1/srv6d-show.1",
        "usr/share/man/man5/srv6d.toml.5",
        "usr/share/bash-completion/completions/srv6d",
        "usr/share/zsh/site-functions/_srv6d",
        "usr/share/fish/vendor_completions.d/srv6d.fish",
        "etc/systemd/system/srv6d.service",
    ] {
        assert!(files.iter().any(|found| found == file), "{file} is missing in {files:?}");
    }
    let done = make("uninstall", "/usr");
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(installed(&destination), Vec::<String>::new());

    assert!(make("install", "/opt/srv6d").status.success());
    let unit = fs::read_to_string(destination.join("etc/systemd/system/srv6d.service")).unwrap();
    assert!(unit.contains("ExecStart=/opt/srv6d/bin/srv6d run") && !unit.contains("=/usr/bin"), "{unit}");

    fs::remove_file(built.join("srv6d")).unwrap();
    let refused = make("install", "/usr");
    assert!(!refused.status.success() && stderr(&refused).contains("make build"), "{}", stderr(&refused));
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn unit_file_starts_the_command_that_exists() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/srv6d.service");
    let unit = fs::read_to_string(unit).unwrap();
    let commands = unit.lines().filter_map(|line| line.strip_prefix("Exec")?.split_once("=/usr/bin/srv6d "));
    let commands: Vec<&str> = commands.map(|(_, arguments)| arguments).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for arguments in commands {
        let mut words: Vec<&str> = arguments.split(' ').collect();
        words.push("--help");
        assert_eq!(srv6d(&words).status.code(), Some(0), "{arguments}");
    }
}
