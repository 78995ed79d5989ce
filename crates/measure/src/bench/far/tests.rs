use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::super::result::{CoreSeries, Series};
use super::*;
use crate::Machine;

/// With a listener on a port of its own, until the test is over.
fn with_listener(test: impl FnOnce(u16)) {
    let (listener, over) = (Listener::bind(0).unwrap(), AtomicBool::new(false));
    /// Also when the test fails.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        scope.spawn(|| listener.serve(&Machine::this(), &|| over.load(Ordering::Acquire)));
        test(listener.port());
    });
}

fn end(port: u16) -> FarEnd {
    FarEnd { name: "127.0.0.1".to_owned(), port }
}

/// Somebody who says this to whoever comes, whatever he asks.
fn liar(says: Vec<u8>) -> FarEnd {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let _ = stream.write_all(&says);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    end(port)
}

fn one_core(at_ms: &[u64]) -> Samples {
    let even = vec![1.0; at_ms.len()];
    let core = CoreSeries {
        core: 0,
        user: even.clone(),
        nice: even.clone(),
        system: even.clone(),
        iowait: even.clone(),
        irq: even.clone(),
        steal: even.clone(),
        others: even.clone(),
        waited: even,
    };
    Samples { at_ms: at_ms.to_vec(), cores: vec![core], ..Samples::default() }
}

const WELCOME: &str = r#"{"magic":"larder-far-end","version":1,"larder":"9","machine":{"host":"nas","model":"m","processor":"p","cores":1,"memory_bytes":2,"kernel":"k"}}"#;

#[test]
fn a_machine_is_watched_while_it_is_asked_to() {
    with_listener(|port| {
        let mut visit = Visit::begin(&end(port), 100_000).unwrap();
        assert_eq!((visit.machine.name.as_str(), visit.machine.version), ("127.0.0.1", VERSION));
        assert_eq!(visit.machine.machine, larder_facts::about::facts(&Machine::this()));
        let started = Instant::now();
        visit.look().unwrap();
        std::thread::sleep(Duration::from_millis(1200));
        visit.rest().unwrap();
        std::thread::sleep(Duration::from_millis(800));
        let samples = visit.end(100_000 + started.elapsed().as_millis() as u64).unwrap();
        // `far.near_clock`; and nothing is kept while the far end rests.
        assert!(samples.at_ms.iter().all(|at| (100_400..101_400).contains(at)), "{:?}", samples.at_ms);
        assert!((1..=3).contains(&samples.at_ms.len()) && !samples.cores.is_empty());
    });
}

#[test]
fn a_stranger_at_the_listener_hurts_nobody() {
    with_listener(|port| {
        let say = |bytes: &[u8]| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let _ = stream.write_all(bytes);
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            answer
        };
        // Whoever is no bench hears nothing at all.
        for stranger in [
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "\n".to_owned(),
            "x".repeat(1 << 20),
            "[".repeat(1000) + "\n",
            r#"{"magic":"x","version":1,"at_ms":0}"#.to_owned() + "\n",
            r#"{"magic":"larder-far-end","version":1,"at_ms":-1}"#.to_owned() + "\n",
        ] {
            assert_eq!(say(stranger.as_bytes()), "", "{stranger:.40}");
        }
        let newer = say(b"{\"magic\":\"larder-far-end\",\"version\":2,\"at_ms\":0}\n");
        assert!(newer.contains("speaks version 1"), "{newer}");
        let hello = format!("{{\"magic\":\"larder-far-end\",\"version\":1,\"at_ms\":{}}}\n", u64::MAX);
        let odd = say(format!("{hello}{{\"ask\":\"shutdown\"}}\n").as_bytes());
        assert!(odd.ends_with("{\"error\":\"that is no request\"}\n"), "{odd}");
        let many = say((hello + &"{\"ask\":\"rest\"}\n".repeat(2000)).as_bytes());
        assert!(many.len() < 100_000, "{}", many.len());
        Visit::begin(&end(port), 0).unwrap();
    });
}

