//! The welcome of `larder up` to a person: the shares, and commands to copy for each kind of client.

use std::net::SocketAddr;
use std::path::Path;

use larder_api::{PoolStatus, Ready, ShareStatus};
use larder_base::shell;
use larder_base::units::ByteSize;

use larder_config::machine;
use larder_config::reach_others;
use larder_document::folder;
use larder_servers::Servers;

/// `told`: say the password (on the run that made it).
pub(crate) fn text(
    ready: &Ready,
    pools: &[PoolStatus],
    shares: &[ShareStatus],
    servers: &Servers,
    told: bool,
) -> String {
    let mut text = String::from("larder is serving\n\n");
    for pool in pools {
        text.push_str(&format!(
            "  pool      {} ({}, {} disks, {}), {} available\n",
            pool.name,
            pool.layout,
            pool.disks.len(),
            pool.state,
            ByteSize(pool.available_bytes)
        ));
        if let Some(status) = &pool.status {
            text.push_str(&format!("            {status}\n"));
        }
        if let Some(action) = &pool.action {
            text.push_str(&format!("            action: {action}\n"));
        }
    }
    let user = ready.user.as_deref().unwrap_or("larder");
    text.push_str(&format!("  user      {user}\n"));
    match &ready.password {
        Some(password) if told => {
            text.push_str(&format!(
                "  password  {password}    (shown this once; change it: larder user passwd {user})\n"
            ));
        }
        _ => text.push_str(&format!("  password  as before (forgotten? larder user passwd {user})\n")),
    }
    if let Some(key) = &ready.recovery_key {
        text.push_str(&format!(
            "  recovery  {key}\n            (shown this once: write it down, and keep it away from these disks. If this machine dies, it or your\n             \
             password makes another one this box again: larder up --import DIR...)\n"
        ));
    }
    text.push_str(&format!("  data      {}\n", ready.data.display()));
    if let Some(mount) = &ready.mount {
        text.push_str(&format!("  mounted   {}\n", mount.display()));
    }
    if let (Some(nfs), Some(addr)) = (&ready.nfs, servers.nfs_addr()) {
        let export = nfs.export.as_deref().unwrap_or("/");
        let share = shares.iter().find(|share| share.export() == nfs.export.as_deref());
        text.push_str(&nfs_text(addr, export, share));
    }
    if let (Some(smb), Some(addr)) = (&ready.smb, servers.smb_addr()) {
        let share = smb.share.as_deref().unwrap_or("");
        text.push_str(&smb_text(&machine::host_outward(addr), addr.port(), share, user));
    }
    match servers.sftp_addr() {
        Some(addr) => {
            let key = servers.sftp_fingerprint().unwrap_or_default();
            text.push_str(&sftp_text(&machine::host_outward(addr), addr.port(), user, key));
        }
        None => text.push_str("\nSFTP is off; for sftp, scp, sshfs and rclone: larder up --sftp :10022\n"),
    }
    if let Some(page) = &ready.page {
        let certificate = servers.webdavs_fingerprint().unwrap_or_default();
        text.push_str(&page_text(&page.url, certificate));
    }
    match (servers.webdavs_addr(), servers.webdav_addr()) {
        (Some(addr), _) => {
            let certificate = servers.webdavs_fingerprint().unwrap_or_default();
            let about = format!("; certificate {certificate}");
            text.push_str(&webdav_text("https", &about, &machine::host_outward(addr), addr.port(), user));
        }
        (None, Some(addr)) => text.push_str(&webdav_text("http", "", &machine::host_outward(addr), addr.port(), user)),
        (None, None) => {
            text.push_str("\nWebDAV is off; for browsers, rclone, davfs2 and Finder: larder up --webdavs :10443\n");
        }
    }
    text.push_str(&format!("\nStop with Ctrl-C. In another terminal: {}\n", next_command(&ready.data)));
    text
}

