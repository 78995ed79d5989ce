//! Forms that show a state and change it.
//!
//! - `edit.only_changes_sent`: such a form carries the state it showed, so a field that the person left alone is not
//!   sent. A field that somebody else changed meanwhile is never set back: the form is refused, with its entries kept.

use larder_api::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::form::Form;

/// The hidden field with the state that a form showed.
const SHOWN_FIELD: &str = "shown";

/// The fields of a form: as shown, as sent, and as they are now.
pub struct Edit<T> {
    shown: T,
    typed: T,
    now: T,
}

/// The value of [`SHOWN_FIELD`].
pub fn stamp<T: Serialize>(fields: &T) -> String {
    serde_json::to_string(fields).unwrap_or_default()
}

/// The state that a form showed.
pub fn shown<T: DeserializeOwned>(form: &Form) -> Result<T, Failure> {
    serde_json::from_slice(form.get(SHOWN_FIELD).unwrap_or_default().as_bytes()).map_err(|_| {
        Failure::invalid("the form does not say which state it showed: nothing was changed")
            .action("Load the page again")
    })
}

pub fn changed_meanwhile(what: &str) -> Failure {
    Failure::busy(format!("{what} was changed meanwhile: nothing was saved"))
}

fn map_of<T: Serialize>(fields: &T) -> Map<String, Value> {
    // By way of the text, in which fields travel too: `json.one_form`.
    serde_json::to_vec(fields).and_then(|text| serde_json::from_slice(&text)).unwrap_or_default()
}

impl<T: Clone + PartialEq + Serialize + DeserializeOwned> Edit<T> {
    pub fn of(form: &Form, typed: T, now: T) -> Result<Self, Failure> {
        Ok(Self { shown: shown(form)?, typed, now })
    }

    /// The entry of a field that the person changed.
    pub fn changed<V: PartialEq>(&self, field: impl Fn(&T) -> V) -> Option<V> {
        let typed = field(&self.typed);
        (typed != field(&self.shown)).then_some(typed)
    }

    /// The state of now with the changes of the person.
    pub fn merged(&self) -> T {
        let (shown, typed) = (map_of(&self.shown), map_of(&self.typed));
        let mut merged = map_of(&self.now);
        for (key, value) in typed {
            if shown.get(&key) != Some(&value) {
                merged.insert(key, value);
            }
        }
        let merged = serde_json::to_vec(&merged).and_then(|text| serde_json::from_slice(&text));
        merged.unwrap_or_else(|_| self.typed.clone())
    }

    /// Refuses a form of which a changed field was changed to something else meanwhile.
    pub fn check(&self, what: &str) -> Result<(), Failure> {
        let (shown, typed, now) = (map_of(&self.shown), map_of(&self.typed), map_of(&self.now));
        let clashes = |key: &String| {
            let (shown, typed, now) = (shown.get(key), typed.get(key), now.get(key));
            typed != shown && now != shown && now != typed
        };
        if !typed.keys().any(clashes) {
            return Ok(());
        }
        Err(changed_meanwhile(what)
            .action("Your entries are in the form below. Compare them with the state of now, then save again"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;

    type Fields = BTreeMap<String, String>;

    fn fields(text: &str) -> Fields {
        text.split(' ').zip(["a", "b", "c"]).map(|(value, key)| (key.to_owned(), value.to_owned())).collect()
    }

    fn edit(shown: &str, typed: &str, now: &str) -> Edit<Fields> {
        let form = format!("{SHOWN_FIELD}={}", crate::form::encoded(&stamp(&fields(shown))));
        Edit::of(&Form::read(form.as_bytes()).unwrap(), fields(typed), fields(now)).unwrap()
    }

    #[test]
    fn a_change_of_somebody_else_is_not_set_back() {
        let check = |shown: &str, typed: &str, now: &str, merged: Option<&str>| {
            let edit = edit(shown, typed, now);
            let outcome = edit.check("it").ok().map(|()| edit.merged());
            assert_eq!(outcome, merged.map(fields), "{shown} {typed} {now}");
        };
        check("1 1 1", "1 1 1", "1 1 1", Some("1 1 1"));
        check("1 1 1", "2 1 1", "1 1 1", Some("2 1 1"));
        check("1 1 1", "2 1 1", "1 3 1", Some("2 3 1"));
        check("1 1 1", "1 1 1", "1 3 1", Some("1 3 1"));
        check("1 1 1", "2 1 1", "2 1 1", Some("2 1 1"));
        check("1 1 1", "2 1 1", "3 1 1", None);
        assert_eq!(edit("1 1 1", "2 1 1", "3 4 1").merged(), fields("2 4 1"));
        assert_eq!(edit("1 1 1", "2 1 1", "1 1 1").changed(|fields| fields["a"].clone()), Some("2".to_owned()));
        assert_eq!(edit("1 1 1", "2 1 1", "1 4 1").changed(|fields| fields["b"].clone()), None);
    }

    #[test]
    fn a_form_without_its_state_is_refused() {
        for text in ["", "shown=", "shown=x", "shown={"] {
            let form = Form::read(text.as_bytes()).unwrap();
            assert!(Edit::of(&form, fields("1 1 1"), fields("1 1 1")).is_err(), "{text}");
        }
    }
}
