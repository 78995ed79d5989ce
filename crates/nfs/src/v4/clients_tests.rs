#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::cast_possible_truncation)]
use super::super::ops::ProtectOps;
use super::super::slots::RequestDigest;
use super::super::types::{ClientOwner, ImplementationId, Time4};
use super::super::wire::{Opaque, XdrList};
use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const LEASE: Duration = Duration::from_secs(90);
const ME: Principal = Principal { flavor: 1, uid: 0, gid: 0 };
const OTHER: Principal = Principal { flavor: 1, uid: 7, gid: 0 };
const CONNECTION: ConnectionId = ConnectionId(1);
const UPDATE: u32 = exchange_flag::UPDATE_CONFIRMED;

/// Ids of clients take all but the last bit of it.
struct Counter(u64);

impl Chance for Counter {
    fn next(&mut self) -> u64 {
        self.0 += 2;
        self.0
    }
}

/// Clients that have something open.
#[derive(Default)]
struct Holding(Vec<ClientId>);

impl StateHolders for Holding {
    fn has_state(&self, client: ClientId) -> bool {
        self.0.contains(&client)
    }
}

fn at(secs: u64) -> Moment {
    Moment(Duration::from_secs(secs))
}

fn asking(principal: Principal, now: Moment) -> Asking {
    Asking { principal, address: Ipv4Addr::LOCALHOST.into(), now }
}

/// A machine of a house, one of each network.
fn from_network(network: usize, now: Moment) -> Asking {
    Asking { address: Ipv6Addr::from_bits((network as u128 + 1) << 64 | 7).into(), ..asking(ME, now) }
}

fn exchange<'a>(id: &'a [u8], verifier: u8, flags: u32) -> ExchangeIdArgs<'a> {
    let owner = ClientOwner { verifier: [verifier; 8], id: Opaque(id) };
    ExchangeIdArgs { owner, flags, protect: ProtectAsked::None(()), implementation: None }
}

fn channel() -> ChannelAttrs {
    ChannelAttrs {
        header_pad: 9,
        request_bytes: 2 << 20,
        reply_bytes: 2 << 20,
        cached_reply_bytes: 1 << 20,
        operations: 1000,
        requests: 1000,
        rdma_ird: None,
    }
}

fn session_args(client: ClientId, sequence: u32) -> CreateSessionArgs<'static> {
    let (fore, back) = (channel(), channel());
    let flags = session_flag::CONN_BACK_CHAN | session_flag::PERSIST;
    CreateSessionArgs { client, sequence, flags, fore, back, callback_program: 7, security: XdrList::of(&[]) }
}

struct World {
    clients: Clients,
    states: Holding,
    chance: Counter,
}

impl World {
    fn new() -> Self {
        Self { clients: Clients::new(LEASE), states: Holding::default(), chance: Counter(0) }
    }

    fn exchange(
        &mut self,
        verifier: u8,
        flags: u32,
        who: Principal,
        secs: u64,
    ) -> Result<Replacing<Exchanged>, NfsStat> {
        self.clients.exchange_id(
            &exchange(b"box", verifier, flags),
            asking(who, at(secs)),
            &self.states,
            &mut self.chance,
        )
    }

    fn create(&mut self, client: ClientId, sequence: u32) -> Result<Replacing<CreateSessionOk>, NfsStat> {
        self.clients.create_session(&session_args(client, sequence), ME, CONNECTION, at(0), &mut self.chance)
    }

    /// A client with verifier 1 and a session.
    fn confirmed() -> (Self, ClientId, SessionId) {
        let mut world = World::new();
        let client = world.exchange(1, 0, ME, 0).unwrap().value.client;
        let session = world.create(client, 1).unwrap().value.session;
        (world, client, session)
    }
}

