//! SESSION_SETUP handler: drives the SPNEGO + NTLMv2 state machine.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_smb_wire::auth::ntlm::{
    AuthOutcome, Direction, Identity, NTLMSSP_SIGNATURE, NtlmAuthenticate, NtlmMac, NtlmServer, NtlmTargetInfo,
    UserCreds,
};
use larder_smb_wire::auth::spnego::{
    NegState, NegTokenInit, OID_NTLMSSP, decode_init_token, decode_resp_token, encode_resp_token,
};
use larder_smb_wire::crypto::{SessionCipher, SigningAlgo, signing_key_30, verify};
use larder_smb_wire::header::{SMB2_FLAGS_SIGNED, SMB2_HEADER_LEN, Smb2Header};
use larder_smb_wire::messages::{Dialect, SessionSetupRequest, SessionSetupResponse};
use tracing::{debug, info, warn};

use crate::admission::Admission;

use crate::conn::channels::Binding;
use crate::conn::logons::Acceptor;
use crate::conn::state::{Connection, Session, SessionKeys, SigningKey};
use crate::handlers::response::{HandlerResponse, Refusal};
use crate::state::ServerState;
use crate::utils::{fill_random, now_filetime};
use larder_smb_wire::ntstatus;

/// A SESSION_SETUP security token, by form.
enum Token {
    /// Raw NTLMSSP. RFC 4178 section 4.2.1 lets the client skip SPNEGO once
    /// the mechanism is settled.
    Raw { msg_type: u32, ntlm: Vec<u8> },
    /// GSS-API NegTokenInit (starts with 0x60).
    Init(NegTokenInit),
    /// SPNEGO NegTokenResp: the inner token and the client's mechListMIC.
    Resp { ntlm: Vec<u8>, mech_list_mic: Option<Vec<u8>> },
}

impl Token {
    fn decode(blob: &[u8]) -> Result<Self, u32> {
        if blob.starts_with(NTLMSSP_SIGNATURE) {
            let msg_type = blob.get(8..12).map_or(0, |t| u32::from_le_bytes([t[0], t[1], t[2], t[3]]));
            return Ok(Token::Raw { msg_type, ntlm: blob.to_vec() });
        }
        if blob[0] == 0x60 {
            return match decode_init_token(blob) {
                Ok(init) => Ok(Token::Init(init)),
                Err(e) => {
                    warn!(error = %e, "SPNEGO init decode failed");
                    Err(ntstatus::STATUS_LOGON_FAILURE)
                }
            };
        }
        match decode_resp_token(blob) {
            Ok(resp) => {
                Ok(Token::Resp { ntlm: resp.response_token.unwrap_or_default(), mech_list_mic: resp.mech_list_mic })
            }
            Err(e) => {
                warn!(error = %e, "SPNEGO resp decode failed");
                Err(ntstatus::STATUS_LOGON_FAILURE)
            }
        }
    }
}

/// The token that opens an exchange.
enum Opening {
    /// Raw NTLM NEGOTIATE_MESSAGE.
    Raw(Vec<u8>),
    Spnego(NegTokenInit),
}

pub async fn handle(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    hdr: &Smb2Header,
    body: &[u8],
) -> HandlerResponse {
    let req = match SessionSetupRequest::parse(body) {
        Ok(r) => r,
        Err(_) => return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER),
    };

    let blob = &req.security_buffer;
    if blob.is_empty() {
        return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    if tracing::enabled!(tracing::Level::DEBUG) {
        let mut first8 = String::with_capacity(16);
        for b in blob.iter().take(8) {
            use std::fmt::Write as _;
            write!(&mut first8, "{b:02x}").expect("writing to String cannot fail");
        }
        tracing::debug!(
            first8 = %first8,
            len = blob.len(),
            sid = hdr.session_id,
            "session setup blob"
        );
    }

    let sid = hdr.session_id;
    // The dispatcher has checked that the client may ask for it.
    let binding = match sid != 0 && req.flags & SessionSetupRequest::FLAG_BINDING != 0 {
        true if conn.sessions.contains(sid) => {
            return HandlerResponse::err(ntstatus::STATUS_REQUEST_NOT_ACCEPTED);
        }
        true => match find_session(server, sid).await {
            Some((_, binding)) => Some(binding),
            None => return HandlerResponse::err(ntstatus::STATUS_USER_SESSION_DELETED),
        },
        false => None,
    };

    let token = match Token::decode(blob) {
        Ok(t) => t,
        Err(status) => return HandlerResponse::err(status),
    };

    let opening = match token {
        Token::Raw { msg_type: 1, ntlm } => Opening::Raw(ntlm),
        Token::Init(init) => Opening::Spnego(init),
        Token::Raw { ntlm, .. } => {
            return continue_or_reject(server, conn, &req, sid, binding, ntlm, None).await;
        }
        Token::Resp { ntlm, mech_list_mic } => {
            return continue_or_reject(server, conn, &req, sid, binding, ntlm, mech_list_mic).await;
        }
    };

    if sid == 0 {
        if session_limit_reached(server, conn) {
            warn!("session limit reached on connection");
            return HandlerResponse::err(ntstatus::STATUS_INSUFFICIENT_RESOURCES);
        }
        let new_sid = server.auth.alloc_session_id();
        return begin_exchange(server, conn, new_sid, opening).await;
    }
    // A first token for a known session starts over: reauthentication of
    // an established session (MS-SMB2 3.3.5.5.2), or a restart of one in
    // progress.
    let known = conn.sessions.contains(sid) || conn.logons.take(sid).is_some();
    match binding {
        // The client believes no answer without the session's signature.
        Some(binding) => {
            let response = begin_exchange(server, conn, sid, opening).await;
            HandlerResponse { signing_key: Some(binding.key), ..response }
        }
        None if known => begin_exchange(server, conn, sid, opening).await,
        None => HandlerResponse::err(ntstatus::STATUS_USER_SESSION_DELETED),
    }
}