#[test]
fn as_many_as_may_watch_at_once() {
    with_listener(|port| {
        let mut visits: Vec<Visit> = (0..16).map(|_| Visit::begin(&end(port), 0).unwrap()).collect();
        let refused = Visit::begin(&end(port), 0).err().unwrap().to_string();
        assert!(refused.contains("watch this machine already") || refused.contains("closed"), "{refused}");
        visits.iter_mut().for_each(|visit| visit.look().unwrap());
        visits.pop();
        let until = Instant::now() + Duration::from_secs(10);
        while Visit::begin(&end(port), 0).is_err() {
            assert!(Instant::now() < until, "whoever goes makes room");
        }
    });
}

#[test]
fn a_far_end_that_lies_is_not_believed() {
    let check = |says: Vec<u8>, reason: &str| {
        let started = Instant::now();
        let found = Visit::begin(&liar(says), 1000).and_then(|visit| visit.end(5000));
        let error = found.err().unwrap().to_string();
        assert!(error.contains(reason), "{reason}: {error}");
        assert!(started.elapsed() < Duration::from_secs(15));
    };
    let after_welcome = |answer: &str| format!("{WELCOME}\n{answer}\n").into_bytes();
    let samples =
        |samples: &Samples| after_welcome(&format!("{{\"samples\":{}}}", serde_json::to_string(samples).unwrap()));
    check(vec![b'x'; 64 << 10], "more than 16384 bytes in a line");
    check(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "not understood");
    check(b"{}\n".to_vec(), "is not larder");
    check(b"{\"error\":\"\\u001b[2Jgo\\u202e away\"}\n".to_vec(), "it says: [2Jgo away");
    check(after_welcome("{}"), "no samples");
    check(after_welcome("{\"samples\":{\"at_ms\":[1e99]}}"), "not understood");
    check([WELCOME.as_bytes(), b"\n", &vec![b' '; 9 << 20]].concat(), "more than 8388608 bytes in a line");
    check(samples(&one_core(&[7_000_000])), "its times");
    check(samples(&one_core(&[3000, 2000])), "its times");
    check(samples(&Samples { cores: vec![CoreSeries::default(); 257], ..Samples::default() }), "more than any machine");
    let mut odd = one_core(&[2000, 3000]);
    let short = vec![Series { name: "cpu".to_owned(), values: vec![1.0] }];
    odd.temperatures = short.clone();
    check(samples(&odd), "other lengths");
    check(samples(&Samples { temperatures: Vec::new(), quotas: short, ..odd }), "other lengths");
    // Says nothing at all.
    check(Vec::new(), "did not answer within 5 s");
}

#[test]
fn names_from_elsewhere_are_harmless() {
    let mut samples = one_core(&[2000]);
    samples.temperatures = vec![Series { name: "\u{1b}]0;x\u{7}\n\u{202e}cpu".repeat(99), values: vec![1e300] }];
    samples.quotas = samples.temperatures.clone();
    let found = sound::sound(samples, 1000, 3000).unwrap();
    for told in [&found.temperatures[0], &found.quotas[0]] {
        assert!(told.name.chars().all(|c| !c.is_control() && c != '\u{202e}') && told.name.chars().count() <= 128);
        assert!(told.values[0].is_nan());
    }
}

#[test]
fn what_is_too_much_is_thinned() {
    let times: Vec<u64> = (1..=7200).collect();
    let mut samples = one_core(&times);
    samples.cores = (0..64).map(|core| CoreSeries { core, ..samples.cores[0].clone() }).collect();
    let found = sound::thinned(samples);
    assert_eq!((found.at_ms.len(), found.cores[63].steal.len(), found.at_ms[0]), (450, 450, 16));
    let line = serde_json::to_vec(&Answer { samples: Some(found), ..Answer::default() }).unwrap();
    assert!(line.len() < ANSWER_BYTES_MAX);
}
