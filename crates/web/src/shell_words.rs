//! Commands in the daemon's messages, as the page says them.
//!
//! A message of the daemon names the command that helps. Somebody at the page has no command line, so the page names its own place for
//! it: "People, Set a password" for `larder user passwd ann`. A command that the page has no place for stays as it is.
//!
//! - `words.at_the_way_in`: refusals change where answers of the daemon arrive (`ask`), and notes where they are made. Texts within other answers
//!   change where a page takes them.

use larder_api::Failure;

const PREFIX: &str = "larder ";

/// The longest beginning of a command decides.
const PLACES: [(&str, &str); 62] = [
    ("alerts", "Alerts"),
    ("alerts ack", "Alerts, Acknowledge"),
    ("alerts release", "Alerts, It is wanted"),
    ("bench history", "Care, Benches"),
    ("bench all", "Care, Benches"),
    ("bench disk", "Care, Benches"),
    ("config diff", "Care, Configuration"),
    ("config check", "Care, Configuration"),
    ("disk list", "Storage, Disks"),
    ("disk health", "Storage, Disks"),
    ("doctor", "Care, Doctor"),
    ("explain", "Explain"),
    ("group", "People, Groups"),
    ("group add", "People, New group"),
    ("group add-member", "People, Change a group"),
    ("group remove", "People, Remove a group"),
    ("group remove-member", "People, Change a group"),
    ("link", "People, Links"),
    ("link revoke", "People, Links, Revoke"),
    ("log", "Care, Log"),
    ("opens", "Connections, Open files"),
    ("pool add", "Storage, Add disks"),
    ("pool clear", "Storage, Clear error counters"),
    ("pool import", "Storage, Open the pool"),
    ("pool list", "Storage"),
    ("pool offline", "Storage, Take offline"),
    ("pool online", "Storage, Take online"),
    ("pool rebalance", "Storage, Change the layout"),
    ("pool remove", "Storage, Remove a disk"),
    ("pool replace", "Storage, Replace a disk"),
    ("pool scrub", "Storage, Start scrub"),
    ("pool scrub status", "Storage"),
    ("pool status", "Storage"),
    ("power", "Care, Power and battery"),
    ("reload", "Care, Read the configuration again"),
    ("replicate", "Care, Replicate a volume"),
    ("replicate accept", "Care, Take replicas of another box"),
    ("replicate status", "Care, Replication"),
    ("share add", "Shares, New share"),
    ("share list", "Shares"),
    ("share remove", "Shares, Remove"),
    ("share set", "Shares, Change"),
    ("snap", "the page of the volume, Snapshots"),
    ("snap clone", "the page of the snapshot, Clone"),
    ("snap create", "the page of the volume, Take snapshot"),
    ("snap destroy", "the page of the snapshot, Destroy"),
    ("snap schedule", "Care, Snapshot schedules"),
    ("token", "People, App tokens"),
    ("token create", "People, New token"),
    ("token revoke", "People, App tokens, Revoke"),
    ("user add", "People, New user"),
    ("user list", "People"),
    ("user passwd", "People, Set a password"),
    ("user remove", "People, Remove a user"),
    ("user set", "People, Set a role"),
    ("volume create", "Storage, New volume"),
    ("volume encrypt", "the page of the volume, Encrypt this volume"),
    ("volume key", "the page of the volume, Encryption"),
    ("volume list", "Storage, Volumes"),
    ("volume set", "the page of the volume, Properties"),
    ("volume unlock", "the page of the volume, Unlock"),
    ("ups", "Care, Power and battery"),
];

/// The page has no place for these, although it has one for their beginning.
const LEFT: [&str; 1] = ["pool online --discard"];

/// Words after which a command goes on to the end of the clause. Elsewhere it is part of a sentence.
const BEFORE_A_COMMAND: [&str; 3] = [":", "with", "&&"];

/// Verbs of sentences whose subject is a command: they are no arguments.
const VERBS: [&str; 5] = ["finds", "has", "lists", "says", "shows"];

/// A text of the daemon, with places of the page instead of commands.
pub fn on_page(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(PREFIX) {
        let (before, from) = rest.split_at(at);
        let is_word = before.chars().next_back().or(out.chars().next_back()).is_none_or(|c| !c.is_alphanumeric());
        let command = from.get(PREFIX.len()..).unwrap_or_default();
        let Some((words, place)) = place_of(command).filter(|_| is_word) else {
            out.push_str(before);
            out.push_str(PREFIX);
            rest = command;
            continue;
        };
        out.push_str(before);
        let arguments = command.get(words.len()..).unwrap_or_default();
        let is_quoted = out.ends_with(['`', '\'', '"']);
        let is_clause = is_quoted
            || out.trim_end_matches(' ').is_empty()
            || out.ends_with('\n')
            || BEFORE_A_COMMAND.iter().any(|word| out.trim_end().ends_with(word));
        rest = arguments.get(arguments_len(arguments, is_clause)..).unwrap_or_default();
        if is_quoted && let Some(quote) = out.pop() {
            rest = rest.strip_prefix(quote).unwrap_or(rest);
        }
        joined(&mut out);
        out.push_str(place);
    }
    out + rest
}

