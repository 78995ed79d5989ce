//! A user's own page: password, keys, tokens, links and sessions.

use std::collections::BTreeMap;

use askama::Template;
use larder_api::endpoints::{
    ChangeUserKeys, GetAudit, GetLinks, GetOwners, GetShares, GetSnapshots, GetTokens, GetUserKeys, GetUsers,
    RevokeLink, RevokeToken, SetPassword,
};
use larder_api::{AuditQuery, Failure, OwnerKind, ShareStatus, SnapshotStatus, UserKey, UserKeysChange, UserPassword};

use super::passkey_question::PasskeyView;
use super::tokens::{self, LinkView, TokenView};
use super::volume::as_it_was;
use crate::note::Note;
use crate::text::{Moment, duration, percent, size, weekday};
use crate::visit::{Answer, Frame, Local, Outcome, Theme, Visit, page as show};

pub struct SessionView {
    pub id: String,
    pub is_this: bool,
    pub agent: String,
    pub from: String,
    pub idle: String,
    pub age: String,
}

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage {
    frame: Frame,
    groups: String,
    shares: Vec<String>,
    keys: Vec<UserKey>,
    tokens: Vec<TokenView>,
    links: Vec<LinkView>,
    sessions: Vec<SessionView>,
    past: Vec<PastView>,
    rooms: Vec<RoomView>,
    has_password: bool,
    has_factor: bool,
    has_codes: bool,
    passkeys: Vec<PasskeyView>,
    lately: Vec<LatelyView>,
    /// The name that a new passkey is for; none where the page was opened by an address.
    passkey_party: Option<String>,
    owes_factor: bool,
    recovery_left: usize,
}

/// What the user's files take up on the volume of a share.
pub struct RoomView {
    pub share: String,
    pub used: String,
    pub quota: Option<String>,
    /// How full the quota is.
    pub percent: u8,
}

/// A volume that is locked, or another machine's, has no answer.
async fn rooms(visit: &Visit<'_>, shares: &[&ShareStatus]) -> Vec<RoomView> {
    let mut all: Vec<RoomView> = Vec::new();
    let mut volumes: Vec<&str> = Vec::new();
    for share in shares.iter().filter(|share| !share.volume.is_empty()) {
        if volumes.contains(&share.volume.as_str()) {
            continue;
        }
        volumes.push(&share.volume);
        let Ok(owners) = visit.about(GetOwners, &share.volume).await else { continue };
        let is_me = |owner: &&larder_api::OwnerUse| {
            owner.kind == OwnerKind::User && owner.name.as_deref() == Some(visit.user())
        };
        let Some(own) = owners.iter().find(is_me) else { continue };
        let percent = own.quota_bytes.map_or(0, |quota| percent(own.used_bytes, quota));
        let (used, quota) = (size(own.used_bytes), own.quota_bytes.map(size));
        all.push(RoomView { share: share.name.clone(), used, quota, percent });
    }
    all
}

/// Where the user logged in, at which door, and when last.
pub struct LatelyView {
    pub from: String,
    pub door: String,
    pub at: Moment,
}

/// Records that are in memory; log-ins of others among them are nobody's business.
const RECORDS_LOOKED_AT: u32 = 500;
const LATELY_SHOWN_MAX: usize = 20;

async fn lately(visit: &Visit<'_>) -> Result<Vec<LatelyView>, Failure> {
    let query = AuditQuery { newest: Some(RECORDS_LOOKED_AT), ..AuditQuery::default() };
    let mut records = visit.call(GetAudit, (), &query).await?;
    records.retain(|record| record.kind == "login" && record.who == visit.user());
    records.sort_by_key(|record| std::cmp::Reverse(record.at_ms));
    let mut all: Vec<LatelyView> = Vec::new();
    for record in records {
        let is_there = all.iter().any(|one| one.from == record.from && one.door == record.by);
        if !is_there && all.len() < LATELY_SHOWN_MAX {
            all.push(LatelyView { from: record.from, door: record.by, at: Moment::of_ms_unsigned(record.at_ms) });
        }
    }
    Ok(all)
}

/// A share as it was, once for each of the last days that have a snapshot.
pub struct PastView {
    pub share: String,
    /// The moment, and the page. One is shown for each day of UTC; the script shows one for each day of the browser's zone.
    pub points: Vec<(PastDay, String)>,
}

