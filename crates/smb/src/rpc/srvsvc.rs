//! The srvsvc calls that list shares (MS-SRVS 3.1.4.8, 3.1.4.10, 3.1.4.17), answered from the shares
//! that the caller may connect to.

use larder_smb_wire::rpc::association::Fault;
use larder_smb_wire::rpc::srvsvc::{ListedShare, Request, decode};

use crate::share::Caller;
use crate::state::ServerState;

/// Runs the operation `opnum` for `caller` and returns the response stub.
/// The shares are read at the time of the call, and only as far as the
/// call needs them.
pub(super) async fn serve(server: &ServerState, caller: &Caller, opnum: u16, stub: &[u8]) -> Result<Vec<u8>, Fault> {
    Ok(match decode(opnum, stub)? {
        Request::ShareEnum(request) => request.answer(&listed_shares(server, caller).await),
        Request::ShareGetInfo(request) => {
            let share = match request.lookup() {
                Some(name) => find_share(server, caller, name).await,
                None => None,
            };
            request.answer(share.as_ref())
        }
        Request::ServerGetInfo(request) => request.answer(&server.config.netbios_name),
    })
}

/// The shares `caller` sees when it lists them: those its TREE_CONNECT
/// would be granted, in the order they were added, then IPC$.
async fn listed_shares(server: &ServerState, caller: &Caller) -> Vec<ListedShare> {
    let mut shares = Vec::new();
    for share in server.shares.all_in_order().await {
        if share.admit(&caller.visitor()).is_some() {
            shares.push(ListedShare::disk(&share.name));
        }
    }
    shares.push(ListedShare::ipc());
    shares
}

/// The share named `name`, matched ignoring ASCII case as TREE_CONNECT
/// matches it, when `caller` may connect to it. IPC$ is
/// always found.
async fn find_share(server: &ServerState, caller: &Caller, name: &str) -> Option<ListedShare> {
    if name.eq_ignore_ascii_case("IPC$") {
        return Some(ListedShare::ipc());
    }
    let share = server.find_share(name).await?;
    share.admit(&caller.visitor())?;
    Some(ListedShare::disk(&share.name))
}

#[cfg(test)]
mod tests {
    use larder_smb_wire::auth::ntlm::Identity;
    use larder_smb_wire::rpc::ndr::NdrWriter;

    use super::*;
    use crate::door::view::VisitedShare;
    use crate::{Access, Admitted, Share, SmbServer, Visitor};

    fn enum_request(level: u32, preferred_max: u32, resume: Option<u32>) -> Vec<u8> {
        let mut w = NdrWriter::default();
        w.pointer(true);
        w.string("\\\\SRV");
        w.u32(level);
        w.u32(level);
        w.pointer(true);
        w.u32(0);
        w.pointer(false);
        w.u32(preferred_max);
        w.pointer(resume.is_some());
        if let Some(resume) = resume {
            w.u32(resume);
        }
        w.finish()
    }

    fn get_info_request(name: &str, level: u32) -> Vec<u8> {
        let mut w = NdrWriter::default();
        w.pointer(false);
        w.string(name);
        w.u32(level);
        w.finish()
    }

    fn caller(user: Option<&str>, can_encrypt: bool) -> Caller {
        let identity = match user {
            Some(name) => Identity::User { user: name.to_string(), domain: String::new() },
            None => Identity::Anonymous,
        };
        Caller { identity, address: None, can_encrypt }
    }

    fn names(shares: &[ListedShare]) -> Vec<&str> {
        shares.iter().map(|s| s.name.as_str()).collect()
    }

    #[tokio::test]
    async fn the_list_holds_what_the_caller_may_connect_to_in_insertion_order() {
        let server = SmbServer::builder()
            .listen("127.0.0.1:0".parse().unwrap())
            .user("alice", "password")
            .user("bob", "password")
            .share(Share::of("zeta", VisitedShare::in_memory().await).public())
            .share(Share::of("home", VisitedShare::in_memory().await).user("alice", Access::Read))
            .share(Share::of("alpha", VisitedShare::in_memory().await).public())
            .build()
            .expect("build");
        let state = server.state();
        let list = async |who: &Caller| listed_shares(&state, who).await;
        let anonymous = caller(None, false);
        let shares = list(&anonymous).await;
        assert_eq!(names(&shares), ["zeta", "alpha", "IPC$"]);
        assert_eq!(shares[1], ListedShare::disk("alpha"));
        assert_eq!(shares[2], ListedShare::ipc());
        let alice = caller(Some("alice"), false);
        assert_eq!(names(&list(&alice).await), ["zeta", "home", "alpha", "IPC$"]);
        let bob = caller(Some("bob"), false);
        assert_eq!(names(&list(&bob).await), ["zeta", "alpha", "IPC$"]);

        let config = server.config_handle();
        config.remove_share("zeta").await.unwrap();
        for name in ["beta", "zeta"] {
            config.add_share(Share::of(name, VisitedShare::in_memory().await).public()).await.unwrap();
        }
        assert_eq!(names(&list(&anonymous).await), ["alpha", "beta", "zeta", "IPC$"]);
    }