/// A refusal of the daemon.
pub fn failure_on_page(failure: Failure) -> Failure {
    let message = on_page(&failure.message);
    Failure { message, action: failure.action.as_deref().map(on_page), ..failure }
}

fn place_of(command: &str) -> Option<(&'static str, &'static str)> {
    let fits = |words: &str| {
        let next = command.strip_prefix(words).map(|rest| rest.chars().next());
        next.is_some_and(|next| next.is_none_or(|c| !c.is_alphanumeric() && c != '-'))
    };
    if LEFT.into_iter().any(fits) {
        return None;
    }
    PLACES.into_iter().filter(|(words, _)| fits(words)).max_by_key(|(words, _)| words.len())
}

/// "with: " and "&&" lead to a command, not to a place.
fn joined(out: &mut String) {
    for (command, place) in [(" with: ", " under: "), (" with ", " under "), (" && ", ", then ")] {
        if out.ends_with(command) {
            out.truncate(out.len() - command.len());
            out.push_str(place);
            return;
        }
    }
}

/// What of a text belongs to the command whose words come before it. Within a sentence that is options and placeholders alone.
fn arguments_len(text: &str, is_clause: bool) -> usize {
    let mut end = 0;
    while let Some(argument) = text.get(end..).and_then(|rest| rest.strip_prefix(' ')) {
        let len = argument_len(argument);
        let word = argument.get(..len).unwrap_or_default();
        let is_placeholder = word.starts_with('-') || (!word.is_empty() && !word.chars().any(char::is_lowercase));
        let is_other = len == 0 || matches!(word, "&&" | "|") || VERBS.contains(&word);
        if is_other || !(is_clause || is_placeholder) {
            break;
        }
        end += 1 + len;
    }
    end
}

/// An argument as the shell reads it, without the punctuation of the sentence around it.
fn argument_len(text: &str) -> usize {
    let mut quoted = false;
    let end = text.char_indices().find(|(at, c)| {
        let opens = *c == '\'' && (quoted || *at == 0);
        quoted ^= opens;
        !quoted && !opens && (c.is_whitespace() || matches!(c, ';' | '`' | '\'' | '"' | '(' | ')'))
    });
    let word = text.get(..end.map_or(text.len(), |(at, _)| at)).unwrap_or_default();
    word.trim_end_matches([',', '.']).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_becomes_a_place_of_the_page() {
        for (text, on_the_page) in [
            ("to set the password: larder user passwd ann", "to set the password: People, Set a password"),
            ("see which there are with: larder share list", "see which there are under: Shares"),
            (
                "see who there is with: larder user list; or: larder user add ann",
                "see who there is under: People; or: People, New user",
            ),
            ("See larder disk health; replace the disk", "See Storage, Disks; replace the disk"),
            ("larder pool status -v lists them; restore them", "Storage lists them; restore them"),
            ("Check its health (larder disk health); then", "Check its health (Storage, Disks); then"),
            (
                "or add a disk:\nlarder pool add tank NEW-DISK && larder pool rebalance tank",
                "or add a disk:\nStorage, Add disks, then Storage, Change the layout",
            ),
            (
                "larder pool replace tank '/mnt/a b; c' /mnt/new\nlarder pool clear tank",
                "Storage, Replace a disk\nStorage, Clear error counters",
            ),
            ("larder snap schedule says why", "Care, Snapshot schedules says why"),
            ("why; see 'larder pool status tank'", "why; see Storage"),
            (
                "take the number out, then: larder reload",
                "take the number out, then: Care, Read the configuration again",
            ),
            (
                "remove the later ones with larder snap destroy v@a, then send it again",
                "remove the later ones under the page of the snapshot, Destroy, then send it again",
            ),
            // The page has no place for these, or they are no commands.
            (
                "stop it; start it with: larder serve --config FILE",
                "stop it; start it with: larder serve --config FILE",
            ),
            (
                "give its side up: larder pool online --discard tank d3",
                "give its side up: larder pool online --discard tank d3",
            ),
            ("give it back: larder pool online tank d3", "give it back: Storage, Take online"),
            ("a newer larder is needed", "a newer larder is needed"),
            ("Pantrylarder pool list", "Pantrylarder pool list"),
            ("larder poolé list", "larder poolé list"),
            ("", ""),
        ] {
            assert_eq!(on_page(text), on_the_page);
        }
    }

    #[test]
    fn the_places_are_those_of_the_navigation() {
        let sections = ["Alerts", "Care", "Connections", "Explain", "People", "Shares", "Storage", "the page of the"];
        for (words, place) in PLACES {
            assert!(sections.iter().any(|section| place.starts_with(section)), "{words}");
        }
    }
}
