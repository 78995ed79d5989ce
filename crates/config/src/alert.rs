//! `[[alert]]`: who is told, and how. What is secret is a file or a command, never written here.

use std::ops::Range;
use std::path::Path;

use larder_alerts::Severity;
use larder_alerts::send::{Mail, MailServer, MailTls, Receiver, Secret, Text, Way, check_url};
use serde::Deserialize;

use super::spanned::Spanned;

const NAME_CHARS_MAX: usize = 40;
const RECEIVERS_MAX: usize = 32;
const PING_SECONDS: u64 = 5 * 60;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertConfig {
    pub receivers: Vec<Receiver>,
    pub pings: Vec<PingConfig>,
}

/// A dead man's switch that wants to hear of this box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingConfig {
    pub name: String,
    pub url: Text,
    pub every_seconds: u64,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawAlert {
    /// "webhook", "ntfy", "mail" or "command"; absent where there is a ping.
    kind: Option<Spanned<String>>,
    /// What the alert is called; its kind when absent.
    name: Option<Spanned<String>>,
    /// What is told: "info", "warning" or "critical" and worse; "warning" when absent.
    min: Option<Spanned<String>>,
    /// Whether a digest is told each week; by mail alone when absent.
    digest: Option<bool>,
    /// The address of a webhook or of a topic of ntfy.
    url: Option<Spanned<String>>,
    /// A file with the address.
    url_file: Option<Spanned<String>>,
    /// A program, by its whole path, that says the address.
    url_command: Option<Spanned<Vec<String>>>,
    /// A file with the token of a webhook or of ntfy.
    token_file: Option<Spanned<String>>,
    /// A program that says the token.
    token_command: Option<Spanned<Vec<String>>>,
    /// The address may be http:// of another machine.
    #[serde(default)]
    allow_http: bool,
    /// Who gets the mail.
    to: Option<Spanned<Vec<String>>>,
    /// Whom the mail is from; the first of `to` when absent.
    from: Option<Spanned<String>>,
    /// The server of mail; the program sendmail when absent.
    server: Option<Spanned<String>>,
    /// Of the server of mail; 465, 587 or 25 by `tls` when absent.
    port: Option<u16>,
    /// "tls", "starttls" or "none"; "tls" when absent.
    tls: Option<Spanned<String>>,
    /// The user at the server of mail.
    user: Option<String>,
    /// A file with the password at the server of mail.
    password_file: Option<Spanned<String>>,
    /// A program that says the password.
    password_command: Option<Spanned<Vec<String>>>,
    /// A program of this machine that is told, with its arguments.
    command: Option<Spanned<Vec<String>>>,
    /// An address that is asked for as long as the box is well.
    ping: Option<Spanned<String>>,
    /// A file with that address.
    ping_file: Option<Spanned<String>>,
    /// A program that says that address.
    ping_command: Option<Spanned<Vec<String>>>,
    /// Between two pings: 1 to 1440; 5 when absent.
    every_minutes: Option<Spanned<u64>>,
}

/// What is wrong, and where in the file.
type Checked<T> = Result<T, (Range<usize>, String)>;

fn wrong<S>(place: &Spanned<S>, what: impl Into<String>) -> (Range<usize>, String) {
    (place.span(), what.into())
}

fn at<S, T>(place: &Spanned<S>, result: Result<T, String>) -> Checked<T> {
    result.map_err(|what| wrong(place, what))
}

fn optional<T>(text: Option<Spanned<String>>, parse: impl Fn(&str) -> Result<T, String>) -> Checked<Option<T>> {
    text.map(|text| at(&text, parse(text.get_ref()))).transpose()
}