/// Whether a SESSION_SETUP for a session that this connection does not have
/// is carried out: one that continues a logon, or one that binds the
/// connection to a session of another (MS-SMB2 3.3.5.5). A refusal is signed
/// with that session's key if `request` proves that it is the session's
/// client who asks.
pub(crate) async fn admit_unknown(
    server: &ServerState,
    conn: &Connection,
    hdr: &Smb2Header,
    request: &[u8],
) -> Result<(), Refusal> {
    let deleted = Refusal::unsigned(ntstatus::STATUS_USER_SESSION_DELETED);
    let binds = SessionSetupRequest::parse(&request[SMB2_HEADER_LEN..])
        .is_ok_and(|req| req.flags & SessionSetupRequest::FLAG_BINDING != 0);
    if !binds && conn.logons.is_waiting(hdr.session_id) {
        return Ok(());
    }
    let Some((other, Binding { session, key })) = find_session(server, hdr.session_id).await else {
        return Err(deleted);
    };
    if hdr.flags & SMB2_FLAGS_SIGNED == 0 {
        return Err(if binds { Refusal::unsigned(ntstatus::STATUS_INVALID_PARAMETER) } else { deleted });
    }
    if verify(request, &key.key, key.algo).is_err() {
        return Err(Refusal::unsigned(ntstatus::STATUS_ACCESS_DENIED));
    }
    let refusal = match binds {
        true => binding_refusal(conn, &other, &session),
        false => Some(ntstatus::STATUS_USER_SESSION_DELETED),
    };
    match refusal {
        Some(status) => Err(Refusal { status, key: Some(key) }),
        None => Ok(()),
    }
}

/// A connection that has the session `sid`, and what binds others to it.
async fn find_session(server: &ServerState, sid: u64) -> Option<(Arc<Connection>, Binding)> {
    for conn in server.active_connections.live().await {
        let session = conn.sessions.get(sid);
        if let Some(session) = session {
            let key = {
                // Anonymous sessions have none.
                let key = session.signing_key().filter(|_| !session.is_anonymous())?;
                SigningKey { algo: session.signing_algo, key }
            };
            return Some((conn, Binding { session, key }));
        }
    }
    None
}

/// Why `session`, which `other` has, is not bound to `conn`: what Windows
/// finds amiss comes first (smbtorture's `bind_negative`). `None` if it may be.
fn binding_refusal(conn: &Connection, other: &Connection, session: &Session) -> Option<u32> {
    let (algo, own_algo) = (session.signing_algo, conn.negotiated.signing_algo());
    if own_algo != algo && algo == SigningAlgo::AesGmac {
        return Some(ntstatus::STATUS_REQUEST_OUT_OF_SEQUENCE);
    }
    if own_algo != algo && own_algo == SigningAlgo::AesGmac {
        return Some(ntstatus::STATUS_NOT_SUPPORTED);
    }
    let dialect = conn.negotiated.dialect();
    if dialect.is_none_or(|d| d.as_u16() < Dialect::Smb300.as_u16()) {
        return Some(ntstatus::STATUS_REQUEST_NOT_ACCEPTED);
    }
    if dialect != other.negotiated.dialect() || conn.negotiated.cipher() != other.negotiated.cipher() {
        return Some(ntstatus::STATUS_INVALID_PARAMETER);
    }
    None
}

