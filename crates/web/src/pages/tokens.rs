//! App tokens and links as pages show them.

use askama::Template;
use hyper::StatusCode;
use larder_api::endpoints::CreateToken;
use larder_api::{Failure, LinkStatus, TokenCreate, TokenStatus};

use crate::text::Moment;
use crate::visit::{Answer, Frame, Local, Outcome, Visit, rendered};

pub struct TokenView {
    pub id: String,
    pub name: String,
    pub user: String,
    pub opens: String,
    pub created: Moment,
    pub expires: Option<Moment>,
    pub expired: bool,
}

impl TokenView {
    pub fn of(token: &TokenStatus) -> Self {
        let share = token.share.as_ref().map_or_else(|| "all shares".to_owned(), |share| format!("share {share}"));
        Self {
            id: token.id.clone(),
            name: token.name.clone(),
            user: token.user.clone(),
            opens: match token.scope {
                Some(scope) => format!("the API, {}", scope.word()),
                None if token.read_only => format!("{share}, read only"),
                None => share,
            },
            created: Moment::of_secs(token.created_secs),
            expires: token.expires_secs.map(Moment::of_secs),
            expired: token.expired,
        }
    }
}

pub struct LinkView {
    pub id: String,
    pub user: String,
    pub path: String,
    pub has_password: bool,
    pub expires: Moment,
    pub used: Option<Moment>,
}

impl LinkView {
    pub fn of(link: &LinkStatus) -> Self {
        Self {
            id: link.id.clone(),
            user: link.user.clone(),
            path: link.path.clone(),
            has_password: link.has_password,
            expires: Moment::of_secs(link.expires_secs),
            used: link.used_secs.map(Moment::of_secs),
        }
    }
}

#[derive(Template)]
#[template(path = "token.html")]
struct TokenPage {
    frame: Frame,
    token: String,
    name: String,
    back: String,
}

/// Makes a token of a user. The answer shows it, and no later page can.
pub async fn create(visit: &Visit<'_>, user: String, section: &'static str, back: Local) -> Answer {
    let made = async {
        let days = match visit.form.text("days") {
            "" => None,
            days => Some(days.parse::<u32>().map_err(|_| Failure::invalid(format!("'{days}' is no number of days")))?),
        };
        let now = u64::try_from(visit.server.clock.now().secs).unwrap_or(0);
        let request = TokenCreate {
            user,
            name: visit.form.filled("name"),
            share: visit.form.filled("share"),
            read_only: visit.form.is_checked("read_only"),
            scope: None,
            expires_secs: days.map(|days| now + u64::from(days) * 86_400),
        };
        visit.call(CreateToken, (), &request).await
    };
    match made.await {
        Ok(created) => {
            let frame = visit.frame(section, "New token");
            let back = back.path().to_owned();
            let page = TokenPage { frame, token: created.token, name: created.status.name, back };
            Ok(Outcome::Page(StatusCode::OK, rendered(&page)?))
        }
        Err(failure) => visit.back(back, Err(failure)),
    }
}