/// RFC 8881 18.35.4: each case with the record that it finds.
#[test]
fn exchange_id_by_cases() {
    enum Wanted {
        New,
        Same,
        Refused(NfsStat),
    }
    let cases = [
        ("2: the same again", 1, 0, ME, Wanted::Same),
        ("3: another principal", 1, 0, OTHER, Wanted::Refused(NfsStat::ClidInUse)),
        ("3: another principal and verifier", 2, 0, OTHER, Wanted::Refused(NfsStat::ClidInUse)),
        ("5: a restart", 2, 0, ME, Wanted::New),
        ("6: an update", 1, UPDATE, ME, Wanted::Same),
        ("8: an update with another verifier", 2, UPDATE, ME, Wanted::Refused(NfsStat::NotSame)),
        ("9: an update by another principal", 1, UPDATE, OTHER, Wanted::Refused(NfsStat::Perm)),
        ("9: both", 2, UPDATE, OTHER, Wanted::Refused(NfsStat::Perm)),
        ("a flag that the server sets", 1, exchange_flag::CONFIRMED, ME, Wanted::Refused(NfsStat::Inval)),
        ("a flag of nobody", 1, 0x10, ME, Wanted::Refused(NfsStat::Inval)),
    ];
    for (what, verifier, flags, who, wanted) in cases {
        let (mut world, client, _) = World::confirmed();
        match (world.exchange(verifier, flags, who, 1), wanted) {
            (Ok(done), Wanted::Same) => {
                assert_eq!(done.value, Exchanged { client, sequence: 2, is_confirmed: true }, "{what}");
            }
            (Ok(done), Wanted::New) => {
                assert!(done.value.client != client && !done.value.is_confirmed, "{what}");
                assert!(world.clients.is_confirmed(client), "{what}: the old one stays until it is confirmed");
            }
            (Err(status), Wanted::Refused(wanted)) => assert_eq!(status, wanted, "{what}"),
            (done, _) => panic!("{what}: {done:?}"),
        }
    }
}

#[test]
fn exchange_id_without_a_confirmed_record() {
    let mut world = World::new();
    assert_eq!(world.exchange(1, UPDATE, ME, 0), Err(NfsStat::NoEnt), "case 7");
    let first = world.exchange(1, 0, ME, 0).unwrap().value;
    assert_eq!((first.sequence, first.is_confirmed), (1, false), "case 1");
    assert_eq!(world.exchange(1, UPDATE, ME, 0), Err(NfsStat::NoEnt), "an unconfirmed one does not count");
    for who in [ME, OTHER] {
        let next = world.exchange(1, 0, who, 0).unwrap().value;
        assert!(next.client != first.client && !next.is_confirmed, "case 4");
        assert_eq!(world.clients.len(), 1);
    }
    assert_eq!(world.create(first.client, 1).unwrap_err(), NfsStat::StaleClientId);
    let protect = ProtectAsked::MachineCred(ProtectOps {
        must_enforce: super::super::bitmap::Bitmap::EMPTY,
        must_allow: super::super::bitmap::Bitmap::EMPTY,
    });
    let args = ExchangeIdArgs { protect, ..exchange(b"x", 1, 0) };
    assert_eq!(
        world.clients.exchange_id(&args, asking(ME, at(0)), &world.states, &mut world.chance),
        Err(NfsStat::Inval),
        "GSS is refused"
    );
}

#[test]
fn a_name_is_free_when_its_client_is_silent_or_has_nothing() {
    let (mut world, client, session) = World::confirmed();
    assert_eq!(world.exchange(1, 0, OTHER, 89), Err(NfsStat::ClidInUse));
    let taken = world.exchange(1, 0, OTHER, 90).unwrap();
    assert_eq!(taken.removed, Some(client), "its state has to be ended");
    assert_eq!(world.clients.session(&session).err(), Some(NfsStat::BadSession));
    let (mut world, client, session) = World::confirmed();
    world.clients.destroy_session(&session, CONNECTION, None).unwrap();
    assert_eq!(world.exchange(1, 0, OTHER, 0).unwrap().removed, Some(client), "it has nothing");
    let (mut world, client, session) = World::confirmed();
    world.clients.destroy_session(&session, CONNECTION, None).unwrap();
    world.states.0.push(client);
    assert_eq!(world.exchange(1, 0, OTHER, 0), Err(NfsStat::ClidInUse), "it has something open");
}

#[test]
fn a_restarted_client_loses_its_old_record_when_it_is_confirmed() {
    let (mut world, old, old_session) = World::confirmed();
    let new = world.exchange(2, 0, ME, 1).unwrap().value.client;
    let more = world.create(old, 2).unwrap();
    assert_eq!(more.removed, None, "the old life goes on meanwhile");
    let created = world.create(new, 1).unwrap();
    assert_eq!(created.removed, Some(old));
    for session in [old_session, more.value.session] {
        assert_eq!(world.clients.session(&session).err(), Some(NfsStat::BadSession));
    }
    assert_eq!((world.clients.len(), world.create(old, 3).unwrap_err()), (1, NfsStat::StaleClientId));
}

