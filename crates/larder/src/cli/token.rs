//! `larder token ...`: app tokens, through the daemon or on the data folder's files.

use clap::Subcommand;
use larder_api::endpoints::{CreateToken, GetTokens, RevokeToken};
use larder_api::{ApiScope, Failure, TokenCreate, TokenCreated};

use super::args::Global;
use super::people::People;
use crate::render;
use larder_config::times;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token for a program of a user; it is shown once
    Create {
        user: String,
        /// What you know it by, such as phone
        #[arg(long)]
        name: Option<String>,
        /// It opens this share alone [default: all shares of the user]
        #[arg(long)]
        share: Option<String>,
        /// It changes nothing
        #[arg(long)]
        read_only: bool,
        /// It is for the API over HTTPS and opens no share: read (changes nothing) or admin (everything)
        #[arg(long, conflicts_with_all = ["share", "read_only"])]
        scope: Option<ApiScope>,
        /// It ends after a time (90d, 12h) or with a day (2027-01-31) [default: when it is revoked]
        #[arg(long, value_name = "TIME", value_parser = times::until)]
        expires: Option<i64>,
    },
    /// Tokens, without what is secret of them
    List,
    /// End a token at once
    Revoke {
        #[arg(value_name = "ID|NAME")]
        token: String,
    },
}

pub(super) async fn run(global: &Global, command: TokenCommand) -> Result<(), Failure> {
    let (people, out) = (People::of(global).await?, global.out());
    match command {
        TokenCommand::Create { user, name, share, read_only, scope, expires } => {
            let expires_secs = expires.and_then(|at| u64::try_from(at).ok());
            let request = TokenCreate { user, name, share, read_only, scope, expires_secs };
            out.answer(&people.call(CreateToken, (), request).await?, created_text)
        }
        TokenCommand::List => out.answer(&people.call(GetTokens, (), ()).await?, |tokens| render::token_list(tokens)),
        TokenCommand::Revoke { token } => {
            let revoked = people.call(RevokeToken, &token, ()).await?;
            out.answer(&revoked, |token| format!("the token {} of '{}' lets nobody in any more", token.id, token.user))
        }
    }
}

fn created_text(created: &TokenCreated) -> String {
    let (token, status) = (&created.token, &created.status);
    let end = status
        .expires_secs
        .map_or("until it is revoked".to_owned(), |at| format!("until {}", times::local(at.saturating_mul(1000))));
    if let Some(scope) = status.scope {
        let what = match scope {
            ApiScope::Read => "reading what the box tells",
            ApiScope::Admin => "everything that the box can be told to do",
        };
        return format!(
            "{token}\n\nThis is shown once. It is good for {what} by the API over HTTPS, {end}, while '{}' may do that:\n  \
             curl -k -H 'Authorization: Bearer {token}' https://HOST:10443/api/v1/info\nEnd it with: larder token revoke {}\n",
            status.user, status.id
        );
    }
    let what = match (&status.share, status.read_only) {
        (None, false) => "everything that the user may do".to_owned(),
        (None, true) => "reading what the user may read".to_owned(),
        (Some(share), false) => format!("the share '{share}' alone"),
        (Some(share), true) => format!("reading the share '{share}' alone"),
    };
    format!(
        "{token}\n\nThis is shown once. It is good for {what}, {end}, with the name '{}': as the password of WebDAV and \
         SFTP, or as\n  Authorization: Bearer {token}\nEnd it with: larder token revoke {}\n",
        status.user, status.id
    )
}
