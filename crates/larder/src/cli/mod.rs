//! Commands: each asks the daemon, or does the same on the disks itself when none runs.

use std::path::Path;

use larder_api::{Failure, openapi};

use larder_config::machine;

mod alerts;
pub(crate) mod args;
pub(crate) mod bench;
mod change;
mod charts;
mod check;
pub(crate) mod command;
mod config;
mod debug;
mod destroy;
mod disk;
pub(crate) mod doctor;
mod generate;
mod group;
mod history;
mod import;
mod keys;
mod link;
mod log;
mod metrics;
mod mount;
mod opens;
mod password;
mod people;
mod place;
mod pool;
pub(crate) mod power;
mod reach;
mod reborn;
mod recover;
mod replica;
mod replicate;
mod scrub;
mod sealing;
mod serve;
mod setup;
mod share;
mod share_options;
pub(crate) mod snap;
mod store;
mod token;
mod top;
mod up;
mod user;
mod user_key;
mod volume;
mod volume_name;

use command::{Cli, Command};
pub(crate) use reach::Outcome;

pub(crate) async fn run(cli: Cli) -> Result<Outcome, Failure> {
    commanded(cli).await.map_err(who_may)
}

/// "Permission denied" does not say who may.
fn who_may(failure: Failure) -> Failure {
    let is_root = rustix::process::geteuid().is_root();
    if is_root || failure.kind != larder_api::FailureKind::Denied || failure.action.is_some() {
        return failure;
    }
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| larder_base::shell::word(Path::new(&word))).collect();
    failure.action(format!(
        "you are not root, and this belongs to somebody else: try it as its owner, or with: sudo {} {}",
        larder_base::shell::word(Path::new(&machine::program())),
        words.join(" ")
    ))
}

async fn commanded(cli: Cli) -> Result<Outcome, Failure> {
    let global = cli.global;
    match cli.command {
        Command::Up(args) => up::run(&global, *args).await?,
        Command::Serve(args) => serve::run(&global, args, setup::beside::offer).await?,
        Command::Pool(command) => return pool::run(&global, command).await,
        Command::Store(command) => return store::run(&global, command).await,
        Command::Volume(command) => volume::run(&global, command).await?,
        Command::Snap(command) => snap::run(&global, command).await?,
        Command::Send(args) => replica::send(&global, args).await?,
        Command::Replicate(args) => replicate::run(&global, *args).await?,
        Command::Receive(args) => replica::receive(&global, args).await?,
        Command::Import(args) => import::run(&global, args).await?,
        Command::Check(args) => return check::run(&global, args).await,
        Command::Debug(command) => return debug::run(&global, command).await,
        Command::Recover(args) => return recover::run(&global, args).await,
        Command::Mount(args) => mount::mount(&global, args).await?,
        Command::Umount(args) => mount::umount(&global, &args).await?,
        Command::User(command) => user::run(&global, command).await?,
        Command::Group(command) => group::run(&global, command).await?,
        Command::Link(command) => link::run(&global, command).await?,
        Command::Token(command) => token::run(&global, command).await?,
        Command::Charts(args) => charts::run(&global, args).await?,
        Command::Log(args) => log::run(&global, args).await?,
        Command::Opens(args) => opens::run(&global, args).await?,
        Command::Top(args) => top::run(&global, args).await?,
        Command::Alerts(args) => return alerts::run(&global, args).await,
        Command::Damage => alerts::damage(&global).await?,
        Command::Ups => alerts::ups(&global).await?,
        Command::Audit(args) => alerts::audit(&global, args).await?,
        Command::Metrics => metrics::run(&global).await?,
        Command::Api => global.out().answer(&openapi::document(), |document| format!("{document:#}"))?,
        Command::Config(command) => config::run(&global, command).await?,
        Command::Reload => config::reload(&global).await?,
        Command::SetupLink => setup::beside::print_link(&global).await?,
        Command::Generate { dir } => generate::run(&dir)?,
        Command::Share(command) => share::run(&global, command).await?,
        Command::Disk(command) => return disk::run(&global, command).await,
        Command::Power(command) => power::run(&global, command).await?,
        Command::Bench(command) => bench::run(&global, *command).await?,
        Command::Doctor(args) => return doctor::run(&global, &args).await,
    }
    Ok(Outcome::Done)
}