impl AlertConfig {
    pub(super) fn parse(raw: Vec<Spanned<RawAlert>>, folder: &Path) -> Checked<AlertConfig> {
        let mut config = AlertConfig::default();
        for alert in raw {
            let place = Spanned::new(alert.span(), ());
            let alert = alert.into_inner();
            if config.receivers.len() + config.pings.len() >= RECEIVERS_MAX {
                return Err(wrong(&place, format!("there are more than {RECEIVERS_MAX} [[alert]]")));
            }
            if alert.kind.is_some() {
                config.receivers.push(receiver(&place, alert, folder)?);
            } else {
                config.pings.push(ping(&place, alert, folder)?);
            }
        }
        Ok(config)
    }

    /// Where the entries are written, in the order of [`AlertConfig::names`].
    pub(super) fn places(raw: &[Spanned<RawAlert>]) -> Vec<Range<usize>> {
        let (receivers, pings): (Vec<_>, Vec<_>) = raw.iter().partition(|alert| alert.get_ref().kind.is_some());
        receivers.into_iter().chain(pings).map(Spanned::span).collect()
    }

    /// The names of all of them, which are to be unique.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let receivers = self.receivers.iter().map(|one| one.name.clone());
        receivers.chain(self.pings.iter().map(|ping| ping.name.clone()))
    }
}

fn ping(place: &Spanned<()>, raw: RawAlert, folder: &Path) -> Checked<PingConfig> {
    let what = "an alert has kind = \"webhook\", \"ntfy\", \"mail\" or \"command\", or it has ping = \"https://...\"";
    let url = text_of(place, raw.ping, raw.ping_file, raw.ping_command, raw.allow_http, folder)?;
    let url = url.ok_or_else(|| wrong(place, what))?;
    let every_seconds = match raw.every_minutes {
        Some(minutes) if !(1..=24 * 60).contains(minutes.get_ref()) => {
            return Err(wrong(&minutes, "every_minutes is 1 to 1440"));
        }
        Some(minutes) => minutes.into_inner() * 60,
        None => PING_SECONDS,
    };
    Ok(PingConfig { name: alert_name(raw.name, "ping")?, url, every_seconds })
}

fn receiver(place: &Spanned<()>, mut raw: RawAlert, folder: &Path) -> Checked<Receiver> {
    let Some(kind) = raw.kind.take() else { return Err(wrong(place, "an alert has a kind")) };
    let name = alert_name(raw.name.take(), kind.get_ref())?;
    let min = optional(raw.min.take(), str::parse::<Severity>)?.unwrap_or(Severity::Warning);
    let digest = raw.digest.unwrap_or(kind.get_ref() == "mail");
    let way = match kind.get_ref().as_str() {
        "webhook" | "ntfy" => {
            let token = secret_of(raw.token_file, raw.token_command, "token", folder)?;
            let url = text_of(place, raw.url, raw.url_file, raw.url_command, raw.allow_http, folder)?;
            let needs = || format!("a {} needs url = \"https://...\", url_file or url_command", kind.get_ref());
            let url = url.ok_or_else(|| wrong(place, needs()))?;
            if kind.get_ref() == "ntfy" { Way::Ntfy { url, token } } else { Way::Webhook { url, token } }
        }
        "mail" => Way::Mail(mail(place, raw, folder)?),
        "command" => match raw.command {
            Some(words) if words.get_ref().first().is_some_and(|program| program.starts_with('/')) => {
                Way::Command(words.into_inner())
            }
            Some(words) => {
                return Err(wrong(&words, "command = [\"/path/of/a/program\", ...] begins with a whole path"));
            }
            None => return Err(wrong(place, "a command needs command = [\"/path/of/a/program\", ...]")),
        },
        other => {
            let what = format!("'{other}' is no kind of alert: use webhook, ntfy, mail or command");
            return Err(wrong(&kind, what));
        }
    };
    Ok(Receiver { name, way, min, digest })
}