#[test]
fn create_session_is_carried_out_once() {
    let mut world = World::new();
    let client = world.exchange(1, 0, ME, 0).unwrap().value.client;
    for wrong in [0, 2, 7] {
        assert_eq!(world.create(client, wrong).unwrap_err(), NfsStat::SeqMisordered);
    }
    let args = session_args(client, 1);
    let bad = [
        (CreateSessionArgs { flags: 8, ..args }, ME, NfsStat::Inval),
        (CreateSessionArgs { fore: ChannelAttrs { request_bytes: 10, ..channel() }, ..args }, ME, NfsStat::TooSmall),
        (CreateSessionArgs { back: ChannelAttrs { operations: 1, ..channel() }, ..args }, ME, NfsStat::TooSmall),
        (args, OTHER, NfsStat::ClidInUse),
    ];
    for (args, who, status) in bad {
        let refused = world.clients.create_session(&args, who, CONNECTION, at(0), &mut world.chance);
        assert_eq!(refused.unwrap_err(), status, "and the number stays free");
    }
    let first = world.create(client, 1).unwrap().value;
    assert_eq!(world.create(client, 1).unwrap().value, first, "a replay");
    let second = world.create(client, 2).unwrap().value;
    assert!(second.session != first.session);
    assert_eq!(world.create(client, 1).unwrap_err(), NfsStat::SeqMisordered, "an older one");
    let fore = first.fore;
    assert_eq!((fore.requests, fore.header_pad, fore.cached_reply_bytes), (SLOTS_MAX, 0, CACHED_REPLY_BYTES_MAX));
    assert_eq!(first.flags, session_flag::CONN_BACK_CHAN, "nothing persists");
    let strange = ClientId(4u64 << 32 | 1);
    assert_eq!(world.create(strange, 1).unwrap_err(), NfsStat::StaleClientId, "of another life");
    for number in 3..=SESSIONS_MAX as u32 {
        world.create(client, number).unwrap();
    }
    assert_eq!(world.create(client, SESSIONS_MAX as u32 + 1).unwrap_err(), NfsStat::NoSpc);
}

#[test]
fn replies_of_all_sessions_have_a_budget() {
    let mut world = World::new();
    let mut least = SLOTS_MAX;
    for number in 0..400u32 {
        let id = number.to_be_bytes();
        let asking = asking(ME, at(0));
        let done = world.clients.exchange_id(&exchange(&id, 1, 0), asking, &world.states, &mut world.chance).unwrap();
        least = least.min(world.create(done.value.client, 1).unwrap().value.fore.requests);
    }
    assert_eq!(least, 1, "and never none");
    let each = super::super::slots::slot_bytes_max(CACHED_REPLY_BYTES_MAX);
    assert!(world.clients.reply_bytes <= REPLIES_BYTES_MAX + 400 * each);
    let ids: Vec<ClientId> = world.clients.records.keys().copied().collect();
    ids.into_iter().for_each(|id| drop(world.clients.remove(id)));
    assert_eq!(
        (world.clients.reply_bytes, world.clients.sessions.read().len(), world.clients.confirmed.len()),
        (0, 0, 0)
    );
}

