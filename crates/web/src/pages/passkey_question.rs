//! Questions that pages have for a browser's passkeys, and passkeys as their user sees them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::factor::Passkey;
use crate::text::Moment;
use crate::ticket::GOOD_FOR;
use crate::visit::Visit;

/// Purposes of tickets: the question of one is no answer to another.
pub const ADD: &str = "passkey add";
pub const FIRST: &str = "passkey first";
pub const SECOND: &str = "passkey second";

pub struct PasskeyView {
    pub id: String,
    pub name: String,
    pub party: String,
    pub made: Moment,
    pub used: Option<Moment>,
}

impl PasskeyView {
    pub fn of(one: &Passkey) -> Self {
        let moment = |secs: i64| Moment::of_ms(secs.saturating_mul(1000));
        Self {
            id: one.id.clone(),
            name: one.name.clone(),
            party: one.party.clone(),
            made: moment(one.made_secs),
            used: one.used_secs.map(moment),
        }
    }
}

pub fn listed<'a>(all: impl Iterator<Item = &'a Passkey>) -> Vec<Value> {
    all.map(|one| json!({"type": "public-key", "id": one.id})).collect()
}

pub fn millis(time: Duration) -> u64 {
    time.as_secs() * 1000
}

/// The question for a log-in without a password (WebAuthn 5.5).
pub fn first_question(visit: &Visit<'_>, token: &str) -> Option<String> {
    let party = visit.server.party(&visit.host)?;
    let challenge = visit.server.tickets.draw(FIRST, token, "", visit.now());
    let asked = json!({"challenge": challenge, "rpId": party.id, "userVerification": "required",
        "timeout": millis(GOOD_FOR)});
    Some(asked.to_string())
}

/// The question after the password. `None`: the user has no passkey for this name.
pub fn second_question(visit: &Visit<'_>, user: &str, token: &str) -> Option<String> {
    let party = visit.server.party(&visit.host)?;
    let own = visit.server.factors.passkeys(user);
    let allowed = listed(own.iter().filter(|one| one.party == party.id));
    if allowed.is_empty() {
        return None;
    }
    let challenge = visit.server.tickets.draw(SECOND, token, user, visit.now());
    let asked = json!({"challenge": challenge, "rpId": party.id, "allowCredentials": allowed,
        "userVerification": "discouraged", "timeout": millis(GOOD_FOR)});
    Some(asked.to_string())
}