fn mail(place: &Spanned<()>, raw: RawAlert, folder: &Path) -> Checked<Mail> {
    let is_address = |text: &String| text.contains('@') && !text.contains(char::is_control);
    let to = raw.to.filter(|to| !to.get_ref().is_empty() && to.get_ref().iter().all(is_address));
    let to = to.ok_or_else(|| wrong(place, "mail needs to = [\"NAME@HOST\"]"))?.into_inner();
    let from = match raw.from {
        Some(from) if !is_address(from.get_ref()) => return Err(wrong(&from, "from is NAME@HOST")),
        Some(from) => from.into_inner(),
        None => to.first().cloned().unwrap_or_default(),
    };
    let secret = secret_of(raw.password_file, raw.password_command, "password", folder)?;
    let Some(server) = raw.server else {
        return match secret {
            Some(_) => Err(wrong(place, "a password is for a server: add server = \"HOST\"")),
            None => Ok(Mail { from, to, server: None }),
        };
    };
    let tls = match raw.tls.as_ref().map(|word| word.get_ref().as_str()) {
        None | Some("tls") => MailTls::Implicit,
        Some("starttls") => MailTls::Start,
        Some("none") => MailTls::None,
        Some(_) => return Err(wrong(place, "tls is \"tls\" (port 465), \"starttls\" (port 587) or \"none\"")),
    };
    let host = server.get_ref().clone();
    if let Some((name, port)) = host.rsplit_once(':').filter(|(name, _)| !name.contains(':'))
        && port.parse::<u16>().is_ok()
    {
        return Err(wrong(&server, format!("server is the host alone: write server = \"{name}\" and port = {port}")));
    }
    let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if tls == MailTls::None && !is_here {
        return Err(wrong(
            &server,
            "tls = \"none\" is for a server on this machine: mail would cross the network in clear",
        ));
    }
    let login = match (raw.user, secret) {
        (Some(user), Some(secret)) => Some((user, secret)),
        (None, None) => None,
        _ => return Err(wrong(place, "user and password_file (or password_command) are named together")),
    };
    let usual = match tls {
        MailTls::Implicit => 465,
        MailTls::Start => 587,
        MailTls::None => 25,
    };
    Ok(Mail { from, to, server: Some(MailServer { host, port: raw.port.unwrap_or(usual), tls, login }) })
}

/// A name by which messages wait: it stays the same when others come and go.
fn alert_name(name: Option<Spanned<String>>, usual: &str) -> Checked<String> {
    let check = |text: &str| {
        let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        match !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.chars().all(is_fit) {
            true => Ok(text.to_owned()),
            false => Err(format!("'{text}' is no name of an alert: write letters, digits, '-', '_' or '.'")),
        }
    };
    Ok(optional(name, check)?.unwrap_or_else(|| usual.to_owned()))
}

fn secret_of(
    file: Option<Spanned<String>>,
    command: Option<Spanned<Vec<String>>>,
    what: &str,
    folder: &Path,
) -> Checked<Option<Secret>> {
    match (file, command) {
        (Some(file), Some(_)) => Err(wrong(&file, format!("{what}_file and {what}_command: name one of them"))),
        (Some(file), None) => Ok(Some(Secret::File(folder.join(file.into_inner())))),
        (None, Some(command)) => match command.get_ref().first().is_some_and(|program| program.starts_with('/')) {
            true => Ok(Some(Secret::Command(command.into_inner()))),
            false => Err(wrong(&command, format!("{what}_command begins with the whole path of a program"))),
        },
        (None, None) => Ok(None),
    }
}