/// A token that continues the exchange of `sid`.
async fn continue_or_reject(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    req: &SessionSetupRequest,
    sid: u64,
    binding: Option<Binding>,
    ntlm: Vec<u8>,
    client_mic: Option<Vec<u8>>,
) -> HandlerResponse {
    if sid == 0 {
        return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    let Some(pending) = conn.logons.take(sid) else {
        return HandlerResponse::err(ntstatus::STATUS_USER_SESSION_DELETED);
    };
    let key = binding.as_ref().map(|binding| binding.key);
    let response = continue_exchange(Round { server, conn, req, sid, ntlm, client_mic }, pending, binding).await;
    // Until the channel has a key of its own, the session's signs.
    match response.status {
        ntstatus::STATUS_SUCCESS => response,
        _ => HandlerResponse { signing_key: response.signing_key.or(key), ..response },
    }
}

/// First round: start an NTLM acceptor for `sid` and answer with the
/// CHALLENGE_MESSAGE, or with an SPNEGO counter-proposal for NTLM.
async fn begin_exchange(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    sid: u64,
    opening: Opening,
) -> HandlerResponse {
    let mut server_challenge = [0u8; 8];
    if let Err(e) = fill_random(&mut server_challenge) {
        tracing::error!(error = %e, "OS RNG failed; cannot generate NTLM challenge");
        return HandlerResponse::err(ntstatus::STATUS_INTERNAL_ERROR);
    }
    let netbios = server.config.netbios_name.clone();
    let mut acceptor = NtlmServer::new(
        server_challenge,
        NtlmTargetInfo::new(netbios.clone(), netbios.clone(), netbios, "", ""),
        now_filetime(),
    );

    let (outbound, raw) = match opening {
        Opening::Raw(ntlm) => match accept_negotiate(&mut acceptor, &ntlm) {
            Ok(challenge) => (challenge, true),
            Err(status) => return HandlerResponse::err(status),
        },
        Opening::Spnego(init) => {
            let Some(pos) = init.mech_types.iter().position(|m| m == OID_NTLMSSP) else {
                return HandlerResponse::err(ntstatus::STATUS_NOT_SUPPORTED);
            };
            acceptor.mech_list = Some(init.mech_types_der);
            acceptor.mech_list_mic_required = pos != 0;
            // An optimistic mechToken is for the client's first mechanism,
            // so it is used only when that mechanism is NTLM. Otherwise the
            // reply selects NTLM and waits for its NEGOTIATE_MESSAGE.
            match init.mech_token.filter(|_| pos == 0) {
                Some(ntlm) => match accept_negotiate(&mut acceptor, &ntlm) {
                    Ok(challenge) => (
                        encode_resp_token(NegState::AcceptIncomplete, Some(OID_NTLMSSP), Some(&challenge), None),
                        false,
                    ),
                    Err(status) => return HandlerResponse::err(status),
                },
                None => {
                    let state = if pos == 0 { NegState::AcceptIncomplete } else { NegState::RequestMic };
                    (encode_resp_token(state, Some(OID_NTLMSSP), None, None), false)
                }
            }
        }
    };

    if !conn.logons.begin(sid, Arc::new(std::sync::Mutex::new((acceptor, raw)))) {
        warn!("too many logons wait for their next round on the connection");
        return HandlerResponse::err(ntstatus::STATUS_INSUFFICIENT_RESOURCES);
    }
    more_processing(sid, &outbound)
}

/// Feeds the client's NEGOTIATE_MESSAGE to `acceptor` and returns the
/// CHALLENGE_MESSAGE. A message that is none fails with
/// STATUS_INVALID_PARAMETER, as on Windows: nobody tried to log on.
fn accept_negotiate(acceptor: &mut NtlmServer, ntlm: &[u8]) -> Result<Vec<u8>, u32> {
    if let Err(e) = acceptor.step1_negotiate(ntlm) {
        warn!(error = %e, "NTLM step1 failed");
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    }
    Ok(acceptor.challenge())
}

fn more_processing(sid: u64, outbound: &[u8]) -> HandlerResponse {
    let body_out = build_session_setup_response(ntstatus::STATUS_MORE_PROCESSING_REQUIRED, outbound, 0);
    HandlerResponse {
        payload: Vec::new(),
        body: body_out,
        status: ntstatus::STATUS_MORE_PROCESSING_REQUIRED,
        override_tree_id: None,
        override_session_id: Some(sid),
        // A new session has no key yet, and its response is not signed; one
        // that is reauthenticated has, and its client insists.
        skip_signing: false,
        take_preauth_snapshot_for_session: None,
        channel_base_key: None,
        signing_key: None,
        after_send: Vec::new(),
    }
}

/// A later round of an exchange.
struct Round<'a> {
    server: &'a Arc<ServerState>,
    conn: &'a Arc<Connection>,
    req: &'a SessionSetupRequest,
    sid: u64,
    /// The client's token.
    ntlm: Vec<u8>,
    /// The client's MIC of the mechanisms, if it sent one.
    client_mic: Option<Vec<u8>>,
}

/// A client that has authenticated.
struct Authenticated {
    outcome: AuthOutcome,
    raw_form: bool,
    /// The server's MIC of the mechanisms.
    mic: Option<Vec<u8>>,
    /// Of the user's password when it was compared.
    nt_hash: Option<[u8; 16]>,
    guest: bool,
}

impl Authenticated {
    /// Guest sessions are anonymous sessions flagged IS_GUEST; the log
    /// names them as guests.
    fn name(&self) -> String {
        if self.guest { "Guest".to_string() } else { format!("{:?}", self.outcome.identity) }
    }

    fn is_anonymous(&self) -> bool {
        matches!(self.outcome.identity, Identity::Anonymous)
    }
}

/// Later rounds of an exchange.
async fn continue_exchange(round: Round<'_>, pending: Acceptor, binding: Option<Binding>) -> HandlerResponse {
    let (conn, sid) = (round.conn, round.sid);
    match round.negotiate(&pending) {
        Ok(None) => {}
        Ok(Some(challenge)) => {
            let outbound = encode_resp_token(NegState::AcceptIncomplete, None, Some(&challenge), None);
            conn.logons.wait_again(sid, pending);
            return more_processing(sid, &outbound);
        }
        Err(status) => return HandlerResponse::err(status),
    }
    // A session that already exists is being reauthenticated.
    let existing = conn.sessions.get(sid);
    let client = match round.log_on(&pending, existing.is_some()).await {
        Ok(client) => client,
        Err(response) => return *response,
    };
    if let Err(status) = round.admit(&client).await {
        return HandlerResponse::err(status);
    }
    let Some(dialect) = conn.negotiated.dialect() else {
        return HandlerResponse::err(ntstatus::STATUS_INVALID_PARAMETER);
    };
    match (existing, binding) {
        (Some(existing), _) => round.reauthenticate(&client, &existing),
        (None, Some(binding)) => round.bind(&client, dialect, &binding).await,
        (None, None) => round.establish(&client, dialect).await,
    }
}

