use super::*;
use crate::workload::Caches;

/// The output of iperf3 3.12 over loopback, without its single streams.
const SEND: &str = include_str!("send.json");
const RECEIVE: &str = include_str!("recv.json");
const BOTH_WAYS: &str = include_str!("bidir.json");

#[test]
fn what_arrived_is_what_counts() {
    let check = |text: &str, kind: Kind, gbit: f64, retransmits: u64| {
        let found = parse(text.as_bytes(), kind).unwrap();
        assert!((found.bytes_per_s * 8.0 / 1e9 - gbit).abs() < 0.01, "{found:?}");
        assert_eq!(found.retransmits, Some(retransmits));
        // The first second was warming up.
        assert_eq!(found.over_time.len(), 2, "{found:?}");
        let mean = found.over_time.iter().map(|m| m.bytes_per_s).sum::<f64>() / 2.0;
        assert!((mean / found.bytes_per_s - 1.0).abs() < 0.05, "{found:?}");
    };
    check(SEND, Kind::Send, 13.461, 26);
    check(RECEIVE, Kind::Receive, 17.576, 9);
    check(BOTH_WAYS, Kind::SendReceive, 17.661, 16);
}

#[test]
fn what_is_no_answer_is_an_error() {
    let check = |text: &str, reason: &str| {
        let error = parse(text.as_bytes(), Kind::Send).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    };
    check("", "not understood");
    check("{}", "how long");
    check(r#"{"error": "error - unable to connect to server: Connection refused"}"#, "failed: unable to connect");
    check(r#"{"end": {"sum_received": {"seconds": -1, "bytes": 1}}, "intervals": 7}"#, "how long");
}

fn one_stream() -> Workload {
    Workload {
        kind: Kind::Send,
        block_bytes: 128 << 10,
        depth: 1,
        jobs: 1,
        data_bytes: 0,
        files: 0,
        caches: Caches::Unknown,
        compressible: false,
        synced: true,
    }
}

#[test]
fn both_directions_and_streams_are_asked_for() {
    let load = NetLoad { host: "nas".to_owned(), port: 5201, version: "iperf3 3.12".to_owned(), gone: None };
    let limits = RunLimits { warm_up: Duration::from_secs(1), measure_max: Duration::from_secs(5), again: true };
    let check = |kind, jobs, words: &str| {
        let workload = Workload { kind, jobs, ..one_stream() };
        let args: Vec<String> =
            load.arguments(&workload, &limits).iter().map(|a| a.to_string_lossy().into_owned()).collect();
        assert_eq!(args.join(" "), format!("--client nas --json --port 5201 --connect-timeout 5000 {words}"));
    };
    check(Kind::Send, 1, "--time 5 --omit 1 --parallel 1");
    check(Kind::Receive, 4, "--time 5 --omit 1 --parallel 4 --reverse");
    check(Kind::SendReceive, 1, "--time 5 --omit 1 --parallel 1 --bidir");
    let refused = load.explained(BenchError::tool("iperf3", "unable to connect to server: Connection refused"));
    assert!(refused.action().unwrap().contains("--listen"), "{refused:?}");
    for host in ["", "-x", "a b", "nfs://a"] {
        assert!(NetLoad::new(&Machine::this(), host, 1).is_err(), "{host}");
    }
}
