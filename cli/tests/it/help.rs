//! Help texts as they are printed: a change of one shows in its snapshot.

use std::process::Command;

fn help(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_forage"))
        .args(words)
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that a help text lists: the first words of its lines between the usage and the options.
fn listed(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| !line.starts_with("Usage:"));
    let lines = lines.take_while(|line| !line.starts_with("Options:"));
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names
        .filter(|name| {
            name.starts_with(|letter: char| letter.is_ascii_lowercase()) && *name != "help"
        })
        .collect()
}

#[test]
fn every_help_text_is_as_it_was_reviewed() {
    let top = help(&[]);
    insta::assert_snapshot!("forage", top);
    let commands = listed(&top);
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        let own = help(&[command]);
        insta::assert_snapshot!(command, own);
        if own.contains("\nCommands:\n") {
            for below in listed(&own) {
                insta::assert_snapshot!(format!("{command}-{below}"), help(&[command, below]));
            }
        }
    }
}