impl Round<'_> {
    fn peer(&self) -> Option<IpAddr> {
        self.conn.peer_addr.map(|a| a.ip())
    }

    /// After a counter-proposal the client's next token is the NTLM
    /// NEGOTIATE_MESSAGE: the CHALLENGE_MESSAGE to it.
    fn negotiate(&self, pending: &Acceptor) -> Result<Option<Vec<u8>>, u32> {
        let mut pair = pending.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if pair.0.has_negotiate() {
            return Ok(None);
        }
        accept_negotiate(&mut pair.0, &self.ntlm).map(Some)
    }

    /// Authenticates the client, within the limits of failed logons.
    async fn log_on(&self, pending: &Acceptor, reauth: bool) -> Result<Authenticated, Box<HandlerResponse>> {
        let (server, conn, peer) = (self.server, self.conn, self.peer());
        // The failed-logon throttle counts by the user name the client sent and
        // by the client's network. The guest password is empty and known to
        // everyone, so guest logons count by network only: a lockout of the
        // name would shut every client out of guest access.
        let claimed_user = NtlmAuthenticate::parse(&self.ntlm).map(|a| a.user).unwrap_or_default();
        let throttled_user =
            if is_guest(&*server.users.table.read().await, &claimed_user) { "" } else { claimed_user.as_str() };
        if server.auth.attempt(throttled_user, peer).is_err() {
            info!("logon refused: too many failed logons for this user name or address");
            if let Some(peer) = peer {
                server.observe(peer, Admission::LockedOut { user: &claimed_user });
            }
            let refused = logon_failed(server, conn, self.sid, reauth, ntstatus::STATUS_ACCOUNT_LOCKED_OUT).await;
            return Err(Box::new(refused));
        }
        // A guest logon is checked against the empty password, and only while
        // a share admits guests from there.
        let public = eq_ignore_case(&claimed_user, GUEST) && server.anonymous_allowed(peer).await;
        let result = self.authenticate(pending, &*server.users.table.read().await, public);
        match result {
            Ok(client) => {
                server.auth.succeeded(throttled_user, peer);
                Ok(client)
            }
            Err(status) => {
                if let Some(peer) = peer {
                    server.observe(peer, Admission::LogonFailed { user: &claimed_user });
                }
                let response = logon_failed(server, conn, self.sid, reauth, status).await;
                let failures = peer.map_or(0, |peer| server.auth.failures_of(peer));
                tokio::time::sleep(crate::admission::delay(failures)).await;
                Err(Box::new(response))
            }
        }
    }

    /// Checks the AUTHENTICATE_MESSAGE; with `public`, a guest's against the
    /// empty password.
    fn authenticate(
        &self,
        pending: &Acceptor,
        users: &HashMap<String, UserCreds>,
        public: bool,
    ) -> Result<Authenticated, u32> {
        let pair = pending.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (acceptor, raw_form) = (&pair.0, pair.1);
        let lookup = |u: &str, _d: &str| match configured_user(users, u) {
            Some((_, creds)) => Some(creds.clone()),
            None => (public && is_guest(users, u)).then(|| UserCreds::from_password("")),
        };
        let mut outcome = acceptor.authenticate(&self.ntlm, lookup).map_err(|e| {
            info!(error = %e, "NTLM authenticate failed");
            match NtlmAuthenticate::parse(&self.ntlm) {
                Ok(_) => ntstatus::STATUS_LOGON_FAILURE,
                Err(_) => ntstatus::STATUS_INVALID_PARAMETER,
            }
        })?;
        // The session carries the configured spelling of the name,
        // which share access is granted to.
        let mut nt_hash = None;
        let mut guest = false;
        if let Identity::User { user, .. } = &mut outcome.identity {
            match configured_user(users, user) {
                Some((name, creds)) => {
                    *user = name.clone();
                    nt_hash = Some(creds.nt_hash);
                }
                None => guest = public && is_guest(users, user),
            }
        }
        let mic = if raw_form { None } else { mech_list_mic(acceptor, &outcome, self.client_mic.as_deref())? };
        // A guest gets an anonymous session: the public shares and
        // no key.
        if guest {
            outcome.identity = Identity::Anonymous;
            outcome.session_key = [0; 16];
        }
        Ok(Authenticated { outcome, raw_form, mic, nt_hash, guest })
    }

    /// Whether anonymous clients and guests come in.
    async fn admit(&self, client: &Authenticated) -> Result<(), u32> {
        if client.is_anonymous() && !self.server.anonymous_allowed(self.peer()).await {
            return Err(ntstatus::STATUS_LOGON_FAILURE);
        }
        // MS-SMB2 3.3.5.5.3 sets Session.SigningRequired when the request's
        // SecurityMode has SIGNING_REQUIRED, guests included, and a guest
        // session has no key to sign with. The spec names no status for this;
        // MS-SMB2 3.3.5.5 refuses a session that cannot be encrypted as the
        // server requires with STATUS_ACCESS_DENIED, and the same status is used
        // here.
        if client.guest && self.req.security_mode & SessionSetupRequest::SECURITY_SIGNING_REQUIRED != 0 {
            info!("guest logon refused: the client requires signing");
            return Err(ntstatus::STATUS_ACCESS_DENIED);
        }
        Ok(())
    }

    /// The response to a logon that succeeded. MS-SMB2 3.3.5.5.3: anonymous
    /// sessions are flagged IS_NULL, guest sessions IS_GUEST.
    fn success(&self, client: &Authenticated) -> HandlerResponse {
        let session_flags = if client.guest {
            SessionSetupResponse::FLAG_IS_GUEST
        } else if client.is_anonymous() {
            SessionSetupResponse::FLAG_IS_NULL
        } else {
            0
        };
        let token: Vec<u8> = if client.raw_form {
            Vec::new()
        } else {
            encode_resp_token(NegState::AcceptCompleted, None, None, client.mic.as_deref())
        };
        HandlerResponse {
            payload: Vec::new(),
            body: build_session_setup_response(ntstatus::STATUS_SUCCESS, &token, session_flags),
            status: ntstatus::STATUS_SUCCESS,
            override_tree_id: None,
            override_session_id: Some(self.sid),
            // Anonymous and guest sessions have no key; the dispatcher signs
            // the rest.
            skip_signing: client.is_anonymous(),
            take_preauth_snapshot_for_session: None,
            channel_base_key: None,
            signing_key: None,
            after_send: Vec::new(),
        }
    }

    /// Reauthentication keeps the session, its key and its trees
    /// (MS-SMB2 3.3.5.5.2), for the same user only.
    fn reauthenticate(&self, client: &Authenticated, existing: &Session) -> HandlerResponse {
        let identity = client.name();
        if !same_user(&existing.identity, &client.outcome.identity) {
            info!(%identity, "reauthentication as another user refused");
            return HandlerResponse::err(ntstatus::STATUS_ACCESS_DENIED);
        }
        info!(%identity, "session reauthenticated");
        self.success(client)
    }

    /// Binds the connection to a session of another (MS-SMB2 3.3.5.5.2).
    async fn bind(&self, client: &Authenticated, dialect: Dialect, binding: &Binding) -> HandlerResponse {
        let (conn, sid, identity) = (self.conn, self.sid, client.name());
        let session_base_key = client.outcome.session_key;
        let bound = bind(self.server, conn, sid, &binding.session, &client.outcome.identity).await;
        if let Err(status) = bound {
            info!(%identity, status, "binding a connection to a session refused");
            return HandlerResponse::err(status);
        }
        let mut response = self.success(client);
        match signing_key(dialect, &session_base_key) {
            Some(key) => conn.channel_keys.set(sid, key),
            None => {
                response.take_preauth_snapshot_for_session = Some(sid);
                response.channel_base_key = Some(session_base_key);
            }
        }
        info!(%identity, "connection bound to a session");
        response
    }

    /// Makes the session (MS-SMB2 3.3.5.5.3).
    async fn establish(&self, client: &Authenticated, dialect: Dialect) -> HandlerResponse {
        let (server, conn, sid) = (self.server, self.conn, self.sid);
        if let Err(status) = self.add_session(client, dialect).await {
            return HandlerResponse::err(status);
        }
        let previous = self.req.previous_session_id;
        if previous != 0 && previous != sid {
            close_previous_session(server, previous, &client.outcome.identity).await;
        }
        let mut response = self.success(client);
        if dialect == Dialect::Smb311 {
            response.take_preauth_snapshot_for_session = Some(sid);
        }
        info!(identity = %client.name(), "session established");
        if let Some(peer) = conn.peer_addr.map(|a| a.ip()) {
            let user = client.outcome.identity.user();
            if let (Some(traffic), Some(user)) = (larder_base::traffic::current(), user) {
                traffic.set_user(user);
            }
            server.observe(peer, Admission::LoggedOn { user });
        }
        response
    }

    /// Puts the new session in the connection's table.
    async fn add_session(&self, client: &Authenticated, dialect: Dialect) -> Result<(), u32> {
        let (server, conn, outcome) = (self.server, self.conn, &client.outcome);
        let session_base_key = outcome.session_key;
        let signing_required = signing_required(server, conn, self.req, &outcome.identity);
        let mut session = Session::new(outcome.identity.clone(), session_base_key, signing_required);
        session.signing_algo = conn.negotiated.signing_algo();
        session.channels.add(conn)?;
        // SMB 3.1.1 keys come from the preauth hash, once it is known.
        // Authenticated sessions on a connection with a cipher get encryption
        // keys.
        if let Some(signing) = signing_key(dialect, &session_base_key) {
            let cipher = conn.negotiated.cipher().filter(|_| !client.is_anonymous());
            let cipher = cipher.map(|cipher| Arc::new(SessionCipher::derive(cipher, &session_base_key, None)));
            session.set_keys(SessionKeys { signing, cipher });
        }
        let sessions = conn.sessions.change().await;
        if session_limit_reached(server, conn) {
            warn!("session limit reached on connection");
            return Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES);
        }
        // ConfigHandle::remove_user drops the user before it closes the
        // user's sessions, and that sweep waits for this lock. A user that is
        // gone, or whose password changed, since it authenticated gets no
        // session.
        if let (Identity::User { user, .. }, Some(nt_hash)) = (&outcome.identity, client.nt_hash)
            && server.lookup_user(user).await.is_none_or(|c| c.nt_hash != nt_hash)
        {
            info!("user removed or changed during logon");
            return Err(ntstatus::STATUS_LOGON_FAILURE);
        }
        sessions.insert(self.sid, Arc::new(session));
        Ok(())
    }
}

