//! One connection: who logs in, which channels it opens, and what it is told if it asks for a shell.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use larder_base::traffic::Traffic;
use larder_base::{passed, task};
use larder_people::User;
use parking_lot::Mutex;
use russh::keys::{Certificate, PublicKey};
use russh::server::{
    Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Response, Session as Ssh, VerifiedPublicKey,
};
use russh::{Channel, ChannelId, ChannelOpenFailure, Disconnect, MethodKind, MethodSet, Pty};
use tokio_util::sync::CancellationToken;

use super::flow::{Bad, Flow};
use super::ops::Session;
use super::packet::Frames;
use super::shared::{Admitted, LoggedIn, Shared};
use crate::certificate;
use larder_doors::door::shown;
use larder_doors::handshake::Pace;
use larder_doors::login::{Unseen, Verdict};
use larder_doors::parties::{Party, PartyPlace};
use larder_doors::residents::Resident;
use larder_doors::strangers::Stranger;
use larder_doors::unread::{Entered, Hold};

/// Sessions of one connection, as OpenSSH has it.
const CHANNELS_MAX: usize = 10;
const NO_SHELL: &str = "larder serves files over SFTP and has no shell: use sftp, scp, sshfs or rclone (rsync over ssh needs \
                        a shell; rclone sync does the same over SFTP).\r\n";

/// Why the connection ends.
#[derive(Debug, thiserror::Error)]
pub enum ConnError {
    #[error(transparent)]
    Ssh(#[from] russh::Error),
    #[error("it sent requests that are no SFTP")]
    Garbage,
    #[error("it sent requests and did not read the answers")]
    DoesNotRead,
    #[error("the user was changed")]
    UserChanged,
    #[error("the time of its token is over")]
    TokenOver,
    #[error("it was idle, and a newcomer needed its place")]
    MakesRoom,
    #[error("its user has too many connections")]
    TooMany,
}

impl From<Bad> for ConnError {
    fn from(bad: Bad) -> Self {
        match bad {
            Bad::Garbage => ConnError::Garbage,
            Bad::DoesNotRead => ConnError::DoesNotRead,
        }
    }
}

struct Open {
    window: usize,
    /// Once the subsystem was asked for.
    sftp: Option<(Frames, Arc<Flow>)>,
    /// A packet that has not come whole.
    partial: Option<Hold>,
}

pub struct Conn {
    shared: Arc<Shared>,
    address: IpAddr,
    traffic: Arc<Traffic>,
    cut: CancellationToken,
    /// Cancelled when somebody has logged in: the time for it is over.
    known: CancellationToken,
    /// Until somebody has logged in.
    stranger: Option<Stranger>,
    /// Until somebody asks to log in: passwords have turns of their own.
    handshake: Pace,
    user: Option<(Arc<User>, LoggedIn)>,
    /// Since then.
    resident: Option<Resident>,
    place: Option<PartyPlace>,
    /// Since then.
    unread: Option<Entered>,
    /// Those of `channels`.
    flows: Arc<Mutex<Vec<Weak<Flow>>>>,
    /// Who was let in and is not yet told so.
    accepted: Option<Admitted>,
    channels: HashMap<ChannelId, Open>,
}

impl Conn {
    pub fn new(
        shared: Arc<Shared>,
        (address, traffic): (IpAddr, Arc<Traffic>),
        (stranger, handshake): (Stranger, Pace),
        cut: CancellationToken,
        known: CancellationToken,
    ) -> Self {
        let (address, channels) = (address.to_canonical(), HashMap::new());
        Self {
            shared,
            address,
            traffic,
            cut,
            known,
            stranger: Some(stranger),
            handshake,
            user: None,
            resident: None,
            place: None,
            unread: None,
            flows: Arc::default(),
            accepted: None,
            channels,
        }
    }

    /// After a refusal other methods, and the same one again, may be tried.
    fn rejected() -> Auth {
        let methods = [MethodKind::PublicKey, MethodKind::Password, MethodKind::KeyboardInteractive];
        Auth::Reject { proceed_with_methods: Some(MethodSet::from(&methods[..])), partial_success: false }
    }