    #[tokio::test]
    async fn shares_are_found_by_those_who_may_connect_to_them() {
        let server = SmbServer::builder()
            .listen("127.0.0.1:0".parse().unwrap())
            .user("alice", "password")
            .user("bob", "password")
            .share(Share::of("archive", VisitedShare::in_memory().await).user("alice", Access::Read))
            .build()
            .expect("build");
        let state = server.state();
        let alice = caller(Some("alice"), false);
        assert_eq!(find_share(&state, &alice, "ARCHIVE").await, Some(ListedShare::disk("archive")));
        assert_eq!(find_share(&state, &caller(Some("bob"), false), "archive").await, None);
        assert_eq!(find_share(&state, &alice, "nope").await, None);
        assert_eq!(find_share(&state, &caller(None, false), "ipc$").await, Some(ListedShare::ipc()));
    }

    fn sealed(visitor: &Visitor<'_>) -> Option<Admitted> {
        visitor.encrypts.then_some(Admitted { view: None, access: Access::Read })
    }

    #[tokio::test]
    async fn shares_whose_traffic_is_encrypted_need_a_session_that_can_encrypt() {
        let server = SmbServer::builder()
            .listen("127.0.0.1:0".parse().unwrap())
            .user("alice", "password")
            .share(Share::of("open", VisitedShare::in_memory().await).public())
            .share(
                Share::of("sealed", VisitedShare::in_memory().await)
                    .encrypt_data()
                    .doorkeeper(std::sync::Arc::new(sealed)),
            )
            .build()
            .expect("build");
        let state = server.state();
        let plain = caller(Some("alice"), false);
        let sealed = caller(Some("alice"), true);

        assert_eq!(names(&listed_shares(&state, &plain).await), ["open", "IPC$"]);
        assert_eq!(find_share(&state, &plain, "sealed").await, None);
        assert_eq!(names(&listed_shares(&state, &sealed).await), ["open", "sealed", "IPC$"]);
        assert!(find_share(&state, &sealed, "sealed").await.is_some());
        let anonymous = caller(None, false);
        assert_eq!(names(&listed_shares(&state, &anonymous).await), ["open", "IPC$"]);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_read_only_the_shares_they_need() {
        let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counts = std::sync::Arc::clone(&asked);
        let count = move || _ = counts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let server = SmbServer::builder()
            .listen("127.0.0.1:0".parse().unwrap())
            .share(Share::of("a", VisitedShare::in_memory().await).public())
            .share(Share::of("b", VisitedShare::in_memory().await).public().watched(count))
            .build()
            .expect("build");
        let state = server.state();
        let who = caller(None, false);
        let finishes = async |opnum: u16, stub: &[u8]| {
            let call = serve(&state, &who, opnum, stub);
            tokio::time::timeout(std::time::Duration::from_secs(60), call).await.is_ok()
        };
        let server_info = {
            let mut w = NdrWriter::default();
            w.pointer(false);
            w.u32(101);
            w.finish()
        };
        let enum_all = enum_request(1, u32::MAX, None);

        // A list asks each share's doorkeeper, and the other calls do not.
        let asks = |n: usize| assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), n);
        assert!(finishes(15, &enum_all).await);
        asks(1);
        assert!(finishes(16, &get_info_request("a", 1)).await);
        assert!(finishes(21, &server_info).await);
        assert!(finishes(99, &[]).await);
        asks(1);

        // With the share table held, only the calls that read no share
        // finish.
        let table = state.shares.hold().await;
        assert!(!finishes(16, &get_info_request("a", 1)).await);
        assert!(finishes(16, &get_info_request("", 1)).await);
        assert!(finishes(21, &server_info).await);
        assert!(finishes(15, &[]).await);
        drop(table);
        assert!(finishes(15, &enum_all).await);
    }
}