#[test]
fn sequence_renews_and_knows_its_sessions() {
    let (mut world, client, session) = World::confirmed();
    let args = SequenceArgs { session, sequence: 1, slot: 0, highest_slot: 0, cache_this: true };
    let arrival = Arrival { connection: ConnectionId(5), digest: RequestDigest(1), bytes: 300, operations: 2 };
    assert!(world.clients.is_courteous(client, at(100)));
    let shared = world.clients.session(&session).unwrap();
    let (of, Sequenced::Run(ok, ticket), Some(_)) = shared.sequence(&args, arrival, at(100)).unwrap() else { panic!() };
    assert_eq!(ok.status_flags, 0);
    world.clients.set_status(client, 0x40);
    assert!(of == client && !world.clients.is_courteous(client, at(189)));
    let other = SequenceArgs { slot: 1, ..args };
    let (_, Sequenced::Run(ok, beside), _) = shared.sequence(&other, arrival, at(100)).unwrap() else { panic!() };
    assert_eq!(ok.status_flags, 0x40);
    shared.lock().finish(beside, None);
    assert_eq!(world.clients.session(&[9; 16]).err(), Some(NfsStat::BadSession));
    // DESTROY_SESSION beside a request, within it, and by a stranger.
    let stranger = ConnectionId(77);
    assert_eq!(world.clients.destroy_session(&session, stranger, None), Err(NfsStat::ConnNotBoundToSession));
    assert_eq!(world.clients.destroy_session(&session, CONNECTION, None), Err(NfsStat::Delay));
    assert_eq!(world.clients.destroy_client(client, &world.states).unwrap_err(), NfsStat::ClientIdBusy);
    world.clients.destroy_session(&session, CONNECTION, Some(&ticket)).unwrap();
    shared.lock().finish(ticket, Some(b"gone"));
    let next = SequenceArgs { sequence: 2, ..args };
    let refused = shared.sequence(&next, arrival, at(100)).unwrap_err();
    assert_eq!(refused, NfsStat::BadSession, "whoever held it hears of its end");
    assert_eq!(world.clients.destroy_session(&session, CONNECTION, None), Err(NfsStat::BadSession));
    world.states.0.push(client);
    assert_eq!(world.clients.destroy_client(client, &world.states).unwrap_err(), NfsStat::ClientIdBusy);
    world.states.0.clear();
    assert_eq!(&world.clients.destroy_client(client, &world.states).unwrap().id[..], b"box");
    assert_eq!(world.clients.destroy_client(client, &world.states).unwrap_err(), NfsStat::StaleClientId);
}

#[test]
fn connections_of_a_session() {
    let (mut world, client, session) = World::confirmed();
    assert_eq!(world.clients.back_channel(client), Some((session, CONNECTION)), "CREATE_SESSION bound it");
    let bind = |direction| BindConnArgs { session, direction, rdma: true };
    let cases = [
        (ChannelFromClient::Fore, ChannelFromServer::Fore),
        (ChannelFromClient::Back, ChannelFromServer::Back),
        (ChannelFromClient::ForeOrBoth, ChannelFromServer::Both),
        (ChannelFromClient::BackOrBoth, ChannelFromServer::Both),
    ];
    for (number, (asked, given)) in (2..).zip(cases) {
        let bound = world.clients.bind_connection(&bind(asked), ConnectionId(number)).unwrap();
        assert_eq!(bound, BindConnOk { session, direction: given, rdma: false });
    }
    assert_eq!(world.clients.back_channel(client), Some((session, ConnectionId(5))));
    (1..=4).for_each(|number| drop(world.clients.disconnected(ConnectionId(number))));
    assert_eq!(world.clients.back_channel(client), Some((session, ConnectionId(5))), "the one bound now");
    assert_eq!(world.clients.disconnected(ConnectionId(5)), [client]);
    assert_eq!(world.clients.back_channel(client), None);
    let gone = BindConnArgs { session: [0; 16], ..bind(ChannelFromClient::Fore) };
    assert_eq!(world.clients.bind_connection(&gone, CONNECTION), Err(NfsStat::BadSession));
}

#[test]
fn courteous_clients_stay_until_a_day_is_over() {
    let (mut world, client, _) = World::confirmed();
    world.states.0.push(client);
    world.exchange(2, 0, ME, 0).unwrap();
    assert_eq!(world.clients.sweep(at(89), &world.states), []);
    let swept = world.clients.sweep(at(90), &world.states);
    assert!(swept.len() == 1 && swept[0].0 != client, "the one that nobody confirmed");
    assert!(world.clients.is_courteous(client, at(90)), "but who needs its files gets them");
    let day = COURTESY.as_secs();
    assert_eq!(world.clients.sweep(at(day - 1), &world.states), []);
    assert_eq!(world.clients.sweep(at(day), &world.states)[0].0, client);
    let (mut world, client, _) = World::confirmed();
    assert_eq!(world.clients.next_change(at(89), &world.states), Some(Duration::from_secs(1)));
    assert_eq!(world.clients.sweep(at(90), &world.states)[0].0, client, "it has nothing to keep");
    assert_eq!(world.clients.next_change(at(90), &world.states), None, "nobody is left");
}

