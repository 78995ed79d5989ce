//! Names that a request may only use if the configuration has them.

use larder_api::Failure;

use larder_config::Config;

pub fn no_such_user(config: &Config, name: &str) -> Result<(), Failure> {
    match config.users.iter().any(|u| u.name == name) {
        true => Ok(()),
        false => Err(Failure::not_found(format!("there is no user '{name}'"))
            .action(format!("see who there is with: larder user list; or: larder user add {name}"))),
    }
}

pub fn no_such_group(config: &Config, name: &str) -> Result<(), Failure> {
    match config.group(name) {
        Some(_) => Ok(()),
        None => Err(Failure::not_found(format!("there is no group '{name}'"))
            .action(format!("see which there are with: larder group list; or: larder group add {name}"))),
    }
}