    async fn refuse(&self, user: &str, why: &str) -> Auth {
        let (address, name) = (self.address, shown(user));
        let wait = self.shared.refused(address, || format!("SFTP: '{name}' from {address} was refused: {why}"));
        tokio::time::sleep(wait).await;
        Self::rejected()
    }

    /// `login.guessing_is_slow`, `login.no_user_is_told`.
    async fn password(&mut self, name: &str, given: &str) -> Auth {
        self.handshake.end();
        let shared = Arc::clone(&self.shared);
        if let Some(user) = self.user_of_token(name, given) {
            // A token is not guessed: who guessed passwords from the same address does not lock it out.
            self.accepted = Some(Admitted { user: Arc::new(user), authority: None });
            return Auth::Accept;
        }
        let user = shared.user(name);
        let hash = user.as_ref().and_then(|user| user.password.clone());
        let has_hash = hash.is_some();
        let gate = &shared.config.gate;
        let seen = match gate.turn(self.address).await {
            Ok(turn) => gate.verify(turn, (self.address, name), hash, given.to_owned()).await,
            Err(unseen) => Err(unseen),
        };
        match (seen, user) {
            (Ok(Verdict::Right), Some(user)) => {
                self.accepted = Some(Admitted { user, authority: None });
                Auth::Accept
            }
            (Ok(Verdict::Locks), _) => {
                self.refuse(name, "wrong name or password, and too many of them: locked out for a minute").await
            }
            (Err(unseen), _) => {
                if unseen == Unseen::LockedOut {
                    shared.stats.logins_locked_out.add(1);
                }
                self.refuse(name, unseen.why()).await
            }
            (_, Some(_)) if !has_hash => {
                let why = format!(
                    "there is no password, or none that can be checked over SFTP; set it (again) with: larder user passwd {}",
                    shown(name)
                );
                self.refuse(name, &why).await
            }
            _ => self.refuse(name, "wrong name or password").await,
        }
    }

    fn user_of_token(&self, name: &str, given: &str) -> Option<User> {
        let token = self.shared.tokens().find(given, passed::latest()).filter(|token| token.user == name)?;
        Some(self.shared.user(name)?.narrowed(token))
    }

    fn user_with_key(&self, name: &str, key: &PublicKey) -> Option<Arc<User>> {
        self.shared.user(name).filter(|user| user.has_key(key))
    }

    fn no_shell(&self, channel: ChannelId, ssh: &mut Ssh) -> Result<(), ConnError> {
        ssh.channel_success(channel)?;
        ssh.extended_data(channel, 1, NO_SHELL.as_bytes())?;
        ssh.exit_status_request(channel, 1)?;
        ssh.eof(channel)?;
        ssh.close(channel)?;
        Ok(())
    }

    /// A place among those of its user.
    fn take_place(&self, name: &str) -> Result<PartyPlace, ConnError> {
        let (shared, address) = (&self.shared, self.address);
        let stranger = self.stranger.as_ref().ok_or(ConnError::UserChanged)?;
        let open = shared.stats.connections_open.load(Relaxed);
        let party = Party::of(Some(name), address);
        let place = stranger.enters(&shared.parties, party, None, open, || shared.residents.make_room());
        place.ok_or_else(|| {
            shared.stats.connections_refused.add(1);
            shared.door.refused(address, || {
                format!(
                    "SFTP: a connection of '{name}' from {address} was refused: there are too many, and most are theirs"
                )
            });
            ConnError::TooMany
        })
    }

    fn end(&mut self) {
        for (_, flow) in self.channels.drain().filter_map(|(_, open)| open.sftp) {
            flow.end();
        }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.end();
    }
}

impl Handler for Conn {
    type Error = ConnError;

