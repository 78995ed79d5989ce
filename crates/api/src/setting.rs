//! One setting of a share as data: its key, its values, what it means, and whom a change of it
//! interrupts.

use std::collections::BTreeMap;

use larder_base::units::ByteSize;
use serde_json::Value;

/// Values by the names of their settings in requests and answers.
pub type Values = BTreeMap<String, Value>;

/// The values of a setting. `Null` is no value, where that means something.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// true or false.
    Switch,
    /// A switch that the file writes as one of two words, the one for false first; and what they
    /// are.
    Pair([&'static str; 2], &'static str),
    /// One of these words, and what they are.
    Word(&'static [&'static str], &'static str),
    /// `off`, `all`, or some of these words; and what they are.
    Some(&'static [&'static str], &'static str),
    Number,
    /// Days up to a bound, and those that `true` stands for; no value: false.
    Days {
        most: u32,
        usual: u32,
    },
    /// `yes` or at least so many bytes; no value: false. The text is what a smaller size is too
    /// little for.
    Size {
        least: u64,
        of: &'static str,
    },
    /// Addresses and networks. A word typed in their place stands for no value.
    Networks {
        none: &'static str,
    },
    /// Users and `@groups`.
    Names,
    /// The same, or `all`; no value: all, unless another list names somebody.
    Everybody,
}

/// The changes of a value that interrupt clients of a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    Never,
    /// Each.
    Changed,
    /// From false or no value, or to it.
    Switched,
    /// From false to true.
    On,
}

impl Interrupts {
    pub fn is_met(self, was: &Value, is: &Value) -> bool {
        let is_on = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
        match self {
            Self::Never => false,
            Self::Changed => was != is,
            Self::Switched => is_on(was) != is_on(is),
            Self::On => !is_on(was) && is_on(is),
        }
    }
}

/// A value that is worth a word, that word, and a sentence. `*` is any value but the default; `{}`
/// is the value.
pub type Said = (&'static str, &'static str, &'static str);

/// `settings.declared_once`
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// In the file.
    pub key: &'static str,
    /// In requests and answers.
    pub name: &'static str,
    pub kind: Kind,
    /// As JSON.
    pub default: &'static str,
    /// One sentence or two, for the help of the command line, the schemas and the documentation.
    pub about: &'static str,
    /// A value of the file for the documentation; the default where there is none.
    pub example: &'static str,
    /// The field's name on the page. Empty: it has none of its own there.
    pub label: &'static str,
    /// The door that it opens.
    pub door: Option<&'static str>,
    pub said: &'static [Said],
    /// Of NFS alone: nothing is said of it where that is closed.
    pub nfs_alone: bool,
    /// The file has it even where it is the default.
    pub is_written: bool,
    pub smb: Interrupts,
    pub nfs: Interrupts,
}

impl Setting {
    pub const fn new(key: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Setting {
        Setting {
            key,
            name: key,
            kind,
            default,
            about,
            example: "",
            label: "",
            door: None,
            said: &[],
            nfs_alone: false,
            is_written: false,
            smb: Interrupts::Never,
            nfs: Interrupts::Never,
        }
    }

    pub fn default(&self) -> Value {
        serde_json::from_str(self.default).unwrap_or_default()
    }

    /// `value` as a value of this setting, with the sizes and words that mean the same made one.
    pub fn check(&self, value: Value) -> Result<Value, String> {
        let text = value.as_str().unwrap_or_default();
        let is_names = || value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
        let off = |value: &Value| value.is_null() || value.as_bool() == Some(false);
        match self.kind {
            Kind::Switch | Kind::Pair(..) if value.is_boolean() => Ok(value),
            Kind::Word(words, _) if words.contains(&text) => Ok(value),
            Kind::Some(words, what) if value.is_string() => some_of(words, what, text).map(Value::from),
            Kind::Number if value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()) => Ok(value),
            Kind::Days { .. } if off(&value) => Ok(Value::Null),
            Kind::Days { usual, .. } if value == Value::Bool(true) => Ok(usual.into()),
            Kind::Days { most, .. } => match value.as_u64() {
                Some(days) if (1..=most.into()).contains(&days) => Ok(value),
                _ => Err(format!("{} is 1 to {most} days, not {value}: for none write false", self.key)),
            },
            Kind::Size { .. } if off(&value) || matches!(text, "no" | "off" | "false") => Ok(Value::Null),
            Kind::Size { .. } if value == Value::Bool(true) || matches!(text, "yes" | "on" | "true") => {
                Ok("yes".into())
            }
            Kind::Size { least, of } if value.is_string() => {
                let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
                match size.0 >= least {
                    true => Ok(size.exact().into()),
                    false => Err(format!("{size} is too little for {of}: give {} or more", ByteSize(least).exact())),
                }
            }
            Kind::Networks { .. } if value.is_null() || is_names() => Ok(value),
            Kind::Names if is_names() => Ok(value),
            Kind::Everybody if value.is_null() || text == "all" || is_names() => Ok(value),
            _ => Err(self.refusal(&value)),
        }
    }

    fn refusal(&self, value: &Value) -> String {
        let (key, given) = (self.key, value.as_str().map_or_else(|| value.to_string(), |text| format!("'{text}'")));
        match self.kind {
            Kind::Word(words, what) => format!("{given} is not {what}: use {}", alternatives(words)),
            Kind::Pair(words, what) => format!("{given} is not {what}: use {}", alternatives(&words)),
            kind => format!("{key} is {}, not {given}", kind.form()),
        }
    }