/// Gives `conn` the session `sid`, if `identity` is its user.
async fn bind(
    server: &ServerState,
    conn: &Arc<Connection>,
    sid: u64,
    session: &Arc<Session>,
    identity: &Identity,
) -> Result<(), u32> {
    if matches!(identity, Identity::Anonymous) {
        return Err(ntstatus::STATUS_NOT_SUPPORTED);
    }
    let sessions = conn.sessions.change().await;
    if session_limit_reached(server, conn) {
        return Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES);
    }
    if !same_user(&session.identity, identity) {
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }
    session.channels.add(conn)?;
    sessions.insert(sid, Arc::clone(session));
    Ok(())
}

fn session_limit_reached(server: &ServerState, conn: &Connection) -> bool {
    conn.sessions.len() >= server.auth.settings.max_sessions_per_connection
}

/// Ends a logon that failed with `status`: counts it against the connection;
/// against its name and network it is counted already. Closes the connection
/// once it has failed too often, and removes a session that was being
/// reauthenticated (MS-SMB2 3.3.5.5.3), keeping its durable opens as LOGOFF
/// does.
async fn logon_failed(server: &ServerState, conn: &Connection, sid: u64, reauth: bool, status: u32) -> HandlerResponse {
    let failures = conn.logon_failures.fetch_add(1, Ordering::Relaxed) + 1;
    if server.auth.connection_exhausted(failures) {
        warn!(failures, "too many failed logons; closing the connection");
        conn.request_disconnect();
    }
    if reauth {
        conn.close_session(sid, Some(&server.durable)).await;
    }
    HandlerResponse::err(status)
}

