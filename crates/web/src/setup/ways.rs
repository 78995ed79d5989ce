//! The ways to a new box for the computer that looks at it: what to click and what to type, by its browser's word.

use std::path::Path;

use larder_api::SetupServed;
use larder_base::shell;

use crate::form::encoded;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    Windows,
    Mac,
    Linux,
    /// iPhone and iPad.
    Apple,
    Android,
    Unknown,
}

impl System {
    pub const ALL: [Self; 5] = [Self::Windows, Self::Mac, Self::Linux, Self::Apple, Self::Android];

    /// By the User-Agent. Android calls itself Linux, too, and an iPad may call itself a Mac.
    pub fn of_agent(agent: &str) -> Self {
        let has = |word: &str| agent.contains(word);
        match () {
            () if has("Android") => Self::Android,
            () if has("iPhone") || has("iPad") || has("iPod") => Self::Apple,
            () if has("Windows") => Self::Windows,
            () if has("Macintosh") || has("Mac OS X") => Self::Mac,
            () if has("Linux") || has("X11") || has("CrOS") => Self::Linux,
            () => Self::Unknown,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Windows => "Windows",
            Self::Mac => "macOS",
            Self::Linux => "Linux",
            Self::Apple => "iPhone and iPad",
            Self::Android => "Android",
            Self::Unknown => "your computer",
        }
    }
}

/// One way: a line to type, or an address to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    pub title: &'static str,
    pub about: String,
    /// To type or to paste.
    pub line: Option<String>,
    /// To click.
    pub link: Option<String>,
}

/// The host of a request, if it is one that lines may contain.
pub fn host_of(header: &str) -> Option<String> {
    let host = match header.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => header
            .rsplit_once(':')
            .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
            .map_or(header, |(host, _)| host),
    };
    let is_name = !host.is_empty() && host.len() <= 253 && !host.starts_with('-');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':');
    (is_name && host.bytes().all(fits)).then(|| host.to_owned())
}

/// All ways for one system, the best first. `is_here`: the browser runs on the box itself.
pub fn ways(system: System, host: &str, served: &SetupServed, is_here: bool) -> Vec<Way> {
    let lines = Lines { host, uri: bracketed(host), served };
    let mut ways = Vec::new();
    match system {
        System::Windows => {
            ways.extend(lines.windows());
            ways.extend(lines.browser());
            ways.extend(lines.sftp());
        }
        System::Mac => {
            ways.extend(lines.finder());
            ways.extend(lines.browser());
            ways.extend(lines.sftp());
            ways.extend(lines.curl());
        }
        System::Linux => {
            ways.extend(lines.nfs(is_here));
            ways.extend(lines.cifs());
            ways.extend(lines.sftp());
            ways.extend(lines.davfs());
            ways.extend(lines.curl());
            ways.extend(lines.browser());
        }
        System::Apple => {
            ways.extend(lines.files_app());
            ways.extend(lines.browser());
        }
        System::Android | System::Unknown => {
            ways.extend(lines.browser());
            ways.extend(lines.sftp());
        }
    }
    ways
}

struct Lines<'a> {
    host: &'a str,
    /// As it stands in addresses.
    uri: String,
    served: &'a SetupServed,
}