#[test]
fn reclaims_are_completed_once() {
    let (mut world, client, _) = World::confirmed();
    assert!(!world.clients.has_completed(client));
    assert_eq!(world.clients.reclaim_complete(client), Ok(()));
    assert!(world.clients.has_completed(client));
    assert_eq!(world.clients.reclaim_complete(client), Err(NfsStat::CompleteAlready));
}

#[test]
fn records_are_bounded_and_described() {
    let mut world = World::new();
    let implementation = ImplementationId {
        domain: Opaque(b"kernel.org"),
        name: Opaque(b"Linux 6.9"),
        date: Time4 { seconds: 0, nanoseconds: 0 },
    };
    let args = ExchangeIdArgs { implementation: Some(implementation), ..exchange(b"box", 1, 0) };
    let client =
        world.clients.exchange_id(&args, asking(ME, at(0)), &world.states, &mut world.chance).unwrap().value.client;
    assert_eq!(world.clients.implementation(client), Some("Linux 6.9"));
    world.create(client, 1).unwrap();
    for number in 0..CLIENTS_MAX * 2 {
        let id = number.to_be_bytes();
        let asking = from_network(number % 5, at(1 + number as u64));
        world.clients.exchange_id(&exchange(&id, 1, 0), asking, &world.states, &mut world.chance).unwrap();
    }
    assert_eq!(world.clients.len(), CLIENTS_MAX);
    assert!(world.clients.is_confirmed(client), "who never came back made room");
}

#[test]
fn one_network_does_not_keep_the_others_out() {
    let mut world = World::new();
    let mut ask = |id: usize, network: usize| {
        let id = id.to_be_bytes();
        let asking = from_network(network, at(0));
        let client =
            world.clients.exchange_id(&exchange(&id, 1, 0), asking, &world.states, &mut world.chance)?.value.client;
        world.create(client, 1).map(|_| client)
    };
    let clients: Vec<ClientId> = (0..OF_NETWORK_MAX).map(|id| ask(id, 0).unwrap()).collect();
    assert_eq!(ask(CLIENTS_MAX, 0), Err(NfsStat::Delay));
    ask(CLIENTS_MAX, 1).unwrap();
    assert_eq!(ask(0, 0), Ok(clients[0]), "who is known already");
    for client in clients {
        world.clients.remove(client);
    }
    let asking = from_network(0, at(0));
    world.clients.exchange_id(&exchange(b"new", 1, 0), asking, &world.states, &mut world.chance).unwrap();
    assert_eq!(world.clients.networks.len(), 2);
}

/// `clients.room_by_network`
#[test]
fn silent_clients_and_then_the_largest_network_make_room() {
    let mut world = World::new();
    let ask = |world: &mut World, id: usize, network: usize, secs: u64| {
        let (id, asking) = (id.to_be_bytes(), from_network(network, at(secs)));
        let made = world.clients.exchange_id(&exchange(&id, 1, 0), asking, &world.states, &mut world.chance)?;
        world.create(made.value.client, 1).map(|_| made.value.client)
    };
    let from = |network, secs| (from_network(network, at(secs)).address, at(secs));
    let of_first: Vec<ClientId> =
        (0..OF_NETWORK_MAX).map(|id| ask(&mut world, id, 0, id as u64 % 7).unwrap()).collect();
    world.states.0.clone_from(&of_first);
    let (address, now) = from(0, 50);
    assert_eq!(ask(&mut world, CLIENTS_MAX, 0, 50), Err(NfsStat::Delay));
    assert_eq!(world.clients.gives_way(address, now), None, "all of them are there");
    let (address, now) = from(0, 93);
    let silent = world.clients.gives_way(address, now).unwrap();
    assert_eq!(world.clients.silent_since(silent, now), Some(at(0)), "the longest silent");
    world.clients.remove(silent);
    ask(&mut world, CLIENTS_MAX, 0, 93).unwrap();

    // A table that is full of clients which are there: the network that has most gives way.
    let of_others = (OF_NETWORK_MAX..CLIENTS_MAX - 1).map(|id| ask(&mut world, id, 1, 50).unwrap());
    let of_others: Vec<ClientId> = of_others.collect();
    ask(&mut world, CLIENTS_MAX + 1, 2, 50).unwrap();
    assert_eq!(ask(&mut world, CLIENTS_MAX + 2, 3, 50), Err(NfsStat::Delay));
    let (address, now) = from(3, 60);
    let given = world.clients.gives_way(address, now).unwrap();
    assert!(of_first.contains(&given), "it has one more");
    world.clients.remove(given);
    ask(&mut world, CLIENTS_MAX + 2, 3, 60).unwrap();

    // A client that is gone makes room before one that is there, whatever its network has.
    let gone = ask(&mut world, CLIENTS_MAX + 1, 2, 60).unwrap();
    of_first.iter().chain(&of_others).for_each(|client| {
        if let Some(record) = world.clients.records.get(client) {
            record.life.renew(at(140));
        }
    });
    let (address, now) = from(4, 151);
    assert_eq!(world.clients.gives_way(address, now), Some(gone));
}