/// Works as it stands from any folder: the program as the shell finds it, and this larder if others run beside it.
fn next_command(data: &Path) -> String {
    let mut words = vec![shell::word(Path::new(&machine::program()))];
    if folder::announced().len() > 1 {
        words.extend(["--data".to_owned(), shell::word(data)]);
    }
    words.push("pool status".to_owned());
    words.join(" ")
}

/// A share that only this machine may use comes with the line that opens it, and with addresses that work here.
fn nfs_text(addr: SocketAddr, export: &str, share: Option<&ShareStatus>) -> String {
    let here_alone = share.is_none_or(|share| !reach_others(share.machines()));
    let host = if here_alone { machine::host_local(addr) } else { machine::host_outward(addr) };
    let (host, port) = (bracketed(&host), addr.port());
    let places = match share {
        Some(share) if !here_alone => share.machines().join(" "),
        _ => "this machine alone".to_owned(),
    };
    let mut text = format!("\nNFS from {places} (no password: anybody on these machines is whoever he says)\n");
    if here_alone {
        text.push_str(
            "  open it   larder up --nfs-allow 192.168.1.7      (one machine, or a network: 192.168.1.0/24)\n",
        );
    }
    if !share.is_some_and(ShareStatus::takes_any_port) {
        text.push_str("            clients use ports below 1024, as root does; any port: larder up --nfs-any-port\n");
    }
    text.push_str(&format!(
        "  Linux     sudo mount -t nfs -o port={port} {host}:{export} /mnt\n\
        \x20 macOS     sudo mount_nfs -o vers=3,tcp,nolocks,resvport,port={port},mountport={port} {host}:{export} /private/mnt\n\
        \x20 libnfs    nfs-ls 'nfs://{host}{export}?version=3&nfsport={port}&mountport={port}'\n"
    ));
    text
}

fn smb_text(host: &str, port: u16, share: &str, user: &str) -> String {
    let uri = bracketed(host);
    let share_quoted = if share.contains(' ') { format!("'//{host}/{share}'") } else { format!("//{host}/{share}") };
    let on_445 = match port {
        445 => String::new(),
        _ => "            (older Windows knows port 445 only: larder up --smb :445)\n".to_owned(),
    };
    let windows = match port {
        445 => format!("net use Z: \\\\{host}\\{share} /user:{user}"),
        _ => format!("net use Z: \\\\{host}\\{share} /user:{user} /tcpport:{port}      (Windows 11 24H2 and later)"),
    };
    format!(
        "\nSMB\n\
        \x20 Linux     sudo mount -t cifs -o port={port},vers=3.1.1,username={user},uid=$(id -u),gid=$(id -g) {share_quoted} /mnt\n\
        \x20 macOS     open 'smb://{user}@{uri}:{port}/{share}'\n\
        \x20 Windows   {windows}\n{on_445}\
        \x20 anywhere  smbclient {share_quoted} -p {port} -U {user}\n"
    )
}

fn sftp_text(host: &str, port: u16, user: &str, key: &str) -> String {
    let uri = bracketed(host);
    format!(
        "\nSFTP (the shares are folders at the top; host key {key})\n\
        \x20 anywhere  sftp -P {port} {user}@{uri}\n\
        \x20 Linux     sshfs -p {port} {user}@{uri}:/ /mnt\n"
    )
}

fn webdav_text(scheme: &str, about: &str, host: &str, port: u16, user: &str) -> String {
    let url = format!("{scheme}://{}:{port}/", bracketed(host));
    format!(
        "\nWebDAV (the shares are folders at the top{about})\n\
        \x20 browser   {url}\n\
        \x20 Linux     sudo mount -t davfs -o username={user} {url} /mnt\n\
        \x20 anywhere  curl -u {user} {url}\n"
    )
}

/// A browser asks whether the certificate may be trusted, and shows its fingerprint.
fn page_text(url: &str, certificate: &str) -> String {
    format!(
        "\nPage (from loopback and private networks, unless larder.toml says otherwise)\n  browser   {url}\n            certificate {certificate}\n"
    )
}

/// IPv6 addresses are bracketed where a colon follows.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}