impl Lines<'_> {
    fn windows(&self) -> Option<Way> {
        let port = self.served.smb_port?;
        let SetupServed { share, user, .. } = self.served;
        // Names have no quotes, and within quotes cmd leaves the rest alone.
        let drive = format!("net use Z: \"\\\\{}\\{share}\" * /user:\"{user}\"", self.host);
        let (line, about) = match port {
            445 => (
                drive,
                "Press the Windows key, type cmd, press Enter, and paste this. It asks for the password.".to_owned(),
            ),
            _ => (
                format!("{drive} /tcpport:{port}"),
                format!(
                    "Press the Windows key, type cmd, press Enter, and paste this. Windows 11 24H2 and later can: older ones \
                     know port 445 alone, and this box uses {port}."
                ),
            ),
        };
        Some(Way { title: "A drive Z:", about, line: Some(line), link: None })
    }

    fn finder(&self) -> Option<Way> {
        let address = self.smb_address()?;
        let about = "Click it, or choose Go, Connect to Server in the Finder and paste it.".to_owned();
        Some(Way { title: "In the Finder", about, line: Some(address.clone()), link: Some(address) })
    }

    fn files_app(&self) -> Option<Way> {
        let address = self.smb_address()?;
        let about = "Open Files, tap the three dots, Connect to Server, and enter this.".to_owned();
        Some(Way { title: "In Files", about, line: Some(address), link: None })
    }

    fn smb_address(&self) -> Option<String> {
        let port = self.served.smb_port?;
        let port = if port == 445 { String::new() } else { format!(":{port}") };
        let (user, share) = (encoded(&self.served.user), encoded(&self.served.share));
        Some(format!("smb://{user}@{}{port}/{share}", self.uri))
    }

    fn cifs(&self) -> Option<Way> {
        let port = self.served.smb_port?;
        let share = quoted(&format!("//{}/{}", self.host, self.served.share));
        let user = quoted(&self.served.user);
        let line = format!(
            "sudo mount -t cifs -o port={port},vers=3.1.1,username={user},uid=$(id -u),gid=$(id -g) {share} /mnt"
        );
        Some(Way { title: "SMB", about: "In a terminal; needs cifs-utils.".to_owned(), line: Some(line), link: None })
    }

    fn nfs(&self, is_here: bool) -> Option<Way> {
        let nfs = self.served.nfs.as_ref().filter(|nfs| is_here || nfs.from.is_some())?;
        let port = nfs.port;
        let export = quoted(&format!("{}:{}", self.uri, nfs.export));
        let line = format!("sudo mount -t nfs -o port={port} {export} /mnt");
        let about = "In a terminal. It asks for no password: this computer is trusted.".to_owned();
        Some(Way { title: "NFS", about, line: Some(line), link: None })
    }

    fn sftp(&self) -> Option<Way> {
        let sftp = self.served.sftp.as_ref()?;
        let (user, share) = (quoted(&self.served.user), quoted(&self.served.share));
        let line = format!("sftp -P {} {user}@{}:{share}", sftp.port, self.uri);
        let about = format!("In a terminal, or in FileZilla and WinSCP. The host key is {}.", sftp.fingerprint);
        Some(Way { title: "SFTP", about, line: Some(line), link: None })
    }

    fn davfs(&self) -> Option<Way> {
        let dav = self.served.webdavs.as_ref()?;
        let user = quoted(&self.served.user);
        let line = format!("sudo mount -t davfs -o username={user} {} /mnt", self.dav_address(dav.port));
        let about = format!("In a terminal; needs davfs2. The certificate is {}.", dav.fingerprint);
        Some(Way { title: "WebDAV", about, line: Some(line), link: None })
    }

    fn curl(&self) -> Option<Way> {
        let (dav, pin) = (self.served.webdavs.as_ref()?, self.served.pin.as_ref()?);
        let (user, address) = (quoted(&self.served.user), self.dav_address(dav.port));
        let line = format!("curl --insecure --pinnedpubkey sha256//{pin} -u {user} -T FILE {address}");
        let about = "Uploads FILE. The pin holds it to this very box.".to_owned();
        Some(Way { title: "One file by curl", about, line: Some(line), link: None })
    }

    fn browser(&self) -> Option<Way> {
        let dav = self.served.webdavs.as_ref()?;
        let address = format!("https://{}:{}/", self.uri, dav.port);
        let about = "Upload, look, share by a link. The browser asks about the same certificate as here.".to_owned();
        Some(Way { title: "In the browser", about, line: None, link: Some(address) })
    }

    fn dav_address(&self, port: u16) -> String {
        format!("https://{}:{port}/{}/", self.uri, encoded(&self.served.share))
    }
}

fn quoted(text: &str) -> String {
    shell::word(Path::new(text))
}

