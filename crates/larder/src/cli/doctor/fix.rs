//! `--fix` and `--undo`: what would be typed is shown; what is safe is asked for, one by one.

use std::io::{BufRead, IsTerminal, Write};

use larder_api::Failure;
use larder_facts::reading::Reading;
use larder_measure::doctor::{Change, Done, FixError, Fixer, Notice, Undone, notices};
use serde::Serialize;

use super::super::args::Global;
use super::super::reach::Outcome;

/// One fix, and what became of it.
#[derive(Serialize)]
struct Fixed {
    code: &'static str,
    what: String,
    commands: Vec<String>,
    changed: Vec<Done>,
    /// `changed`, `declined`, `not asked`, `by hand` or why it failed.
    outcome: String,
}

pub(super) fn fix(global: &Global, fixer: &Fixer, reading: &Reading) -> Result<Outcome, Failure> {
    let all = notices(reading);
    let safe: Vec<&Notice> = all.iter().filter(|n| !n.changes.is_empty()).collect();
    let by_hand = all.iter().filter(|n| n.changes.is_empty() && n.action.is_some());
    let asked = std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !global.json;
    let mut fixed: Vec<Fixed> = Vec::new();
    let mut failed = false;
    for notice in safe {
        let mut one = planned(notice, "not asked");
        if asked && ask(&one)? {
            match apply(fixer, &notice.changes, &mut one.changed) {
                Ok(()) => one.outcome = "changed".to_owned(),
                Err(error) => {
                    failed = true;
                    one.outcome = error.to_string();
                }
            }
        } else if asked {
            one.outcome = "declined".to_owned();
        }
        fixed.push(one);
    }
    fixed.extend(by_hand.map(|notice| planned(notice, "by hand")));
    global.out().answer(&fixed, |fixed| text(fixed, asked))?;
    Ok(if failed { Outcome::Problems } else { Outcome::Done })
}

fn planned(notice: &Notice, outcome: &str) -> Fixed {
    let commands = match notice.changes.is_empty() {
        true => notice.action.iter().cloned().collect(),
        false => notice.changes.iter().map(command).collect(),
    };
    Fixed { code: notice.code, what: notice.what.clone(), commands, changed: Vec::new(), outcome: outcome.to_owned() }
}

/// As a person would type it.
fn command(change: &Change) -> String {
    format!("echo '{}' > {}", change.value, change.file)
}

fn ask(one: &Fixed) -> Result<bool, Failure> {
    eprintln!("{}", one.what);
    one.commands.iter().for_each(|command| eprintln!("  {command}"));
    eprint!("Run this? It holds until the next start, and larder doctor --undo takes it back. Type yes: ");
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|e| Failure::io("cannot read the answer", &e))?;
    Ok(matches!(line.trim(), "yes" | "y"))
}

fn apply(fixer: &Fixer, changes: &[Change], done: &mut Vec<Done>) -> Result<(), FixError> {
    for change in changes {
        done.push(fixer.apply(change)?);
    }
    Ok(())
}

fn text(fixed: &[Fixed], asked: bool) -> String {
    if fixed.is_empty() {
        return "nothing to change".to_owned();
    }
    let mut text = String::new();
    for one in fixed {
        text.push_str(&format!("{} ({})\n", one.what, one.outcome));
        text.extend(one.commands.iter().map(|command| format!("  {command}\n")));
    }
    let safe = fixed.iter().any(|one| one.outcome != "by hand");
    match (asked, fixed.iter().any(|one| !one.changed.is_empty())) {
        (_, true) => text.push_str("to take it back: larder doctor --undo\n"),
        (false, _) if safe => text.push_str("nothing was changed: run it at a terminal, where each is asked for\n"),
        _ => text.push_str("nothing was changed\n"),
    }
    text
}

pub(super) fn undo(global: &Global, fixer: &Fixer) -> Result<Outcome, Failure> {
    let undone =
        fixer.undo().map_err(|e| Failure::unavailable(e.to_string()).action("run it as root, as --fix was"))?;
    global.out().answer(&undone, |undone| undone_text(undone))?;
    let left = undone.iter().any(|u| u.left.is_some());
    Ok(if left { Outcome::Problems } else { Outcome::Done })
}

fn undone_text(undone: &[Undone]) -> String {
    if undone.is_empty() {
        return "nothing was changed by larder doctor --fix, or all of it was taken back".to_owned();
    }
    let line = |u: &Undone| match &u.left {
        None => format!("{} is '{}' again\n", u.file, u.value),
        Some(why) => format!("{} was left as it is: {why}\n", u.file),
    };
    undone.iter().map(line).collect()
}