#[test]
fn networks_of_one_client_each_make_no_room() {
    let mut world = World::new();
    for network in 0..CLIENTS_MAX {
        let asking = from_network(network, at(0));
        let made =
            world.clients.exchange_id(&exchange(b"box", network as u8, 0), asking, &world.states, &mut world.chance);
        let made = made.unwrap().value.client;
        world.clients.records.get_mut(&made).unwrap().is_confirmed = true;
        world.clients.unconfirmed.clear();
    }
    assert_eq!(world.clients.gives_way(from_network(CLIENTS_MAX, at(1)).address, at(1)), None);
}

/// The replies of one machine's sessions leave other machines their slots.
#[test]
fn replies_are_parted_by_network() {
    let mut world = World::new();
    let session = |world: &mut World, id: usize, network: usize| {
        let (id, asking) = (id.to_be_bytes(), from_network(network, at(0)));
        let made = world.clients.exchange_id(&exchange(&id, 1, 0), asking, &world.states, &mut world.chance).unwrap();
        world.create(made.value.client, 1).unwrap().value
    };
    let first = session(&mut world, 0, 0).fore.requests;
    let last = (1..1000).map(|id| session(&mut world, id, 0)).last().unwrap();
    assert_eq!(last.fore.requests, 1, "its network has its part");
    assert_eq!(session(&mut world, 2000, 1).fore.requests, first);
}

mod version_zero {
    use super::*;

    fn set(
        world: &mut World,
        verifier: u8,
        who: Principal,
        secs: u64,
    ) -> Result<Replacing<ClientIdVerifier>, SetClientIdRefusal> {
        let callback = CallbackPath { program: 1, ident: u32::from(verifier), ..CallbackPath::default() };
        world.clients.set_client_id(
            b"box",
            [verifier; 8],
            callback,
            asking(who, at(secs)),
            &world.states,
            &mut world.chance,
        )
    }

    fn confirmed() -> (World, ClientIdVerifier) {
        let mut world = World::new();
        let done = set(&mut world, 1, ME, 0).unwrap().value;
        world.clients.confirm_client_id(&done, ME, at(0)).unwrap();
        (world, done)
    }

    /// RFC 7530 16.33.5 and 16.34.5.
    #[test]
    fn set_client_id_by_cases() {
        let mut world = World::new();
        let first = set(&mut world, 1, ME, 0).unwrap().value;
        let again = set(&mut world, 1, ME, 0).unwrap().value;
        assert!(first != again && world.clients.len() == 1, "unconfirmed: replaced");
        assert_eq!(world.clients.confirm_client_id(&first, ME, at(0)), Err(NfsStat::StaleClientId));
        let forged = ClientIdVerifier { confirm: [0xee; 8], ..again };
        assert_eq!(world.clients.confirm_client_id(&forged, ME, at(0)), Err(NfsStat::StaleClientId));
        assert_eq!(world.clients.confirm_client_id(&again, OTHER, at(0)), Err(NfsStat::ClidInUse));
        assert_eq!(world.clients.renew(again.client, at(0)), Err(NfsStat::StaleClientId), "not confirmed");
        for _ in 0..2 {
            assert!(world.clients.confirm_client_id(&again, ME, at(0)).is_ok(), "and its replay");
        }
        assert_eq!(world.clients.renew(again.client, at(0)), Ok(()));
        assert!(world.clients.has_completed(again.client), "there is no RECLAIM_COMPLETE");
        let sessions =
            world.clients.create_session(&session_args(again.client, 1), ME, CONNECTION, at(0), &mut world.chance);
        assert_eq!(sessions.unwrap_err(), NfsStat::StaleClientId, "the other family");
    }