/// An address, or where it is kept.
fn text_of(
    place: &Spanned<()>,
    written: Option<Spanned<String>>,
    file: Option<Spanned<String>>,
    command: Option<Spanned<Vec<String>>>,
    allow_http: bool,
    folder: &Path,
) -> Checked<Option<Text>> {
    let secret = secret_of(file, command, "url", folder)?;
    match (written, secret) {
        (Some(_), Some(_)) => Err(wrong(place, "the address is written here, or it comes from a file or command")),
        (Some(url), None) => {
            at(&url, check_url(url.get_ref(), allow_http))?;
            Ok(Some(Text::Written(url.into_inner())))
        }
        (None, secret) => Ok(secret.map(|from| Text::Secret { from, allow_http })),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::Config;

    fn parse(text: &str) -> Result<AlertConfig, String> {
        Config::parse(text, Path::new("/etc/larder.toml")).map(|config| config.alerts).map_err(|e| e.message)
    }

    #[test]
    fn receivers_as_people_write_them() {
        let config = parse(
            "[[alert]]\nkind = \"ntfy\"\nurl = \"https://ntfy.sh/box\"\ntoken_file = \"token\"\nmin = \"critical\"\n\
             [[alert]]\nkind = \"webhook\"\nurl_file = \"/run/hook\"\nname = \"slack\"\ndigest = true\n\
             [[alert]]\nkind = \"mail\"\nto = [\"ann@example.org\"]\nserver = \"smtp.example.org\"\nuser = \"ann\"\n\
             password_command = [\"/usr/bin/pass\", \"mail\"]\n\
             [[alert]]\nkind = \"command\"\ncommand = [\"/usr/local/bin/tell\"]\n\
             [[alert]]\nping = \"https://hc-ping.com/1\"\nevery_minutes = 10\n",
        )
        .unwrap();
        let names: Vec<&str> = config.receivers.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["ntfy", "slack", "mail", "command"]);
        let [ntfy, slack, mail, _] = &config.receivers[..] else { panic!() };
        assert_eq!((ntfy.min, ntfy.digest, slack.digest, mail.digest), (Severity::Critical, false, true, true));
        let Way::Ntfy { token: Some(Secret::File(file)), .. } = &ntfy.way else { panic!("{:?}", ntfy.way) };
        assert_eq!(file, &PathBuf::from("/etc/token"));
        let Way::Mail(Mail { from, server: Some(server), .. }) = &mail.way else { panic!() };
        assert_eq!((from.as_str(), server.port, server.tls), ("ann@example.org", 465, MailTls::Implicit));
        assert_eq!((config.pings[0].name.as_str(), config.pings[0].every_seconds), ("ping", 600));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let check = |text: &str, words: &str| {
            let said = parse(&format!("[[alert]]\n{text}\n")).unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
        };
        check("name = \"x\"", "an alert has kind");
        check("kind = \"pigeon\"", "is no kind of alert");
        check("kind = \"ntfy\"", "needs url");
        check("kind = \"ntfy\"\nurl = \"http://ntfy.example.org/x\"", "allow_http");
        check("kind = \"ntfy\"\nurl = \"https://ann:secret@ntfy.example.org/x\"", "token_file");
        check("kind = \"webhook\"\nurl = \"https://x.org/\"\nmin = \"bad\"", "is not a severity");
        check("kind = \"webhook\"\nurl = \"https://x.org/\"\npassword = \"x\"", "unknown key");
        check("kind = \"command\"\ncommand = [\"tell\"]", "whole path");
        check("kind = \"mail\"\nto = []", "needs to =");
        check("kind = \"mail\"\nto = [\"a@b\"]\nserver = \"x.org\"\ntls = \"none\"", "in clear");
        check("kind = \"mail\"\nto = [\"a@b\"]\nserver = \"x.org:25\"", "port = 25");
        check("kind = \"mail\"\nto = [\"a@b\"]\nserver = \"x.org\"\nuser = \"a\"", "named together");
        check(
            "kind = \"ntfy\"\nurl = \"https://a.org/x\"\n[[alert]]\nkind = \"ntfy\"\nurl = \"https://b.org/x\"",
            "two [[alert]]",
        );
        assert!(parse("[[alert]]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:8123/x\"").is_ok());
        assert!(parse("[[alert]]\nkind = \"webhook\"\nurl = \"http://home.lan/x\"\nallow_http = true").is_ok());
    }
}
