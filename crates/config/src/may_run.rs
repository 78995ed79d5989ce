//! Keys that make larder run a program, read a file outside its data folder, or serve a folder of this machine.
//!
//! - `config.deeds_of_the_machine`: whoever sets one acts as the user that larder runs as. So they are set where that user, or root,
//!   is: in the file, and by the socket. The page and the API over HTTPS may only with `[page] may_run = true`, which is such a
//!   key itself.

use std::collections::BTreeSet;
use std::path::Path;

use toml_edit::{DocumentMut, Item, TableLike, Value};

/// Programs with their arguments.
const PROGRAMS: [&str; 7] =
    ["command", "url_command", "token_command", "password_command", "ping_command", "key_command", "then"];
/// Files whose contents larder uses, or sends elsewhere.
const FILES: [&str; 8] =
    ["url_file", "token_file", "password_file", "ping_file", "client_secret_file", "key_file", "certificate", "key"];

/// The deeds of a configuration, as they are written: `alert.command = [...]`. A text that does not parse has none.
pub fn deeds(text: &str, data: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if let Ok(document) = text.parse::<DocumentMut>() {
        collect(document.as_table(), "", data, &mut found);
    }
    found
}

fn collect(table: &dyn TableLike, place: &str, data: &Path, found: &mut BTreeSet<String>) {
    for (key, item) in table.iter() {
        match item {
            Item::Table(inner) => collect(inner, key, data, found),
            Item::ArrayOfTables(all) => all.iter().for_each(|inner| collect(inner, key, data, found)),
            Item::Value(Value::InlineTable(inner)) => collect(inner, key, data, found),
            Item::Value(Value::Array(all)) if all.iter().any(Value::is_inline_table) => {
                all.iter().filter_map(Value::as_inline_table).for_each(|inner| collect(inner, key, data, found));
            }
            Item::Value(value) if is_deed(place, key, value, table, data) => {
                let mut value = value.clone();
                value.decor_mut().clear();
                found.insert(format!("{place}.{key} = {value}"));
            }
            _ => {}
        }
    }
}

fn is_deed(place: &str, key: &str, value: &Value, table: &dyn TableLike, data: &Path) -> bool {
    let is_elsewhere = |path: &str| {
        let path = data.join(path);
        !path.starts_with(data) || path.components().any(|part| part == std::path::Component::ParentDir)
    };
    match (place, key) {
        ("page", "may_run") => true,
        // A folder of a volume otherwise.
        ("share", "folder") => !table.contains_key("volume"),
        (_, key) if PROGRAMS.contains(&key) => true,
        (_, key) if FILES.contains(&key) => value.as_str().is_some_and(is_elsewhere),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `config.deeds_of_the_machine`
    #[test]
    fn programs_foreign_files_and_folders_of_the_machine_are_deeds() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<String> = deeds(text, Path::new("/data")).into_iter().collect();
            assert_eq!(found, expected, "{text}");
        };
        check("[[alert]]\nkind = \"command\"\ncommand = [\"/bin/sh\"] # x\n", &["alert.command = [\"/bin/sh\"]"]);
        check("alert = [{ kind = \"ntfy\", url_command = [\"/bin/x\"] }]\n", &["alert.url_command = [\"/bin/x\"]"]);
        check("[ups]\nthen = [\"/bin/x\"]\n", &["ups.then = [\"/bin/x\"]"]);
        check("[[volume]]\nname = \"a\"\nkey_command = [\"/bin/x\"]\n", &["volume.key_command = [\"/bin/x\"]"]);
        check("[[alert]]\ntoken_file = \"/etc/shadow\"\n", &["alert.token_file = \"/etc/shadow\""]);
        check("[[alert]]\ntoken_file = \"../x\"\n", &["alert.token_file = \"../x\""]);
        check("[[alert]]\ntoken_file = \"/data/../etc/x\"\n", &["alert.token_file = \"/data/../etc/x\""]);
        check("[[alert]]\ntoken_file = \"token\"\nurl_file = \"/data/url\"\n", &[]);
        check("[page.oidc]\nclient_secret_file = \"/x\"\n", &["oidc.client_secret_file = \"/x\""]);
        check("[page]\noidc = { client_secret_file = \"/x\" }\n", &["oidc.client_secret_file = \"/x\""]);
        check(
            "[webdav]\ncertificate = \"/c\"\nkey = \"/k\"\n",
            &["webdav.certificate = \"/c\"", "webdav.key = \"/k\""],
        );
        check("[page]\nmay_run = true\n", &["page.may_run = true"]);
        check("[[share]]\nfolder = \"/home\"\n", &["share.folder = \"/home\""]);
        check("[[share]]\nvolume = \"tank/a\"\nfolder = \"/b\"\n", &[]);
        check("not toml", &[]);
    }

    /// Each key of the schema that names a program or a file is one of these lists.
    #[test]
    fn no_key_of_the_schema_is_left_out() {
        let schema = serde_json::to_string(&crate::schema::schema()).unwrap_or_default();
        let mut words: Vec<&str> = schema.split('"').collect();
        words.retain(|word| word.ends_with("_command") || word.ends_with("_file") || *word == "command");
        assert!(words.contains(&"token_command") && words.contains(&"key_file"), "{words:?}");
        for word in words {
            assert!(PROGRAMS.contains(&word) || FILES.contains(&word), "{word}");
        }
    }
}