/// True when both identities are the same configured user, or both are
/// anonymous.
fn same_user(a: &Identity, b: &Identity) -> bool {
    match (a, b) {
        (Identity::Anonymous, Identity::Anonymous) => true,
        (Identity::User { user: a, .. }, Identity::User { user: b, .. }) => a == b,
        _ => false,
    }
}

/// MS-SMB2 3.3.5.5.3: a logon that names a PreviousSessionId of the same
/// user ends that session, on whichever connection holds it, as if that
/// connection were lost (MS-SMB2 3.3.7.1): its durable opens are kept.
async fn close_previous_session(server: &ServerState, previous: u64, identity: &Identity) {
    if matches!(identity, Identity::Anonymous) {
        return;
    }
    for conn in server.active_connections.live().await {
        let old = conn.sessions.get(previous);
        let Some(old) = old else {
            continue;
        };
        if same_user(&old.identity, identity) {
            info!(previous, "closing the session the client reconnected from");
            conn.close_session(previous, Some(&server.durable)).await;
        }
        return;
    }
}

/// Checks the client's mechListMIC and returns the server's, for an SPNEGO
/// exchange (RFC 4178 section 5, MS-SPNG 3.1.5.1). The MIC is exchanged
/// when the client sends one, when the AUTHENTICATE_MESSAGE carried an NTLM
/// MIC, or when NTLM was not the client's first choice; in the last case the
/// client's MIC is required. Anonymous logons have no key and exchange none.
fn mech_list_mic(
    acceptor: &NtlmServer,
    outcome: &AuthOutcome,
    client_mic: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, u32> {
    let required = acceptor.mech_list_mic_required;
    let wanted = required || client_mic.is_some() || outcome.mic_present;
    let (Some(mech_list), false) = (acceptor.mech_list.as_deref(), matches!(outcome.identity, Identity::Anonymous))
    else {
        return Ok(None);
    };
    if !wanted {
        return Ok(None);
    }
    let key = &outcome.session_key;
    let client = NtlmMac::new(outcome.flags, key, Direction::ClientToServer);
    let server = NtlmMac::new(outcome.flags, key, Direction::ServerToClient);
    let (Some(mut client), Some(mut server)) = (client, server) else {
        if required || client_mic.is_some() {
            info!("mechListMIC needed but NTLM signing was not negotiated");
            return Err(ntstatus::STATUS_LOGON_FAILURE);
        }
        return Ok(None);
    };
    match client_mic {
        Some(mic) if !client.verify(mech_list, mic) => {
            info!("SPNEGO mechListMIC mismatch");
            return Err(ntstatus::STATUS_LOGON_FAILURE);
        }
        None if required => {
            info!("SPNEGO mechListMIC missing");
            return Err(ntstatus::STATUS_LOGON_FAILURE);
        }
        _ => {}
    }
    Ok(Some(server.mac(mech_list).to_vec()))
}

/// Session.SigningRequired (MS-SMB2 3.3.5.5.3): the client asked for
/// signing in SESSION_SETUP or NEGOTIATE, or the server requires it.
/// Anonymous sessions have no key and are never signed.
fn signing_required(server: &ServerState, conn: &Connection, req: &SessionSetupRequest, identity: &Identity) -> bool {
    if matches!(identity, Identity::Anonymous) {
        return false;
    }
    let should_sign = conn.negotiated.client().is_some_and(|client| client.should_sign());
    req.security_mode & SessionSetupRequest::SECURITY_SIGNING_REQUIRED != 0
        || should_sign
        || server.auth.settings.require_signing
}

/// The configured user an NTLM user name refers to. NTLM user names are not
/// case sensitive: an exact match wins, then the one name that matches
/// ignoring case. A name that matches several users only by case matches
/// none of them. Every entry is compared, so the time taken does not show
/// whether or how the name matched.
fn configured_user<'a>(users: &'a HashMap<String, UserCreds>, name: &str) -> Option<(&'a String, &'a UserCreds)> {
    let mut exact = None;
    let mut folded = None;
    let mut folded_count = 0usize;
    for user in users {
        if user.0 == name {
            exact = Some(user);
        }
        if eq_ignore_case(user.0, name) {
            folded = Some(user);
            folded_count += 1;
        }
    }
    exact.or(folded.filter(|_| folded_count == 1))
}

