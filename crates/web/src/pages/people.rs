//! Users and groups, and what lets them in without a password: tokens and links.

use std::collections::BTreeMap;

use askama::Template;
use larder_api::endpoints::{
    AddGroup, AddUser, ChangeGroup, GetGroups, GetLinks, GetTokens, GetUsers, RemoveGroup, RemoveUser, RevokeLink,
    RevokeToken, SetPassword, SetUser,
};
use larder_api::{
    Failure, GroupAdd, GroupChange, PasswordSet, UserAdd, UserChange, UserPassword, UserRole, UserStatus,
};

use super::password::somebody_else;
use super::tokens::{self, LinkView, TokenView};
use crate::edit::{self, stamp};
use crate::factor::Factors;
use crate::note::Note;
use crate::visit::{Answer, Frame, Local, Visit, page as show};

pub struct UserView {
    pub name: String,
    pub uid: u32,
    pub groups: String,
    /// Of the password.
    pub password: &'static str,
    pub keys: usize,
    pub role: &'static str,
    pub has_factor: bool,
}

impl UserView {
    fn of(user: &UserStatus, factors: &Factors, has_issuer: bool) -> Self {
        let groups = user.group_names.join(", ");
        Self {
            name: user.name.clone(),
            uid: user.uid,
            groups,
            password: match (user.has_password, has_issuer || !factors.passkeys(&user.name).is_empty()) {
                (true, _) if user.needs_password_for_smb => "set it again for SMB",
                (true, _) => "set",
                (false, true) => "none",
                (false, false) => "none: cannot log in",
            },
            keys: user.keys,
            role: user.role.word(),
            has_factor: factors.has(&user.name),
        }
    }
}

pub struct GroupView {
    pub name: String,
    pub gid: u32,
    pub members: String,
    pub shares: String,
}

#[derive(Template)]
#[template(path = "people.html")]
struct PeoplePage {
    frame: Frame,
    users: Vec<UserView>,
    groups: Vec<GroupView>,
    tokens: Vec<TokenView>,
    links: Vec<LinkView>,
    is_demanded: bool,
    /// Users with a second factor.
    guarded: Vec<String>,
    /// Users who are somebody at the issuer.
    issued: Vec<String>,
    /// The roles that the form was made with (`edit.only_changes_sent`).
    roles_shown: String,
    /// Name and role of a user who could not be made: the form keeps them.
    refused: Option<(String, String)>,
}

impl PeoplePage {
    fn refused_role(&self) -> &str {
        self.refused.as_ref().map_or("", |(_, role)| role)
    }
}

/// The role of each user.
fn roles(users: &[UserStatus]) -> BTreeMap<String, UserRole> {
    users.iter().map(|user| (user.name.clone(), user.role)).collect()
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    show(&people_page(visit).await?)
}

async fn people_page(visit: &Visit<'_>) -> Result<PeoplePage, Failure> {
    let users = visit.ask(GetUsers).await?;
    let groups = visit.ask(GetGroups).await?.into_iter().map(|group| GroupView {
        name: group.name,
        gid: group.gid,
        members: group.members.join(", "),
        shares: group.shares.join(", "),
    });
    let tokens = visit.ask(GetTokens).await?;
    let links = visit.ask(GetLinks).await?;
    let factors = &visit.server.factors;
    Ok(PeoplePage {
        frame: visit.frame("people", "People"),
        refused: None,
        is_demanded: factors.is_demanded(),
        roles_shown: stamp(&roles(&users)),
        guarded: users.iter().filter(|user| factors.has(&user.name)).map(|user| user.name.clone()).collect(),
        issued: users.iter().filter(|user| factors.is_issued(&user.name)).map(|user| user.name.clone()).collect(),
        users: users.iter().map(|user| UserView::of(user, factors, visit.server.issuer.is_some())).collect(),
        groups: groups.collect(),
        tokens: tokens.iter().map(TokenView::of).collect(),
        links: links.iter().map(LinkView::of).collect(),
    })
}

fn back(visit: &Visit<'_>, outcome: Result<Note, Failure>) -> Answer {
    visit.back(Local::of("/people"), outcome)
}

/// A password as it was typed: blanks count.
fn password(visit: &Visit<'_>) -> Result<String, Failure> {
    let password = visit.form.get("password").unwrap_or_default();
    if password.is_empty() {
        return Err(Failure::invalid("the password is missing"));
    }
    Ok(password.to_owned())
}

fn nobody(shares: &[String]) -> Vec<String> {
    shares.iter().map(|share| format!("Nobody may use the share {share} over SMB any more.")).collect()
}

pub async fn add_user(visit: &Visit<'_>) -> Answer {
    let change = async {
        let name = visit.required("name", "the name of the user")?;
        let role = Some(role(visit)?);
        let request =
            UserAdd { name, uid: None, gid: None, groups: Vec::new(), role, password: password(visit)?, force: false };
        let added = visit.call(AddUser, (), &request).await?;
        Ok::<_, Failure>(Note::done(format!("The user {} is there.", added.user.name)).with(added.notes))
    };
    match change.await {
        Ok(note) => back(visit, Ok(note)),
        Err(failure) => {
            let mut page = people_page(visit).await?;
            page.frame.note = Some(Note::from(failure));
            page.refused = Some((visit.form.text("name").to_owned(), visit.form.text("role").to_owned()));
            show(&page)
        }
    }
}

