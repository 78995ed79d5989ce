//! The options of a share on the command line, one for each setting (`settings.declared_once`).

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use larder_api::ShareChange;
use larder_api::setting::{Kind, Setting};
use larder_api::share::SETTINGS;
use serde_json::Value;

/// What the options ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShareOptions {
    pub(crate) change: ShareChange,
}

impl Args for ShareOptions {
    fn augment_args(command: Command) -> Command {
        with_options(command, &SETTINGS)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ShareOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut options = Self::default();
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        wish(&mut self.change, &SETTINGS, matches);
        Ok(())
    }
}

fn with_options(command: Command, settings: &[&'static Setting]) -> Command {
    settings.iter().fold(command, |command, setting| command.arg(option(setting)))
}

fn wish(change: &mut ShareChange, settings: &[&Setting], matches: &ArgMatches) {
    for setting in settings {
        if let Some(value) = value_of(setting, matches) {
            change.set(setting, value);
        }
    }
}

fn option(setting: &'static Setting) -> Arg {
    // The command is built once, and its names live as long as it does.
    let name: &'static str = setting.key.replace('_', "-").leak();
    let arg = Arg::new(setting.key).help(help(setting)).action(ArgAction::Set);
    let typed = move |text: &str| setting.typed(text);
    let bare = |arg: Arg, name: &'static str, usual: &'static str| {
        arg.value_name(name).num_args(0..=1).require_equals(true).default_missing_value(usual)
    };
    match setting.kind {
        Kind::Word(words, _) => arg.long(name).value_name("WORD").value_parser(PossibleValuesParser::new(words)),
        Kind::Switch | Kind::Pair(..) => bare(arg, "yes|no", "yes").long(name).value_parser(typed),
        Kind::Some(..) => bare(arg, "WHAT", "all").long(name).value_parser(typed),
        Kind::Days { .. } => bare(arg, "DAYS", "yes").long(name).value_parser(typed),
        Kind::Size { .. } => bare(arg, "yes|no|SIZE", "yes").long(name).value_parser(typed),
        Kind::Number => arg.long(name).value_name("NUMBER").value_parser(typed),
        Kind::Names | Kind::Everybody => arg.long(name).value_name("NAMES").value_parser(typed),
        Kind::Networks { .. } => {
            let one = name.strip_suffix('s').unwrap_or(name);
            let arg = if one == name { arg } else { arg.alias(name) };
            arg.long(one).value_name("NETWORK").value_delimiter(',').action(ArgAction::Append)
        }
    }
}

fn help(setting: &Setting) -> String {
    let default = setting.text(&setting.default());
    let default = if default.is_empty() { String::new() } else { format!("default: {default}") };
    let typed = match setting.kind {
        Kind::Networks { none } => format!("{none}: none; repeat for each"),
        Kind::Names => "names with commas between them, or none".to_owned(),
        Kind::Everybody => "names with commas between them, all, or none; default: all".to_owned(),
        Kind::Days { .. } => "default: no".to_owned(),
        _ => default,
    };
    format!("{} [{typed}]", setting.about.trim_end_matches('.'))
}

/// The value that was typed, if one was.
fn value_of(setting: &Setting, matches: &ArgMatches) -> Option<Value> {
    match setting.kind {
        Kind::Networks { none } => {
            let words: Vec<&String> = matches.get_many(setting.key)?.collect();
            let named: Value = words.iter().filter(|word| **word != none).map(|word| word.as_str()).collect();
            Some(if named == Value::Array(Vec::new()) { Value::Null } else { named })
        }
        Kind::Word(..) => matches.get_one::<String>(setting.key).map(|word| word.as_str().into()),
        _ => matches.get_one(setting.key).cloned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_api::setting::EXAMPLE;
    use serde_json::json;

    use super::*;

    fn asked(settings: &[&'static Setting], words: &[&str]) -> Result<Value, String> {
        let command = with_options(Command::new("set").no_binary_name(true), settings);
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        let mut change = ShareChange::default();
        wish(&mut change, settings, &matches);
        Ok(serde_json::to_value(change).unwrap())
    }

    /// `settings.declared_once`: what one declaration brings to the command line.
    #[test]
    fn a_declared_setting_is_an_option() {
        let settings = &[&EXAMPLE];
        assert_eq!(asked(settings, &["--waiting-tune", "harp"]).unwrap()["waiting_tune"], "harp");
        assert!(asked(settings, &["--waiting-tune", "drum"]).unwrap_err().contains("possible values: none, harp"));
        let help = with_options(Command::new("set"), settings).render_help().to_string();
        assert!(help.contains("A tune for clients that wait [default: none]"), "{help}");
    }

    #[test]
    fn options_ask_for_their_settings() {
        let check = |words: &[&str], name: &str, want: Value| {
            assert_eq!(asked(&SETTINGS, words).unwrap()[name], want, "{words:?}");
        };
        check(&["--users", "all"], "users", json!("all"));
        check(&["--users", "ann, @family"], "users", json!({"listed": ["ann", "@family"]}));
        check(&["--read-only-users", "none"], "read_only_users", json!([]));
        check(&["--read-only"], "read_only", json!(true));
        check(&["--encrypt=no"], "encrypt", json!(false));
        check(&["--network", "10.0.0.0/8", "--network", "private"], "networks", json!(["10.0.0.0/8", "private"]));
        check(&["--networks", "10.0.0.0/8,::1"], "networks", json!(["10.0.0.0/8", "::1"]));
        check(&["--network", "usual"], "usual_networks", json!(true));
        check(&["--only-from", "anywhere"], "only_from", json!([]));
        check(&["--recycle"], "recycle_days", json!(30));
        check(&["--recycle=no"], "recycle_days", json!(0));
        check(&["--time-machine=off"], "time_machine", json!("no"));
        check(&["--time-machine=2000GB"], "time_machine", json!("2TB"));
        check(&["--audit=renamed,created"], "audit", json!("created,renamed"));
        for (words, says) in [
            (&["--recycle=99999"][..], "1 to 36500 days"),
            (&["--time-machine=5MB"], "too little for backups of a Mac: give 1GiB or more"),
            (&["--audit=everything"], "'everything' is not audited: use off, all, or some of"),
            (&["--read-only=perhaps"], "write yes or no"),
        ] {
            let said = asked(&SETTINGS, words).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
    }
}
