//! `larder token ...`: app tokens, through the daemon or on the data folder's files.

use clap::Subcommand;
use larder_api::{Failure, TokenCreate, TokenCreated, TokenStatus, segment};

use super::args::Global;
use super::people::{Files, People};
use crate::daemon::Secrets;
use crate::daemon::tokens::Tokens;
use crate::{render, times};

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
        TokenCommand::Create { user, name, share, read_only, expires } => {
            let expires_secs = expires.and_then(|at| u64::try_from(at).ok());
            let request = TokenCreate { user, name, share, read_only, expires_secs };
            out.answer(&create(&people, &request).await?, created_text)
        }
        TokenCommand::List => out.answer(&list(&people).await?, |tokens| render::token_list(tokens)),
        TokenCommand::Revoke { token } => {
            let revoked = revoke(&people, &token).await?;
            out.answer(&revoked, |token| format!("the token {} of '{}' lets nobody in any more", token.id, token.user))
        }
    }
}

fn created_text(created: &TokenCreated) -> String {
    let (token, status) = (&created.token, &created.status);
    let what = match (&status.share, status.read_only) {
        (None, false) => "everything that the user may do".to_owned(),
        (None, true) => "reading what the user may read".to_owned(),
        (Some(share), false) => format!("the share '{share}' alone"),
        (Some(share), true) => format!("reading the share '{share}' alone"),
    };
    let end = status
        .expires_secs
        .map_or("until it is revoked".to_owned(), |at| format!("until {}", times::local(at.saturating_mul(1000))));
    format!(
        "{token}\n\nThis is shown once. It is good for {what}, {end}, with the name '{}': as the password of WebDAV and \
         SFTP, or as\n  Authorization: Bearer {token}\nEnd it with: larder token revoke {}\n",
        status.user, status.id
    )
}

fn tokens(files: &Files) -> Result<Tokens, Failure> {
    Tokens::open(files.folder.path(), &Secrets::open(files.folder.path())?)
}

async fn create(people: &People, request: &TokenCreate) -> Result<TokenCreated, Failure> {
    match people {
        People::Daemon(client) => client.post("/v1/tokens", request).await,
        People::Files(files) => tokens(files)?.create(&files.config()?, request),
    }
}

async fn list(people: &People) -> Result<Vec<TokenStatus>, Failure> {
    match people {
        People::Daemon(client) => client.get("/v1/tokens").await,
        People::Files(files) => Ok(tokens(files)?.list()),
    }
}

async fn revoke(people: &People, which: &str) -> Result<TokenStatus, Failure> {
    match people {
        People::Daemon(client) => client.delete(&format!("/v1/tokens/{}", segment(which)), &()).await,
        People::Files(files) => tokens(files)?.revoke(which),
    }
}
