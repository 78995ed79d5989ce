//! Clients and sessions: EXCHANGE_ID and its kin (RFC 8881 18.33 to 18.37, 18.46, 18.50, 18.51), SETCLIENTID and its
//! kin (RFC 7530 16.33, 16.34, 16.29).

use super::super::clients::{Asking, CallbackPath, Principal, SetClientIdRefusal, exchange_flag};
use super::super::compound::CompoundReply;
use super::super::ops::{
    ArgOp, CreateSessionArgs, CreateSessionOk, ExchangeIdArgs, ExchangeIdOk, ProtectGiven, ResOp, SecInfoStyle,
    SequenceArgs, SetClientIdArgs,
};
use super::super::place::Place;
use super::super::server::V4State;
use super::super::slots::{Arrival, Sequenced};
use super::super::types::{CallbackSec, ClientId, DetailedResult, NetAddr, NfsStat, ServerOwner, SessionId};
use super::super::wire::{Opaque, Xdr, XdrOut};
use super::{AUTH_SYS, Run};
use crate::rpc::Auth;

/// The first way that a client offers to name ourselves to it: call-backs with AUTH_NONE are refused by Linux where
/// AUTH_SYS was offered. The body of AUTH_SYS as the client gave it.
fn callback_cred<'a>(offered: impl Iterator<Item = CallbackSec<'a>>) -> Option<Box<[u8]>> {
    for security in offered {
        if let CallbackSec::Sys(parms) = security {
            let mut out = XdrOut::default();
            parms.put(&mut out);
            return Some(out.into_bytes().into());
        }
    }
    None
}

impl<'m> Run<'m> {
    pub(super) fn principal(&self) -> Principal {
        match self.caller.auth {
            Auth::None => Principal { flavor: 0, uid: 0, gid: 0 },
            Auth::Sys { uid, gid, .. } => Principal { flavor: AUTH_SYS, uid, gid },
        }
    }

    pub(super) fn sequence(&mut self, args: &SequenceArgs, arrival: Arrival) -> Result<Sequenced, NfsStat> {
        // `server.common_requests_pass_by`
        let (client, sequenced, bounds) = self.v4.session(&args.session)?.sequence(args, arrival, self.v4.now())?;
        self.client = Some(client);
        self.bounds = bounds.unwrap_or(self.bounds);
        Ok(sequenced)
    }

    pub(super) fn session_operation(&mut self, op: ArgOp<'m>, reply: &mut CompoundReply) {
        let v4 = self.v4;
        let mut state = v4.lock();
        let state = &mut *state;
        let now = v4.now();
        match op {
            ArgOp::ExchangeId(args) => self.exchange_id(state, &args, reply),
            ArgOp::CreateSession(args) => {
                let done = self.create_session(state, &args);
                v4.is_used();
                self.push(reply, &ResOp::CreateSession(done));
            }
            ArgOp::DestroySession(session) => {
                let done = self.destroy_session(state, &session);
                self.push(reply, &ResOp::DestroySession(done));
            }
            ArgOp::DestroyClientId(client) => {
                let done = self.destroy_client(state, client);
                self.push(reply, &ResOp::DestroyClientId(done));
            }
            ArgOp::BindConnToSession(args) => {
                let done = state.clients.bind_connection(&args, self.connection);
                if let Some(client) = state.clients.session(&args.session).ok().map(|session| session.lock().client) {
                    state.refresh_status(client);
                }
                v4.recalls_wait();
                self.push(reply, &ResOp::BindConnToSession(done));
            }
            ArgOp::BackchannelCtl(args) => {
                let done = self.client.ok_or(NfsStat::OpNotInSession).and_then(|_| {
                    let session = self.slot.ticket.as_ref().map(|ticket| ticket.session());
                    let session = state.clients.session(&session.ok_or(NfsStat::OpNotInSession)?)?;
                    let mut session = session.lock();
                    session.callback_program = args.program;
                    session.callbacks.cred = callback_cred(args.security.iter());
                    Ok(())
                });
                self.push(reply, &ResOp::BackchannelCtl(done));
            }
            ArgOp::ReclaimComplete(one_file_system) => {
                let done = self.reclaim_complete(state, one_file_system);
                self.push(reply, &ResOp::ReclaimComplete(done));
            }
            ArgOp::SetClientId(args) => self.set_client_id(state, &args, reply),
            ArgOp::SetClientIdConfirm(args) => {
                let done = state.clients.confirm_client_id(&args, self.principal(), now);
                let done = done.map(|done| state.replaced(done.removed));
                if done.is_ok() {
                    state.admit(args.client);
                }
                if done.is_ok()
                    && let Some(path) = state.clients.callback_path(args.client)
                {
                    v4.link_to(args.client, path, self.caller.peer.ip());
                }
                v4.is_used();
                self.push(reply, &ResOp::SetClientIdConfirm(done));
            }
            ArgOp::Renew(client) => {
                let done = state.clients.renew(client, now);
                // RFC 7530 16.29.4: it is renewed, and hears that it is not called.
                let is_cut_off = state.states.has_delegations(client) && !v4.is_linked(client);
                let done = done.and(if is_cut_off { Err(NfsStat::CbPathDown) } else { Ok(()) });
                self.push(reply, &ResOp::Renew(done));
            }
            other => self.push(reply, &ResOp::failed(other.number(), NfsStat::ServerFault)),
        }
    }

    fn asking(&self) -> Asking {
        Asking { principal: self.principal(), address: self.caller.peer.ip(), now: self.v4.now() }
    }

