//! `larder config` and `larder reload`.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use larder_api::endpoints::{ApplyConfig, GetInfo, PlanConfig, ReloadConfig};
use larder_api::{
    ConfigApplied, ConfigApply, ConfigDifference, ConfigHow, ConfigPlan, ConfigRead, ConfigRestore, ConfigText, Failure,
};

use super::args::{ConfigCommand, Global};
use super::reach::{Target, absolute, maybe_target};
use crate::out;
use larder_config::differences::differences;
use larder_config::edit::{Editor, replace_file};
use larder_config::schema::{schema, with_defaults};
use larder_config::{Config, read_text, text_of};
use larder_document::folder;

mod versions;

pub(super) async fn run(global: &Global, command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check { file } => check(global, file).await,
        ConfigCommand::Show { file: Some(number), .. } if versions::is_number(&number) => {
            versions::show(global, &number.to_string_lossy()).await
        }
        ConfigCommand::Show { file, defaults } => show(global, file, defaults).await,
        ConfigCommand::Diff { file } => diff(global, &file).await,
        ConfigCommand::Apply { file, yes, at_next_start } => apply(global, &file, yes, at_next_start).await,
        ConfigCommand::History => versions::history(global).await,
        ConfigCommand::Restore { number, from, password_file, recovery_key_file, yes, at_next_start } => {
            let secret = || versions::secret(password_file.as_deref(), recovery_key_file.as_deref());
            let secret = from.is_some().then(secret).transpose()?;
            versions::restore(
                global,
                ConfigRestore { number, from, secret, at_next_start, ..ConfigRestore::default() },
                yes,
            )
            .await
        }
        ConfigCommand::RecoveryKey => versions::recovery_key(global).await,
        ConfigCommand::Schema => global.out().answer(&schema(), |schema| format!("{schema:#}")),
    }
}

async fn check(global: &Global, file: Option<PathBuf>) -> Result<(), Failure> {
    let file = match file {
        Some(file) => absolute(&file)?,
        None => usual_file(global).await?,
    };
    let config = Config::load(&file)?;
    let read = ConfigRead { file, notes: config.notes(), at_next_start: Vec::new() };
    global.out().answer(&read, |read| format!("{} is valid\n{}", read.file.display(), notes(&read.notes)))
}

async fn show(global: &Global, file: Option<PathBuf>, defaults: bool) -> Result<(), Failure> {
    let file = match file {
        Some(file) => absolute(&file)?,
        None => usual_file(global).await?,
    };
    let text = read(&file)?;
    Config::parse(&text, &file)?;
    let text = if defaults { with_defaults(&text)? } else { text };
    let value: serde_json::Value =
        toml::from_str(&text).map_err(|e| Failure::internal(format!("{}: {e}", file.display())))?;
    global.out().answer(&value, |_| text.clone())
}

/// `-` is standard input.
fn read(file: &Path) -> Result<String, Failure> {
    if file == Path::new("-") { text_of(std::io::stdin(), file) } else { read_text(file) }
}

/// What the file would change: of the larder that runs, or of the file in the data folder.
async fn planned(global: &Global, text: &str, file: &Path) -> Result<(Option<Target>, ConfigPlan), Failure> {
    match maybe_target(global).await? {
        Some(Target::Daemon(client)) => {
            let asked = ConfigText { text: text.to_owned(), name: Some(file.to_owned()) };
            let plan = client.call(PlanConfig, (), &asked).await?;
            Ok((Some(Target::Daemon(client)), plan))
        }
        other => {
            let own = usual_file(global).await?;
            let new = Config::parse_named(text, &own, file)?;
            let now = if own.exists() { read(&own)? } else { String::new() };
            let old = Config::parse(&now, &own)?;
            let changes = differences((&old, &now), (&new, text), &own);
            Ok((other, ConfigPlan { file: own, base: String::new(), changes, notes: new.notes() }))
        }
    }
}

async fn diff(global: &Global, file: &Path) -> Result<(), Failure> {
    let text = read(file)?;
    let (_, plan) = planned(global, &text, file).await?;
    global.out().answer(&plan, shown)
}

async fn apply(global: &Global, file: &Path, yes: bool, at_next_start: bool) -> Result<(), Failure> {
    let text = read(file)?;
    let (target, plan) = planned(global, &text, file).await?;
    if let Some((_, refused)) = plan.refused().next() {
        return Err(Failure { message: format!("{}; nothing was changed", refused.message), ..refused.clone() });
    }
    let Some(Target::Daemon(client)) = target else { return apply_to_file(global, &text, plan) };
    let interrupts: Vec<&str> = plan.interrupts().collect();
    if !interrupts.is_empty() && !yes && !confirmed(&interrupts)? {
        return Err(Failure::invalid("nothing was changed"));
    }
    let asked = ConfigApply { text, base: plan.base, at_next_start };
    let applied = client.call(ApplyConfig, (), &asked).await?;
    global.out().answer(&applied, |applied| {
        let mut text = shown(&applied.plan);
        text.push_str(&notes(&applied.notes));
        text + "applied\n"
    })
}