    /// The value that a person typed on the command line or the page.
    pub fn typed(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        let switch = match text {
            "yes" | "true" | "on" => Some(true),
            "no" | "false" | "off" => Some(false),
            _ => None,
        };
        match self.kind {
            Kind::Switch | Kind::Pair(..) => switch.map(Value::Bool).ok_or_else(|| "write yes or no".to_owned()),
            Kind::Number => text.parse::<u32>().map(Value::from).map_err(|_| format!("'{text}' is no number")),
            Kind::Days { .. } => match (switch, text.parse::<u32>()) {
                (Some(is_on), _) => self.check(is_on.into()),
                (None, Ok(days)) => self.check(days.into()),
                (None, Err(_)) if text.is_empty() => Ok(Value::Null),
                _ => Err(format!("'{text}' is no number of days: write one, yes or no")),
            },
            Kind::Word(..) | Kind::Some(..) | Kind::Size { .. } => self.check(text.into()),
            Kind::Everybody if text == "all" => Ok(text.into()),
            Kind::Names | Kind::Everybody if text == "none" => Ok(Value::Array(Vec::new())),
            Kind::Networks { .. } | Kind::Names | Kind::Everybody => {
                let words = text.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty());
                Ok(words.map(Value::from).collect())
            }
        }
    }

    /// The value in a request, where null and an absent value are one.
    pub fn asked(&self, value: Value) -> Value {
        match self.kind {
            Kind::Days { .. } if value.is_null() => 0.into(),
            Kind::Size { .. } if value.is_null() => "no".into(),
            Kind::Networks { .. } if value.is_null() => Value::Array(Vec::new()),
            _ => value,
        }
    }

    /// The value that a request asks for.
    pub fn granted(&self, asked: Value) -> Result<Value, String> {
        let none = self.asked(Value::Null);
        self.check(if asked == none { Value::Null } else { asked })
    }

    /// The value as a person types it.
    pub fn text(&self, value: &Value) -> String {
        match value {
            Value::Null if matches!(self.kind, Kind::Size { .. }) => "no".to_owned(),
            Value::Null => String::new(),
            Value::Bool(is_on) => if *is_on { "yes" } else { "no" }.to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            value => value.to_string(),
        }
    }

    fn said(&self, value: &Value) -> Option<(&Said, String)> {
        let text = self.text(value).replace(", ", " ");
        let is_default = value.is_null() || *value == self.default();
        let said = self.said.iter().find(|(of, ..)| *of == text && !value.is_null() || *of == "*" && !is_default)?;
        Some((said, text))
    }

    /// A word or two about a value that differs from the usual one.
    pub fn word(&self, value: &Value) -> Option<String> {
        self.said(value).map(|((_, word, _), text)| word.replace("{}", &text)).filter(|word| !word.is_empty())
    }

    pub fn sentence(&self, value: &Value) -> Option<String> {
        self.said(value).map(|((.., sentence), text)| sentence.replace("{}", &text)).filter(|said| !said.is_empty())
    }
}

/// No share has it. Tests of the crates that read declarations show by it that one declaration is
/// all that a setting takes.
#[doc(hidden)]
pub const EXAMPLE: Setting = Setting {
    label: "The tune that clients hear while they wait",
    said: &[("*", "plays {}", "clients hear {} while they wait")],
    ..Setting::new("waiting_tune", Kind::Word(&["none", "harp"], "a tune"), "\"none\"", "A tune for clients that wait.")
};

impl Kind {
    /// The values, in words.
    pub fn form(self) -> &'static str {
        match self {
            Self::Switch => "true or false",
            Self::Pair(..) | Self::Word(..) => "a word",
            Self::Some(..) => "words with commas between them",
            Self::Number => "a whole number from 0 to 4294967295",
            Self::Days { .. } => "true, false or { days = 30 }",
            Self::Size { .. } => "true, false or a size, such as \"2TB\"",
            Self::Networks { .. } => "a list of networks, such as [\"192.168.1.0/24\"]",
            Self::Names => "a list of users, such as [\"ann\"]",
            Self::Everybody => "\"all\" or a list of users, such as [\"ann\"]",
        }
    }
}

fn alternatives(words: &[&str]) -> String {
    match words {
        [rest @ .., end] if !rest.is_empty() => format!("{} or {end}", rest.join(", ")),
        words => words.concat(),
    }
}

fn some_of(words: &[&str], what: &str, text: &str) -> Result<String, String> {
    match text {
        "off" | "no" => return Ok("off".to_owned()),
        "all" | "yes" => return Ok("all".to_owned()),
        _ => {}
    }
    let typed: Vec<&str> = text.split(',').map(str::trim).collect();
    if let Some(word) = typed.iter().find(|word| !words.contains(word)) {
        return Err(format!("'{word}' is not {what}: use off, all, or some of {}", words.join(", ")));
    }
    let chosen: Vec<&str> = words.iter().copied().filter(|word| typed.contains(word)).collect();
    Ok(if chosen.len() == words.len() { "all".to_owned() } else { chosen.join(",") })
}
