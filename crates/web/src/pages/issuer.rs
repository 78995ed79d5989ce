//! Logging in by an issuer of OpenID Connect: to it, and back.
//!
//! The issuer's redirection is a request of another site, to which a browser adds no cookie of ours (`SameSite=Strict`). So [`back`] looks
//! at nothing, and leads to [`finish`] from a page of this site.

use askama::Template;
use hyper::StatusCode;

use super::{factor, log_in};
use crate::form::encoded;
use crate::note::Note;
use crate::oidc::{Bound, Issuer, Trouble};
use crate::ticket::Tickets;
use crate::visit::{Answer, Frame, Local, Outcome, Visit, page as show};

const PURPOSE: &str = "issuer";
const NONCE: &str = "issuer nonce";
const PROOF: &str = "issuer proof";

fn redirect_address(visit: &Visit<'_>) -> String {
    let scheme = if visit.server.options.is_secure { "https" } else { "http" };
    format!("{scheme}://{}{}", visit.host, Local::of("/login/back").path())
}

fn refused(visit: &Visit<'_>, issuer: &Issuer, next: Local, trouble: &Trouble) -> Answer {
    let label = issuer.label();
    let (status, text) = match trouble {
        Trouble::Away(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{label} does not answer as it should: {why}. Your password here works."),
        ),
        Trouble::Refused(why) => (StatusCode::UNAUTHORIZED, format!("{label} did not let you in: {why}.")),
        Trouble::KeyUnknown => (StatusCode::UNAUTHORIZED, format!("{label} signed with an unknown key.")),
    };
    log_in::again(visit, status, next, "", Some(Note::fault(text)))
}

fn without(visit: &Visit<'_>, next: Local) -> Answer {
    let text = "This box knows no issuer of log-ins.";
    log_in::again(visit, StatusCode::NOT_FOUND, next, "", Some(Note::fault(text)))
}

/// Sends the browser to the issuer.
pub async fn begin(visit: &Visit<'_>) -> Answer {
    let next = Local::after_log_in(visit.query.text("next"));
    let Some(issuer) = &visit.server.issuer else { return without(visit, next) };
    let token = log_in::token_before(visit);
    let state = visit.server.tickets.draw(PURPOSE, &token, next.path(), visit.now());
    let ticket = Tickets::nonce_of(&state);
    let (nonce, proof) = (visit.server.tickets.derived(NONCE, &ticket), visit.server.tickets.derived(PROOF, &ticket));
    let redirect = redirect_address(visit);
    let bound = Bound { redirect: &redirect, state: &state, nonce: &nonce, proof: &proof };
    match issuer.way(&bound, visit.now()).await {
        Ok(way) => Ok(Outcome::Away(way, token)),
        Err(trouble) => refused(visit, issuer, next, &trouble),
    }
}

#[derive(Template)]
#[template(path = "issuer.html")]
struct BackPage {
    frame: Frame,
    href: String,
}

pub async fn back(visit: &Visit<'_>) -> Answer {
    let fields = ["code", "state", "error"].map(|name| format!("{name}={}", encoded(visit.query.text(name))));
    let href = format!("{}?{}", Local::of("/login/finish").path(), fields.join("&"));
    show(&BackPage { frame: visit.frame("", "Log in"), href })
}

/// Lets the person in whom the issuer's code is for.
pub async fn finish(visit: &Visit<'_>) -> Answer {
    let none = || Local::of("/");
    let Some(issuer) = &visit.server.issuer else { return without(visit, none()) };
    let (token, given) = (visit.token.as_deref().unwrap_or_default(), visit.query.text("state"));
    let tickets = &visit.server.tickets;
    // `tickets.bound`, `tickets.once`
    let ticket = tickets.check(given, PURPOSE, token, visit.now());
    let Some(ticket) = ticket.filter(|ticket| tickets.use_up(ticket, visit.now())) else {
        let text = "This log-in was begun in another browser, is too old, or is over already. Begin again.";
        return log_in::again(visit, StatusCode::UNAUTHORIZED, none(), "", Some(Note::fault(text)));
    };
    let next = Local::after_log_in(&ticket.text);
    if visit.server.factors.is_damaged() {
        // `factors.damage_opens_nothing`
        return Ok(Outcome::Go(Local::of("/login")));
    }
    let code = visit.query.text("code");
    if code.is_empty() {
        // Core 3.1.2.6. The word is of a stranger: it is not shown.
        let trouble = Trouble::Refused("it gave no code".to_owned());
        return refused(visit, issuer, next, &trouble);
    }
    let (nonce, proof) = (tickets.derived(NONCE, &ticket.nonce), tickets.derived(PROOF, &ticket.nonce));
    let redirect = redirect_address(visit);
    let bound = Bound { redirect: &redirect, state: given, nonce: &nonce, proof: &proof };
    match issuer.user(code, &bound, visit.now(), visit.server.clock.now().secs).await {
        Ok(user) => match visit.server.log_in.standing(&user) {
            // `oidc.known_here`
            None => {
                let trouble = Trouble::Refused(format!("there is no user {user} here"));
                refused(visit, issuer, next, &trouble)
            }
            Some(standing) => {
                visit.server.log_in.entered(&user, visit.peer.addr, issuer.label());
                factor::after_first(visit, &user, standing, next).await
            }
        },
        Err(trouble) => refused(visit, issuer, next, &trouble),
    }
}