/// The user name of a guest logon.
const GUEST: &str = "guest";

/// True when a logon as `name` is a guest logon: the name is `guest` in any
/// case and no configured user has that name.
fn is_guest(users: &HashMap<String, UserCreds>, name: &str) -> bool {
    eq_ignore_case(name, GUEST) && !users.keys().any(|user| eq_ignore_case(user, GUEST))
}

fn eq_ignore_case(a: &str, b: &str) -> bool {
    a.chars().flat_map(char::to_uppercase).eq(b.chars().flat_map(char::to_uppercase))
}

/// Session.SigningKey for `dialect` (MS-SMB2 3.3.5.5.3). SMB 2.x signs with
/// the session key itself. `None` for 3.1.1, whose key is derived once the
/// preauth hash of this exchange is known.
fn signing_key(dialect: Dialect, session_key: &[u8; 16]) -> Option<[u8; 16]> {
    match dialect {
        Dialect::Smb311 => None,
        Dialect::Smb202 | Dialect::Smb210 | Dialect::Smb2Wildcard => Some(*session_key),
        Dialect::Smb300 | Dialect::Smb302 => Some(signing_key_30(session_key)),
    }
}

fn build_session_setup_response(_status: u32, spnego_blob: &[u8], session_flags: u16) -> Vec<u8> {
    let resp = SessionSetupResponse {
        structure_size: 9,
        session_flags,
        security_buffer_offset: 64 + 8, // SMB2 header + fixed prefix
        security_buffer_length: spnego_blob.len() as u16,
        security_buffer: spnego_blob.to_vec(),
    };
    let mut buf = Vec::new();
    resp.write_to(&mut buf).expect("SESSION_SETUP response encodes");
    debug!(len = buf.len(), "SESSION_SETUP response built");
    buf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signing_key_per_dialect() {
        let key = [0x5A; 16];
        assert_eq!(signing_key(Dialect::Smb202, &key), Some(key));
        assert_eq!(signing_key(Dialect::Smb210, &key), Some(key));
        assert_eq!(signing_key(Dialect::Smb300, &key), Some(signing_key_30(&key)));
        assert_eq!(signing_key(Dialect::Smb302, &key), Some(signing_key_30(&key)));
        assert_eq!(signing_key(Dialect::Smb311, &key), None, "it is not known yet");
    }

    #[test]
    fn configured_user_matches_case_insensitively_once() {
        let mut users = HashMap::new();
        users.insert("Alice".to_string(), UserCreds::from_password("a"));
        users.insert("bob".to_string(), UserCreds::from_password("b"));
        users.insert("BOB".to_string(), UserCreds::from_password("c"));
        assert_eq!(configured_user(&users, "alice").unwrap().0, "Alice");
        assert_eq!(configured_user(&users, "bob").unwrap().0, "bob");
        assert_eq!(configured_user(&users, "BOB").unwrap().0, "BOB");
        assert!(configured_user(&users, "Bob").is_none());
        assert!(configured_user(&users, "carol").is_none());
    }

    #[test]
    fn guest_is_the_name_guest_when_no_user_has_it() {
        let mut users = HashMap::new();
        users.insert("alice".to_string(), UserCreds::from_password("a"));
        for name in ["guest", "GUEST", "Guest"] {
            assert!(is_guest(&users, name), "{name}");
        }
        assert!(!is_guest(&users, "alice"));
        assert!(!is_guest(&users, "guests"));
        assert!(!is_guest(&users, ""));
        users.insert("Guest".to_string(), UserCreds::from_password("g"));
        assert!(!is_guest(&users, "guest"));
    }

    use larder_smb_wire::auth::ntlm_client::{Fresh, Logon, authenticate};
    use larder_smb_wire::header::{Command, HeaderTail};
    use std::time::Duration;

    fn header(session_id: u64) -> Smb2Header {
        Smb2Header {
            credit_charge: 1,
            channel_sequence_status: 0,
            command: Command::SessionSetup,
            credit_request_response: 1,
            flags: 0,
            next_command: 0,
            message_id: 1,
            tail: HeaderTail::sync(0),
            session_id,
            signature: [0; 16],
        }
    }

    fn body(token: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        SessionSetupRequest {
            structure_size: 25,
            flags: 0,
            security_mode: 1,
            capabilities: 0,
            channel: 0,
            security_buffer_offset: 88,
            security_buffer_length: token.len() as u16,
            previous_session_id: 0,
            security_buffer: token.to_vec(),
        }
        .write_to(&mut body)
        .unwrap();
        body
    }

    fn ntlm_negotiate() -> Vec<u8> {
        let mut msg = NTLMSSP_SIGNATURE.to_vec();
        msg.extend_from_slice(&1u32.to_le_bytes());
        msg.extend_from_slice(&0x0008_0201u32.to_le_bytes());
        msg.extend_from_slice(&[0u8; 16]);
        msg
    }

    /// The AUTHENTICATE_MESSAGE answering the CHALLENGE_MESSAGE `challenge`, without key exchange.
    fn ntlm_authenticate(challenge: &[u8], user: &str, password: &str) -> Vec<u8> {
        let fresh = Fresh { challenge: [0xAA; 8], session_key: [0; 16], time: 0 };
        authenticate(&Logon { user, password, domain: "" }, &ntlm_negotiate(), challenge, &fresh).unwrap().message
    }

    fn server_with(settings: impl FnOnce(&mut crate::auth_policy::AuthSettings)) -> crate::SmbServer {
        let mut builder = crate::SmbServer::builder();
        settings(&mut builder.auth);
        builder.listen("127.0.0.1:0".parse().unwrap()).user("alice", "password").build().expect("build")
    }

    async fn connection(state: &Arc<ServerState>) -> Arc<Connection> {
        let conn = Arc::new(Connection::new(state.config.server_guid, 65536, 65536));
        state.active_connections.register(&conn).await;
        conn.negotiated.set_dialect(Dialect::Smb210, SigningAlgo::HmacSha256);
        conn
    }

    /// First round; returns the SessionId and the CHALLENGE_MESSAGE.
    async fn first_round(state: &Arc<ServerState>, conn: &Arc<Connection>) -> (u64, Vec<u8>) {
        let resp = handle(state, conn, &header(0), &body(&ntlm_negotiate())).await;
        assert_eq!(resp.status, ntstatus::STATUS_MORE_PROCESSING_REQUIRED);
        let sid = resp.override_session_id.unwrap();
        let challenge = SessionSetupResponse::parse(&resp.body).unwrap().security_buffer;
        (sid, challenge)
    }

    async fn logon(state: &Arc<ServerState>, conn: &Arc<Connection>, user: &str, password: &str) -> u32 {
        let (sid, challenge) = first_round(state, conn).await;
        let auth = ntlm_authenticate(&challenge, user, password);
        handle(state, conn, &header(sid), &body(&auth)).await.status
    }

    #[tokio::test]
    async fn repeated_failures_close_the_connection() {
        let server = server_with(|auth| auth.max_logon_failures = 2);
        let state = server.state();
        let conn = connection(&state).await;
        assert_eq!(logon(&state, &conn, "alice", "wrong").await, ntstatus::STATUS_LOGON_FAILURE);
        assert!(!conn.disconnect_requested());
        assert_eq!(logon(&state, &conn, "nobody", "wrong").await, ntstatus::STATUS_LOGON_FAILURE);
        assert!(conn.disconnect_requested());
    }

    #[tokio::test]
    async fn sessions_per_connection_are_capped() {
        let server = server_with(|auth| auth.max_sessions_per_connection = 1);
        let state = server.state();
        let conn = connection(&state).await;
        assert_eq!(logon(&state, &conn, "alice", "password").await, 0);
        let resp = handle(&state, &conn, &header(0), &body(&ntlm_negotiate())).await;
        assert_eq!(resp.status, ntstatus::STATUS_INSUFFICIENT_RESOURCES);
    }

    /// A logon that authenticated before `remove_user` and inserts its
    /// session after the sweep does not leave a session behind.
    #[tokio::test]
    async fn logon_racing_remove_user_leaves_no_session() {
        let server = server_with(|_| {});
        let state = server.state();
        let config = server.config_handle();
        let conn = connection(&state).await;
        let (sid, challenge) = first_round(&state, &conn).await;
        let auth = ntlm_authenticate(&challenge, "alice", "password");

        // The logon stops after authenticating, where it adds its session.
        let sessions = conn.sessions.change().await;
        let logon = tokio::spawn({
            let (state, conn) = (state.clone(), conn.clone());
            async move { handle(&state, &conn, &header(sid), &body(&auth)).await.status }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        let removal = tokio::spawn(async move { config.remove_user("alice").await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(sessions);
        removal.await.unwrap().unwrap();
        assert_ne!(logon.await.unwrap(), ntstatus::STATUS_SUCCESS);
        assert!(conn.sessions.is_empty());
    }
}