    async fn auth_none(&mut self, _user: &str) -> Result<Auth, ConnError> {
        self.handshake.end();
        Ok(Self::rejected())
    }

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, ConnError> {
        Ok(self.password(user, password).await)
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        user: &str,
        _submethods: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, ConnError> {
        self.handshake.end();
        let given = response.map(|mut answers| answers.next().unwrap_or_default().to_vec());
        match given {
            None => Ok(Auth::Partial {
                name: Cow::Borrowed(""),
                instructions: Cow::Borrowed(""),
                prompts: Cow::Borrowed(&[(Cow::Borrowed("Password: "), false)]),
            }),
            // A password that is no text is nobody's.
            Some(given) => Ok(self.password(user, std::str::from_utf8(&given).unwrap_or_default()).await),
        }
    }

    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, ConnError> {
        self.handshake.end();
        // A client offers all keys that it has: those are no guesses.
        // The key may come in a certificate, which is shown with the signature only.
        match self.user_with_key(user, offer.public_key) {
            None if self.shared.authorities().is_empty() => Ok(Self::rejected()),
            _ => Ok(Auth::Accept),
        }
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, ConnError> {
        self.handshake.end();
        match self.user_with_key(user, key.public_key) {
            Some(user) => {
                self.accepted = Some(Admitted { user, authority: None });
                Ok(Auth::Accept)
            }
            // Where certificates are taken every key of the client comes here.
            None if !self.shared.authorities().is_empty() => Ok(Self::rejected()),
            None => Ok(self.refuse(user, "the key is not one of the user's").await),
        }
    }

    async fn auth_openssh_certificate(&mut self, name: &str, certificate: &Certificate) -> Result<Auth, ConnError> {
        self.handshake.end();
        let authorities = self.shared.authorities();
        match certificate::admit(certificate, name, self.address, SystemTime::now(), &authorities) {
            Ok(authority) => match self.shared.user(name) {
                Some(user) => {
                    self.accepted = Some(Admitted { user, authority: Some(authority) });
                    Ok(Auth::Accept)
                }
                None => Ok(self.refuse(name, "the certificate is for a user that there is not").await),
            },
            Err(why) => {
                let (id, serial) = (shown(certificate.key_id()), certificate.serial());
                Ok(self.refuse(name, &format!("the certificate '{id}' (serial {serial}): {why}")).await)
            }
        }
    }

    async fn auth_succeeded(&mut self, _ssh: &mut Ssh) -> Result<(), ConnError> {
        let admitted = self.accepted.take().ok_or(ConnError::UserChanged)?;
        let logged_in = self.shared.log_in(&admitted, &self.cut).ok_or(ConnError::UserChanged)?;
        let (address, user) = (self.address, admitted.user);
        self.place = Some(self.take_place(&user.name)?);
        let by = user.token.as_ref().map_or(String::new(), |token| format!(" with the token {}", token.id));
        let by = if admitted.authority.is_some() { " with a certificate".to_owned() } else { by };
        self.shared
            .door
            .came_in(address, Some(&user.name), || format!("SFTP: '{}' logged in from {address}{by}", user.name));
        self.shared.stats.logins.add(1);
        self.traffic.set_user(&user.name);
        let unread = self.shared.unread.enter(Party::of(Some(&user.name), address), self.cut.clone());
        self.user = Some((user, logged_in));
        let flows = Arc::clone(&self.flows);
        let is_busy = move || flows.lock().iter().filter_map(Weak::upgrade).any(|flow| !flow.is_idle());
        self.resident = Some(self.shared.residents.enter(self.cut.clone(), Box::new(is_busy)));
        let (account, cut) = (Arc::clone(unread.account()), self.cut.clone());
        task::spawn(async move {
            tokio::select! {
                () = account.stalled() => cut.cancel(),
                () = account.left() => {}
            }
        });
        self.unread = Some(unread);
        self.stranger = None;
        self.known.cancel();
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _ssh: &mut Ssh,
    ) -> Result<(), ConnError> {
        if self.channels.len() >= CHANNELS_MAX {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        // All of the window is told only with its first change.
        let window = channel.writable_packet_size().await;
        self.channels.insert(channel.id(), Open { window, sftp: None, partial: None });
        reply.accept().await;
        Ok(())
    }

    async fn subsystem_request(&mut self, channel: ChannelId, name: &str, ssh: &mut Ssh) -> Result<(), ConnError> {
        let (Some((user, _)), Some(unread), Some(open)) = (&self.user, &self.unread, self.channels.get_mut(&channel))
        else {
            return Ok(ssh.channel_failure(channel)?);
        };
        if name != "sftp" || open.sftp.is_some() {
            return Ok(ssh.channel_failure(channel)?);
        }
        let session = Session::new(Arc::clone(&self.shared), Arc::clone(user), self.address, Arc::clone(&self.traffic));
        let flow = Flow::new((session, Arc::clone(unread.account())), channel, ssh.handle(), open.window);
        {
            let mut flows = self.flows.lock();
            flows.retain(|flow| flow.strong_count() > 0);
            flows.push(Arc::downgrade(&flow));
        }
        open.sftp = Some((Frames::default(), flow));
        Ok(ssh.channel_success(channel)?)
    }

    async fn shell_request(&mut self, channel: ChannelId, ssh: &mut Ssh) -> Result<(), ConnError> {
        self.no_shell(channel, ssh)
    }

    async fn exec_request(&mut self, channel: ChannelId, _command: &[u8], ssh: &mut Ssh) -> Result<(), ConnError> {
        self.no_shell(channel, ssh)
    }

    /// Taken, so that the sentence about shells is all that a person reads.
    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _term: &str,
        _columns: u32,
        _rows: u32,
        _width: u32,
        _height: u32,
        _modes: &[(Pty, u32)],
        ssh: &mut Ssh,
    ) -> Result<(), ConnError> {
        Ok(ssh.channel_success(channel)?)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        _name: &str,
        _value: &str,
        ssh: &mut Ssh,
    ) -> Result<(), ConnError> {
        Ok(ssh.channel_failure(channel)?)
    }

    async fn data(&mut self, channel: ChannelId, mut data: &[u8], ssh: &mut Ssh) -> Result<(), ConnError> {
        let token = self.user.as_ref().and_then(|(user, _)| user.token.as_ref());
        if token.is_some_and(|token| token.is_over(passed::latest())) {
            return Err(ConnError::TokenOver);
        }
        if self.resident.as_ref().is_some_and(|resident| !resident.used().touch()) {
            return Err(ConnError::MakesRoom);
        }
        let (Some(unread), Some(open)) = (&self.unread, self.channels.get_mut(&channel)) else { return Ok(()) };
        let Some((frames, flow)) = open.sftp.as_mut() else { return Ok(()) };
        let mut packets = Vec::new();
        while let Some(packet) = frames.next(&mut data).map_err(Bad::from)? {
            packets.push(packet);
        }
        let partial = frames.partial();
        open.partial = (partial > 0).then(|| unread.account().waits(partial));
        if !packets.is_empty() {
            let answers = flow.take(packets).await?;
            if !answers.is_empty() {
                ssh.data(channel, answers)?;
            }
        }
        Ok(())
    }

    async fn window_adjusted(&mut self, channel: ChannelId, size: u32, _ssh: &mut Ssh) -> Result<(), ConnError> {
        if let Some(open) = self.channels.get_mut(&channel) {
            open.window = size as usize;
            if let Some((_, flow)) = &open.sftp {
                flow.window(size as usize);
            }
        }
        Ok(())
    }

    /// The client sends no more: what it asked for is answered, then the channel ends.
    async fn channel_eof(&mut self, channel: ChannelId, ssh: &mut Ssh) -> Result<(), ConnError> {
        let Some((_, flow)) = self.channels.get(&channel).and_then(|open| open.sftp.as_ref()) else { return Ok(()) };
        let (flow, handle) = (Arc::clone(flow), ssh.handle());
        task::spawn(async move {
            flow.drained().await;
            let _ = handle.exit_status_request(channel, 0).await;
            let _ = handle.eof(channel).await;
            let _ = handle.close(channel).await;
        });
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _ssh: &mut Ssh) -> Result<(), ConnError> {
        if let Some((_, flow)) = self.channels.remove(&channel).and_then(|open| open.sftp) {
            flow.end();
        }
        Ok(())
    }
}

/// The farewell at a stop.
pub async fn say_goodbye(handle: &russh::server::Handle, within: Duration) {
    let goodbye = handle.disconnect(Disconnect::ByApplication, "larder is stopping".to_owned(), String::new());
    let _ = tokio::time::timeout(within, goodbye).await;
}