/// IPv6 addresses are bracketed where a colon follows.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use larder_api::{SetupNfs, SetupSecure};

    use super::*;

    fn served() -> SetupServed {
        let secure = |port| Some(SetupSecure { port, fingerprint: "AB:CD".to_owned() });
        SetupServed {
            recovery_key: None,
            host: "192.168.1.2".to_owned(),
            user: "ann".to_owned(),
            share: "Family photos".to_owned(),
            smb_port: Some(14445),
            nfs: Some(SetupNfs { port: 12049, export: "/Family photos".to_owned(), from: None }),
            sftp: secure(10022),
            webdavs: secure(10443),
            page_port: Some(10443),
            pin: Some("PIN=".to_owned()),
        }
    }

    #[test]
    fn browsers_name_their_systems() {
        for (agent, system) in [
            ("Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36", System::Windows),
            ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Safari/605.1.15", System::Mac),
            ("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0", System::Linux),
            ("Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15", System::Apple),
            ("Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36", System::Android),
            ("curl/8.5", System::Unknown),
            ("", System::Unknown),
        ] {
            assert_eq!(System::of_agent(agent), system, "{agent}");
        }
    }

    #[test]
    fn hosts_are_names_and_addresses_alone() {
        for (header, host) in [
            ("nas.local:10444", Some("nas.local")),
            ("192.168.1.2:10444", Some("192.168.1.2")),
            ("[fd00::2]:10444", Some("fd00::2")),
            ("nas", Some("nas")),
            ("", None),
            ("nas;reboot", None),
            ("-oProxyCommand=x:1", None),
            ("a b", None),
            ("<b>", None),
            ("[fd00::2", None),
        ] {
            assert_eq!(host_of(header).as_deref(), host, "{header}");
        }
    }

    #[test]
    fn each_system_has_lines_that_name_this_box() {
        let served = served();
        let lines = |system, is_here| -> Vec<String> {
            ways(system, "192.168.1.2", &served, is_here).into_iter().filter_map(|way| way.line.or(way.link)).collect()
        };
        assert_eq!(
            lines(System::Windows, false)[0],
            "net use Z: \"\\\\192.168.1.2\\Family photos\" * /user:\"ann\" /tcpport:14445"
        );
        assert_eq!(lines(System::Mac, false)[0], "smb://ann@192.168.1.2:14445/Family%20photos");
        let linux = lines(System::Linux, true);
        assert!(linux[0].ends_with("-o port=12049 '192.168.1.2:/Family photos' /mnt"), "{linux:?}");
        assert!(linux.iter().any(|line| line == "sftp -P 10022 ann@192.168.1.2:'Family photos'"), "{linux:?}");
        assert!(
            linux
                .iter()
                .any(|line| line.contains("sha256//PIN= -u ann -T FILE https://192.168.1.2:10443/Family%20photos/"))
        );
        assert!(
            !lines(System::Linux, false).iter().any(|line| line.contains("nfs")),
            "NFS does not trust that machine"
        );
        for system in System::ALL {
            assert!(!lines(system, false).is_empty(), "{system:?}");
        }
        let six = ways(System::Mac, "fd00::2", &served, false);
        assert_eq!(six[0].link.as_deref(), Some("smb://ann@[fd00::2]:14445/Family%20photos"));
        let closed = SetupServed { smb_port: None, nfs: None, sftp: None, webdavs: None, ..served };
        assert!(System::ALL.iter().all(|system| ways(*system, "nas", &closed, true).is_empty()));
    }

    #[test]
    fn names_cannot_end_a_word() {
        let served = SetupServed { user: "ann$(x)`y`".to_owned(), share: "it's $HOME & more".to_owned(), ..served() };
        for way in ways(System::Linux, "nas", &served, true) {
            let line = way.line.or(way.link).unwrap();
            for evil in ["$(x)", "$HOME", "`y`"] {
                for (at, _) in line.match_indices(evil) {
                    let before = &line[..at].replace("'\\''", "");
                    assert!(before.matches('\'').count() % 2 == 1, "{evil} runs in {line}");
                }
            }
        }
    }
}