#[derive(Clone)]
pub struct PastDay {
    pub weekday: String,
    pub at: Moment,
    pub snapshot: String,
    /// The newest of a day of UTC.
    pub is_shown: bool,
}

/// Days on the page; older ones are in the file view.
const DAYS_SHOWN_MAX: usize = 14;
const DAY_MS: u64 = 86_400_000;
/// Days of other zones end within days of UTC: each of these parts has a snapshot on the page.
const PART_MS: u64 = DAY_MS / 4;

/// The newest snapshot of each part of the last days, the newest first.
fn days(snapshots: &[SnapshotStatus]) -> Vec<PastDay> {
    let (mut all, mut days, mut last): (Vec<PastDay>, usize, Option<u64>) = (Vec::new(), 0, None);
    for snapshot in snapshots.iter().rev() {
        let ms = snapshot.created_ms;
        let is_new_day = last.is_none_or(|last| last / DAY_MS != ms / DAY_MS);
        if last.is_some_and(|last| last / PART_MS == ms / PART_MS) {
            continue;
        }
        days += usize::from(is_new_day);
        if days > DAYS_SHOWN_MAX {
            break;
        }
        last = Some(ms);
        let (at, snapshot) = (Moment::of_ms_unsigned(ms), snapshot.name.clone());
        all.push(PastDay { weekday: weekday(ms), at, snapshot, is_shown: is_new_day });
    }
    all
}

/// The file view decides what of it the user may read. A volume of several shares is asked once.
async fn past(visit: &Visit<'_>, shares: &[&ShareStatus]) -> Vec<PastView> {
    let mut all = Vec::new();
    let mut known: BTreeMap<&str, Vec<PastDay>> = BTreeMap::new();
    for share in shares.iter().filter(|share| !share.volume.is_empty()) {
        if !known.contains_key(share.volume.as_str()) {
            // A volume that is locked has no answer.
            let status = visit.about(GetSnapshots, &share.volume).await;
            known.insert(&share.volume, status.map(|status| days(&status.snapshots)).unwrap_or_default());
        }
        let one = [(*share).clone()];
        let point = |day: &PastDay| {
            let (_, href) = as_it_was(visit, &one, &share.volume, &day.snapshot).pop()?;
            Some((day.clone(), href))
        };
        let days = known.get(share.volume.as_str()).into_iter().flatten();
        let points: Vec<_> = days.filter_map(point).collect();
        if !points.is_empty() {
            all.push(PastView { share: share.name.clone(), points });
        }
    }
    all
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    let me = visit.user().to_owned();
    let users = visit.ask(GetUsers).await?;
    let groups = users.iter().find(|user| user.name == me).map(|user| user.group_names.clone()).unwrap_or_default();
    let is_mine = |user: &String| *user == me || groups.iter().any(|group| user.strip_prefix('@') == Some(group));
    let shares = visit.ask(GetShares).await?;
    let shares: Vec<_> = shares.iter().filter(|share| share.people.lets_in(is_mine)).collect();
    let tokens = visit.ask(GetTokens).await?;
    let links = visit.ask(GetLinks).await?;
    let sessions =
        visit.session.as_ref().map(|own| visit.server.sessions.of_user(own, visit.now())).unwrap_or_default();
    show(&AccountPage {
        frame: visit.frame("me", "Your account"),
        groups: groups.join(", "),
        past: past(visit, &shares).await,
        rooms: rooms(visit, &shares).await,
        has_password: visit.server.log_in.standing(&me).is_some_and(|standing| standing.has_password),
        has_factor: visit.server.factors.has(&me),
        has_codes: visit.server.factors.has_codes(&me),
        passkeys: visit.server.factors.passkeys(&me).iter().map(PasskeyView::of).collect(),
        lately: lately(visit).await?,
        passkey_party: visit.server.party(&visit.host).map(|party| party.id),
        owes_factor: visit.server.factors.owes(&me),
        recovery_left: visit.server.factors.recovery_left(&me),
        shares: shares.iter().map(|share| share.name.clone()).collect(),
        keys: visit.about(GetUserKeys, &me).await?,
        tokens: tokens.iter().filter(|token| token.user == me).map(TokenView::of).collect(),
        links: links.iter().filter(|link| link.user == me).map(LinkView::of).collect(),
        sessions: sessions
            .into_iter()
            .map(|one| SessionView {
                id: one.id,
                is_this: one.is_this,
                agent: one.agent,
                from: one.from.map(|from| from.to_string()).unwrap_or_default(),
                idle: duration(one.idle.as_secs()),
                age: duration(one.age.as_secs()),
            })
            .collect(),
    })
}