/// No larder runs: the next start reads the file.
fn apply_to_file(global: &Global, text: &str, plan: ConfigPlan) -> Result<(), Failure> {
    let now = if plan.file.exists() { read(&plan.file)? } else { String::new() };
    let before = Config::parse(&now, &plan.file)?;
    let mut editor = Editor::of(text, &plan.file)?;
    let text = if editor.keep_numbers(&before)? { editor.text() } else { text.to_owned() };
    if text != now {
        replace_file(&plan.file, text.as_bytes(), 0o600)?;
    }
    let applied = ConfigApplied { plan, notes: vec!["no larder runs here: the next start reads the file".to_owned()] };
    global.out().answer(&applied, |applied| {
        format!("{}{}wrote {}\n", shown(&applied.plan), notes(&applied.notes), applied.plan.file.display())
    })
}

/// Asks a person; a script must say --yes.
fn confirmed(interrupts: &[&str]) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        let message = format!("this would interrupt clients: {}; nothing was changed", interrupts.join("; "));
        return Err(Failure::invalid(message).action("if you mean it, add --yes"));
    }
    let list: String = interrupts.iter().map(|what| format!("  {what}\n")).collect();
    out::ask(&format!("This interrupts clients:\n{list}Type yes: "));
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| Failure::io("cannot read the answer", &e))?;
    Ok(line.trim() == "yes")
}

fn shown(plan: &ConfigPlan) -> String {
    let mut text: String = plan.changes.iter().map(shown_change).collect();
    if plan.changes.is_empty() {
        text.push_str("nothing differs\n");
    }
    text + &notes(&plan.notes)
}

fn shown_change(change: &ConfigDifference) -> String {
    let sign = match change.how {
        ConfigHow::Added => '+',
        ConfigHow::Removed => '-',
        ConfigHow::Changed => '~',
    };
    let mut text =
        format!("{sign} {}{}\n", change.entry, if change.at_next_start { "  (at the next start)" } else { "" });
    for key in &change.keys {
        let line = match (&key.before, &key.after) {
            (Some(before), Some(after)) => format!("    {} = {before} -> {after}\n", key.key),
            (Some(before), None) => format!("  - {} = {before}\n", key.key),
            (None, Some(after)) => format!("  + {} = {after}\n", key.key),
            (None, None) => continue,
        };
        text.push_str(&line);
    }
    text.extend(change.interrupts.iter().map(|what| format!("  ! {what}\n")));
    if let Some(refused) = &change.refused {
        text.push_str(&format!("  x {}: {}\n", refused.message, refused.action.as_deref().unwrap_or_default()));
    }
    text
}

/// That of the data folder named or beside us; else of the larder that runs, which may be asked about a file that is wrong.
async fn usual_file(global: &Global) -> Result<PathBuf, Failure> {
    let folder = global.data_named().unwrap_or_else(|| folder::DEFAULT.into());
    let beside = absolute(&folder.join(folder::CONFIG_NAME))?;
    if beside.exists() || global.data_named().is_some() {
        return Ok(beside);
    }
    match maybe_target(global).await? {
        Some(Target::Daemon(client)) => {
            let info = client.ask(GetInfo).await?;
            Ok(info.data.join(folder::CONFIG_NAME))
        }
        Some(Target::Config(config)) => Ok(config.data.join(folder::CONFIG_NAME)),
        None => Ok(beside),
    }
}

pub(super) async fn reload(global: &Global) -> Result<(), Failure> {
    match maybe_target(global).await? {
        Some(Target::Daemon(client)) => {
            let read = client.ask(ReloadConfig).await?;
            global.out().answer(&read, |read| {
                let mut text = format!("read {} again\n{}", read.file.display(), notes(&read.notes));
                if !read.at_next_start.is_empty() {
                    text.push_str(&format!("note: at the next start only: {}\n", read.at_next_start.join(", ")));
                }
                text
            })
        }
        _ => Err(Failure::not_found("no larder is running here: the configuration is read when it starts")
            .action("look at it with: larder config check; start with: larder up")),
    }
}

fn notes(notes: &[String]) -> String {
    notes.iter().map(|note| format!("note: {note}\n")).collect()
}