    #[test]
    fn another_way_back_keeps_the_id() {
        let (mut world, first) = confirmed();
        let update = set(&mut world, 1, ME, 1).unwrap().value;
        assert!(update.client == first.client && update.confirm != first.confirm);
        assert!(world.clients.confirm_client_id(&first, ME, at(1)).is_ok(), "a late replay of the first");
        assert!(world.clients.confirm_client_id(&update, ME, at(1)).is_ok());
        assert_eq!(world.clients.confirm_client_id(&first, ME, at(1)), Err(NfsStat::StaleClientId));
        assert_eq!(world.clients.callback_path(first.client).unwrap().program, 1);
    }

    #[test]
    fn a_restart_replaces_and_a_stranger_is_refused() {
        let (mut world, first) = confirmed();
        world.states.0.push(first.client);
        let refused = set(&mut world, 1, OTHER, 1).unwrap_err();
        assert!(matches!(refused, SetClientIdRefusal::InUse(CallbackPath { ident: 1, .. })), "whose it is");
        let second = set(&mut world, 2, ME, 1).unwrap().value;
        assert!(second.client != first.client);
        assert_eq!(world.clients.renew(first.client, at(1)), Ok(()), "until it is confirmed");
        let done = world.clients.confirm_client_id(&second, ME, at(1)).unwrap();
        assert_eq!(done.removed, Some(first.client));
        assert_eq!(world.clients.renew(first.client, at(1)), Err(NfsStat::Expired), "it was here");
        let never = ClientId(first.client.0 + 1000);
        assert_eq!(world.clients.renew(never, at(1)), Err(NfsStat::StaleClientId));
        world.states.0.clear();
        assert_eq!(set(&mut world, 1, OTHER, 1).unwrap().removed, Some(second.client), "it has nothing");
    }
}

proptest! {
    /// Whatever comes in whatever order: names and records fit together, and nothing is left of what is removed.
    #[test]
    fn records_and_names_fit_together(steps in proptest::collection::vec((0u8..6, 0u8..3, 0u8..3, 0u64..200), 0..80)) {
        let mut world = World::new();
        let mut known: Vec<(ClientId, u32)> = Vec::new();
        let mut now = 0;
        for (what, id, verifier, wait) in steps {
            now += wait;
            let owner = [id];
            match what {
                0 | 1 => {
                    let flags = if what == 1 { UPDATE } else { 0 };
                    if let Ok(done) = world.clients.exchange_id(&exchange(&owner, verifier, flags), asking(ME, at(now)), &world.states, &mut world.chance) {
                        known.push((done.value.client, done.value.sequence));
                    }
                }
                2 => if let Some((client, sequence)) = known.last().copied() {
                    let _ = world.clients.create_session(
                        &session_args(client, sequence), ME, CONNECTION, at(now), &mut world.chance);
                },
                3 => drop(world.clients.sweep(at(now), &world.states)),
                4 => if let Some((client, _)) = known.pop() {
                    let _ = world.clients.destroy_client(client, &world.states);
                },
                _ => {
                    let session = world.clients.sessions.read().keys().next().copied();
                    if let Some(session) = session {
                        let _ = world.clients.destroy_session(&session, CONNECTION, None);
                    }
                }
            }
            let clients = &world.clients;
            prop_assert_eq!(clients.confirmed.len() + clients.unconfirmed.len(), clients.records.len());
            for (names, is_confirmed) in [(&clients.confirmed, true), (&clients.unconfirmed, false)] {
                for (owner, client) in names {
                    let record = &clients.records[client];
                    prop_assert!(record.owner == *owner && record.is_confirmed == is_confirmed);
                }
            }
            let of_records: usize = clients.records.values().map(|record| record.sessions.len()).sum();
            prop_assert_eq!(of_records, clients.sessions.read().len());
            let bytes: usize = clients.sessions.read().values().map(|session| session.lock().reply_bytes_max()).sum();
            prop_assert_eq!(bytes, clients.reply_bytes);
        }
    }
}