fn back(visit: &Visit<'_>, outcome: Result<Note, Failure>) -> Answer {
    visit.back(Local::of("/me"), outcome)
}

pub async fn choose_theme(visit: &Visit<'_>) -> Answer {
    let to = Local::read(visit.form.text("back")).unwrap_or(Local::of("/"));
    Ok(Outcome::Choose(to, Theme::of(visit.form.text("theme"))))
}

pub async fn set_password(visit: &Visit<'_>) -> Answer {
    let change = async {
        let password = visit.form.get("password").unwrap_or_default().to_owned();
        if password.is_empty() || visit.form.get("again") != Some(&password) {
            return Err(Failure::invalid("the new password and its repetition differ, or are empty"));
        }
        let keep_links = visit.form.is_checked("keep_links");
        // The user has proved who that is.
        let request = UserPassword { password, force: false, keep_links, keep_factors: true };
        let set = visit.call(SetPassword, visit.user(), &request).await?;
        let ended = visit.server.sessions.end_others(visit.user(), visit.session.as_ref());
        visit.renew_own();
        let others = (ended > 0).then(|| format!("{ended} other sessions have ended."));
        Ok(Note::done("Your password is set.").with(others.into_iter().chain(set.notes).collect()))
    };
    back(visit, change.await)
}

pub async fn add_key(visit: &Visit<'_>) -> Answer {
    let change = async {
        let line = visit.required("key", "the key")?;
        visit.call(ChangeUserKeys, visit.user(), &UserKeysChange::Add(vec![line])).await?;
        Ok(Note::done("The key lets you in over SFTP."))
    };
    back(visit, change.await)
}

pub async fn remove_key(visit: &Visit<'_>) -> Answer {
    let change = async {
        let fingerprint = visit.required("key", "the key")?;
        visit.call(ChangeUserKeys, visit.user(), &UserKeysChange::Remove(fingerprint)).await?;
        Ok(Note::done("The key was removed."))
    };
    back(visit, change.await)
}

pub async fn create_token(visit: &Visit<'_>) -> Answer {
    tokens::create(visit, visit.user().to_owned(), "me", Local::of("/me")).await
}

pub async fn revoke_token(visit: &Visit<'_>) -> Answer {
    let change = async {
        let id = visit.required("token", "the token")?;
        let tokens = visit.ask(GetTokens).await?;
        if !tokens.iter().any(|token| token.id == id && token.user == visit.user()) {
            return Err(Failure::not_found("you have no such token"));
        }
        visit.about(RevokeToken, &id).await?;
        Ok(Note::done("The token opens nothing any more."))
    };
    back(visit, change.await)
}

pub async fn revoke_link(visit: &Visit<'_>) -> Answer {
    let change = async {
        let id = visit.required("link", "the link")?;
        let links = visit.ask(GetLinks).await?;
        if !links.iter().any(|link| link.id == id && link.user == visit.user()) {
            return Err(Failure::not_found("you have no such link"));
        }
        visit.about(RevokeLink, &id).await?;
        Ok(Note::done("The link opens nothing any more."))
    };
    back(visit, change.await)
}

pub async fn end_session(visit: &Visit<'_>) -> Answer {
    let has_ended = visit.server.sessions.end_id(visit.user(), visit.form.text("session"));
    let outcome = if has_ended {
        Ok(Note::done("The session has ended."))
    } else {
        Err(Failure::not_found("that session is over"))
    };
    back(visit, outcome)
}

pub async fn end_others(visit: &Visit<'_>) -> Answer {
    let ended = visit.server.sessions.end_others(visit.user(), visit.session.as_ref());
    back(visit, Ok(Note::done(format!("Ended: {ended} other sessions."))))
}