    /// `clients.room_by_network`
    fn give_way(&mut self, state: &mut V4State) -> bool {
        let has_made_room = state.give_way(self.caller.peer.ip(), self.v4.now());
        if has_made_room {
            self.v4.delegations_changed(state);
            self.is_unsettled = true;
        }
        has_made_room
    }

    fn exchange_id(&mut self, state: &mut V4State, args: &ExchangeIdArgs<'_>, reply: &mut CompoundReply) {
        // RFC 7862 14.1 defines it.
        if self.minor < 2 && args.flags & exchange_flag::SUPP_FENCE_OPS != 0 {
            return self.push(reply, &ResOp::ExchangeId(Err(NfsStat::Inval)));
        }
        let mut done = state.clients.exchange_id(args, self.asking(), &state.states, &mut state.chance);
        if done == Err(NfsStat::Delay) && self.give_way(state) {
            done = state.clients.exchange_id(args, self.asking(), &state.states, &mut state.chance);
        }
        self.v4.is_used();
        let server = self.v4.server();
        let done = done.map(|done| {
            state.replaced(done.removed);
            let confirmed = if done.value.is_confirmed { exchange_flag::CONFIRMED } else { 0 };
            ExchangeIdOk {
                client: done.value.client,
                sequence: done.value.sequence,
                flags: exchange_flag::USE_NON_PNFS | confirmed,
                protect: ProtectGiven::None(()),
                // One server at all of its addresses: clients may trunk.
                server: ServerOwner { minor_id: 0, major_id: Opaque(server) },
                scope: Opaque(self.v4.scope()),
                implementation: None,
            }
        });
        self.push(reply, &ResOp::ExchangeId(done));
    }

    fn create_session(&self, state: &mut V4State, args: &CreateSessionArgs<'_>) -> Result<CreateSessionOk, NfsStat> {
        let (principal, now) = (self.principal(), self.v4.now());
        let made = state.clients.create_session(args, principal, self.connection, now, &mut state.chance)?;
        state.replaced(made.removed);
        state.admit(args.client);
        let session = state.clients.session(&made.value.session)?;
        let mut session = session.lock();
        session.callbacks.minor = self.minor;
        session.callbacks.cred = callback_cred(args.security.iter());
        drop(session);
        state.refresh_status(args.client);
        // Delegations may wait for a way back.
        self.v4.recalls_wait();
        Ok(made.value)
    }

    /// In its own session it ends the request (RFC 8881 18.37.3).
    fn destroy_session(&mut self, state: &mut V4State, session: &SessionId) -> Result<(), NfsStat> {
        let is_own = self.slot.ticket.as_ref().is_some_and(|ticket| ticket.session() == *session);
        if is_own && !self.is_last {
            return Err(NfsStat::NotOnlyOp);
        }
        let client = state.clients.session(session)?.lock().client;
        state.clients.destroy_session(session, self.connection, self.slot.ticket.as_ref())?;
        state.refresh_status(client);
        Ok(())
    }

    fn destroy_client(&mut self, state: &mut V4State, client: ClientId) -> Result<(), NfsStat> {
        let owner = state.clients.destroy_client(client, &state.states)?;
        state.states.end_client(client);
        state.forget(&owner.key());
        self.is_unsettled = true;
        Ok(())
    }

    /// Of one file system it says nothing that matters here: no file system moves (RFC 8881 18.51.3).
    fn reclaim_complete(&mut self, state: &mut V4State, one_file_system: bool) -> Result<(), NfsStat> {
        let client = self.client.ok_or(NfsStat::OpNotInSession)?;
        if one_file_system {
            return self.place().map(|_| ());
        }
        state.clients.reclaim_complete(client)?;
        let owner = state.clients.owner_key(client).ok_or(NfsStat::StaleClientId)?;
        state.completed(&owner, self.v4.now());
        // Its next OPEN does not meet a grace that this has ended.
        self.is_unsettled = true;
        Ok(())
    }

    fn set_client_id(&mut self, state: &mut V4State, args: &SetClientIdArgs<'_>, reply: &mut CompoundReply) {
        let callback = CallbackPath {
            program: args.callback.program,
            netid: args.callback.location.netid.0.into(),
            address: args.callback.location.address.0.into(),
            ident: args.callback_ident,
        };
        let client = &args.client;
        let asking = self.asking();
        let ask = |state: &mut V4State| {
            let callback = callback.clone();
            state.clients.set_client_id(
                client.id.0,
                client.verifier,
                callback,
                asking,
                &state.states,
                &mut state.chance,
            )
        };
        let mut done = ask(state);
        if done == Err(SetClientIdRefusal::Status(NfsStat::Resource)) && self.give_way(state) {
            done = ask(state);
        }
        self.v4.is_used();
        match done {
            Ok(done) => {
                state.replaced(done.removed);
                self.push(reply, &ResOp::SetClientId(DetailedResult::Ok(done.value)));
            }
            Err(SetClientIdRefusal::InUse(path)) => {
                let other = NetAddr { netid: Opaque(&path.netid), address: Opaque(&path.address) };
                self.push(reply, &ResOp::SetClientId(DetailedResult::Detailed(other)));
            }
            Err(SetClientIdRefusal::Status(status)) => {
                self.push(reply, &ResOp::SetClientId(DetailedResult::Err(status)));
            }
        }
    }

    pub(super) async fn secinfo_no_name(&mut self, style: SecInfoStyle) -> Result<(), NfsStat> {
        match style {
            SecInfoStyle::Current => drop(self.place()?),
            SecInfoStyle::Parent => drop::<Place>(self.parent_place().await?),
        }
        self.consume_place();
        Ok(())
    }
}
