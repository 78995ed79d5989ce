//! `larder link ...`: links to files that users made in the browser, through the daemon or on the data folder's files.

use clap::Subcommand;
use larder_api::endpoints::{GetLinks, RevokeLink, RevokeLinksOf};
use larder_api::{Failure, LinkStatus, LinksEnded};

use super::args::Global;
use super::people::People;
use crate::render;
use larder_config::times;

#[derive(Debug, Subcommand)]
pub(crate) enum LinkCommand {
    /// Links, by whom and where they lead; without the links themselves, which nobody keeps
    List {
        /// Those of this user [default: all]
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
    },
    /// End links at once
    Revoke {
        /// As `larder link list` shows it
        #[arg(required_unless_present = "user")]
        id: Option<String>,
        /// All links of this user
        #[arg(long, value_name = "NAME", conflicts_with = "id")]
        user: Option<String>,
    },
}

pub(super) async fn run(global: &Global, command: LinkCommand) -> Result<(), Failure> {
    let (people, out) = (People::of(global).await?, global.out());
    match command {
        LinkCommand::List { user } => {
            let mut all = people.call(GetLinks, (), ()).await?;
            all.retain(|link| user.as_ref().is_none_or(|user| link.user == *user));
            out.answer(&all, |links| shown(links))
        }
        LinkCommand::Revoke { id, user } => {
            let ended = match (id, user) {
                (_, Some(user)) => people.call(RevokeLinksOf, &user, ()).await?,
                (id, None) => people.call(RevokeLink, &id.unwrap_or_default(), ()).await?,
            };
            out.answer(&ended, ended_text)
        }
    }
}

fn ended_text(ended: &LinksEnded) -> String {
    match ended.links.as_slice() {
        [one] => format!("the link {} of '{}' opens nothing any more", one.id, render::shown(&one.user)),
        many => format!("{} links open nothing any more", many.len()),
    }
}

fn shown(links: &[LinkStatus]) -> String {
    if links.is_empty() {
        return "no links".to_owned();
    }
    let row = ["ID", "USER", "SHARE", "LEADS TO", "PASSWORD", "CREATED", "UNTIL", "LAST USE"];
    let mut rows = vec![row.map(str::to_owned).to_vec()];
    let at = |secs: u64| times::local(secs.saturating_mul(1000));
    for link in links {
        let password = if link.has_password { "yes" } else { "no" };
        rows.push(vec![
            link.id.clone(),
            link.user.clone(),
            link.share.clone(),
            link.path.clone(),
            password.to_owned(),
            at(link.created_secs),
            at(link.expires_secs),
            link.used_secs.map_or_else(|| "never".to_owned(), at),
        ]);
    }
    render::table(&rows, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_list_do_not_steer_the_terminal() {
        let link = LinkStatus {
            id: "0123456789abcdef".into(),
            user: "ann".into(),
            share: "files".into(),
            path: "files/a\u{1b}[31m\nb".into(),
            has_password: false,
            created_secs: 5,
            expires_secs: 6,
            used_secs: None,
        };
        let text = shown(&[link]);
        assert!(text.lines().count() == 2 && !text.contains('\u{1b}') && text.contains("never"), "{text}");
    }
}
