//! The keys that the configuration names: files and commands.

use std::io::Read;
use std::time::Duration;

use larder_api::Failure;
use larder_base::task;
use larder_crypt::Secret;
use larder_keep::Storage;
use larder_keep::keyrings::KEYRING_BYTES_MAX;

use larder_config::{KeySource, VolumeConfig};

/// How long the program of a `key_command` may take.
const COMMAND_PATIENCE: Duration = Duration::from_secs(20);

/// Opens a volume of the configuration with the key that it names, and applies its properties.
pub async fn unlock_configured(storage: &Storage, volume: &VolumeConfig, key: &KeySource) -> Result<(), Failure> {
    let pool = storage.pool(Some(&volume.name.pool))?;
    pool.set(&volume.name.volume, &volume.change).await?;
    if !pool.waits_for_key(&volume.name.volume).await? {
        return Ok(());
    }
    let bytes = key_of(key).await?;
    pool.unlock(&volume.name.volume, Secret::KeyFile(bytes.into())).await
}

async fn key_of(key: &KeySource) -> Result<Vec<u8>, Failure> {
    // Before the first byte of it is read.
    larder_base::wipe::begin();
    match key {
        KeySource::File(file) => read_key_file(file),
        KeySource::Command(command) => {
            let command = command.clone();
            let done = task::blocking(move || run_key_command(&command)).await;
            done.map_err(|error| Failure::internal(error.to_string()))?
        }
    }
}

/// The standard output of the key program. A program that does not end is killed.
fn run_key_command(command: &[String]) -> Result<Vec<u8>, Failure> {
    let shown = command.join(" ");
    let (program, arguments) = command.split_first().ok_or_else(|| Failure::invalid("key_command is empty"))?;
    let failed = |error: &std::io::Error| Failure::io(format_args!("cannot run '{shown}'"), error);
    let mut started = std::process::Command::new(program);
    started.args(arguments).stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    // It may say more than a log should keep.
    started.stderr(std::process::Stdio::null());
    let mut child = started.spawn().map_err(|error| failed(&error))?;
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut key = Vec::new();
        let read = output.map(|output| output.take(KEYRING_BYTES_MAX).read_to_end(&mut key));
        read.transpose().map(|_| key)
    });
    let began = std::time::Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| failed(&error))? {
            Some(status) => break status,
            None if began.elapsed() < COMMAND_PATIENCE => std::thread::sleep(Duration::from_millis(20)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                let seconds = COMMAND_PATIENCE.as_secs();
                return Err(Failure::invalid(format!("'{shown}' gave no key within {seconds} s: it was ended")));
            }
        }
    };
    if !status.success() {
        return Err(Failure::invalid(format!("'{shown}' gave no key: it ended with {status}")));
    }
    reader.join().map_err(|_| Failure::internal("the reader of a key failed"))?.map_err(|error| failed(&error))
}

/// A key file, whole.
pub fn read_key_file(file: &std::path::Path) -> Result<Vec<u8>, Failure> {
    let failed =
        |error: &std::io::Error| Failure::io(format_args!("cannot read the key file {}", file.display()), error);
    let metadata = std::fs::metadata(file).map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        return Err(Failure::invalid(format!("the key file {} is no regular file", file.display())));
    }
    let size = metadata.len();
    if size > KEYRING_BYTES_MAX {
        return Err(Failure::invalid(format!(
            "the key file {} has {size} bytes: it is some other file",
            file.display()
        )));
    }
    let mut key = Vec::new();
    let open = std::fs::File::open(file).map_err(|error| failed(&error))?;
    open.take(KEYRING_BYTES_MAX + 1).read_to_end(&mut key).map_err(|error| failed(&error))?;
    Ok(key)
}