/// The role that a form names.
fn role(visit: &Visit<'_>) -> Result<UserRole, Failure> {
    visit.form.filled("role").map_or(Ok(UserRole::User), |word| word.parse().map_err(Failure::invalid))
}

pub async fn set_role(visit: &Visit<'_>) -> Answer {
    let change = async {
        let name = visit.required("user", "the user")?;
        let role = role(visit)?;
        if name == visit.user() && role != UserRole::Owner {
            let failure =
                Failure::invalid("nobody takes the own ownership away here: the box would be without an owner");
            return Err(failure.action("make somebody else owner, who can do it"));
        }
        let now = roles(&visit.ask(GetUsers).await?);
        let shown: BTreeMap<String, UserRole> = edit::shown(&visit.form)?;
        let now = now.get(&name);
        if now != shown.get(&name) && now != Some(&role) {
            let word = now.map_or("gone", |role| role.word());
            let failure = edit::changed_meanwhile(&format!("the role of {name}"));
            return Err(failure.action(format!("{name} is {word} now. Set the role again if you still mean it")));
        }
        let user = visit.call(SetUser, &name, &UserChange { role: Some(role) }).await?;
        Ok(Note::done(format!("{} is {} now.", user.name, user.role.word())))
    };
    back(visit, change.await)
}

pub async fn set_password(visit: &Visit<'_>) -> Answer {
    let change = async {
        let user = visit.required("user", "the user")?;
        somebody_else(visit, &user)?;
        let keep_factors = visit.form.is_checked("keep_factors");
        let request = UserPassword { password: password(visit)?, force: false, keep_links: false, keep_factors };
        let ended = visit.call(SetPassword, &user, &request).await?;
        visit.server.sessions.end_others(&user, None);
        let done = format!("The password of {user} is set. The sessions of {user} have ended.");
        Ok(Note::done(done).with(ended_with(&user, &ended)))
    };
    back(visit, change.await)
}

/// What ended with a password, and what did not.
fn ended_with(user: &str, ended: &PasswordSet) -> Vec<String> {
    let links = (!ended.links.is_empty()).then(|| format!("{} links of {user} have ended.", ended.links.len()));
    let keys = ended.passkeys.iter().map(|name| format!("The passkey {name} of {user} has ended."));
    let codes = ended.codes.then(|| format!("The codes of {user}'s telephone have ended."));
    let issued = ended.issued.then(|| format!("{user} is nobody at the issuer of log-ins any more."));
    let rest = format!("App tokens and SSH keys of {user} stay: revoke those that {user} does not know.");
    let notes = ended.notes.iter().cloned();
    links.into_iter().chain(keys).chain(codes).chain(issued).chain([rest]).chain(notes).collect()
}

pub async fn remove_user(visit: &Visit<'_>) -> Answer {
    let change = async {
        let user = visit.required("user", "the user")?;
        somebody_else(visit, &user)?;
        visit.typed(&user)?;
        let removed = visit.about(RemoveUser, &user).await?;
        visit.server.sessions.end_others(&user, None);
        Ok(Note::done(format!("The user {user} was removed. Files stay.")).with(nobody(&removed.shares_for_nobody)))
    };
    back(visit, change.await)
}

pub async fn add_group(visit: &Visit<'_>) -> Answer {
    let change = async {
        let name = visit.required("name", "the name of the group")?;
        let request = GroupAdd { name, gid: None, members: visit.form.words("members"), force: false };
        let group = visit.call(AddGroup, (), &request).await?;
        Ok(Note::done(format!("The group {} is there.", group.name)))
    };
    back(visit, change.await)
}

pub async fn change_group(visit: &Visit<'_>) -> Answer {
    let change = async {
        let name = visit.required("group", "the group")?;
        let request = GroupChange { add: visit.form.words("add"), remove: visit.form.words("remove") };
        visit.call(ChangeGroup, &name, &request).await?;
        Ok(Note::done(format!("The group {name} is changed.")))
    };
    back(visit, change.await)
}

pub async fn remove_group(visit: &Visit<'_>) -> Answer {
    let change = async {
        let name = visit.required("group", "the group")?;
        visit.typed(&name)?;
        let removed = visit.about(RemoveGroup, &name).await?;
        Ok(Note::done(format!("The group {name} was removed. Files stay.")).with(nobody(&removed.shares_for_nobody)))
    };
    back(visit, change.await)
}

pub async fn create_token(visit: &Visit<'_>) -> Answer {
    let user = visit.required("user", "the user");
    match user.and_then(|user| somebody_else(visit, &user).map(|()| user)) {
        Ok(user) => tokens::create(visit, user, "people", Local::of("/people")).await,
        Err(failure) => back(visit, Err(failure)),
    }
}

pub async fn revoke_token(visit: &Visit<'_>) -> Answer {
    let change = async {
        let token = visit.about(RevokeToken, &visit.required("token", "the token")?).await?;
        Ok(Note::done(format!("The token {} of {} opens nothing any more.", token.name, token.user)))
    };
    back(visit, change.await)
}

pub async fn revoke_link(visit: &Visit<'_>) -> Answer {
    let change = async {
        visit.about(RevokeLink, &visit.required("link", "the link")?).await?;
        Ok(Note::done("The link opens nothing any more."))
    };
    back(visit, change.await)
}
