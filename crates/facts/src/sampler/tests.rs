use std::sync::{Arc, Mutex};

use super::*;
use crate::machine::fixture::Fixture;
use crate::power::Sources;

/// A Raspberry Pi 4 with one USB disk, before and while it is busy.
const PI: &str = "\
/sys/devices/platform/soc/usb1/sda/size = 1000
/sys/class/block/sda -> /sys/devices/platform/soc/usb1/sda
/sys/class/thermal/thermal_zone0/type = cpu-thermal
/sys/class/thermal/thermal_zone0/temp = 61500
/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq = 1500000
/sys/devices/platform/soc/soc:firmware/get_throttled = 50000
/proc/stat <<
cpu  200 0 200 2000 0 0 0 0 0 0
cpu0 100 0 100 1000 0 0 0 0 0 0
cpu1 100 0 100 1000 0 0 0 0 0 0
>>
/proc/diskstats <<
   8       0 sda 100 0 1000 100 0 0 0 0 0 100 100
>>
/proc/net/dev <<
  eth0: 1000 1 0 0 0 0 0 0 2000 2 0 0 0 0 0 0
    lo: 5 1 0 0 0 0 0 0 5 2 0 0 0 0 0 0
>>
/proc/net/snmp <<
Tcp: InSegs RetransSegs
Tcp: 5 42
>>
";

#[test]
fn counters_become_series() {
    let fixture = Fixture::new(PI);
    let mut counters = Counters::new(&fixture.machine);
    let before = counters.look();
    fixture.write(
        "/proc/stat",
        "cpu  1 1 1 1\ncpu0 130 0 120 1000 40 5 5 0 0 0\ncpu1 100 0 100 1100 0 0 0 0 0 0\ncpu2 1 0 0 9 0 0 0 0 0 0\n",
    );
    fixture.write("/proc/diskstats", "   8       0 sda 200 0 205800 600 0 0 0 0 0 1000 100\n");
    fixture.write("/proc/net/dev", "eth0: 1000 1 0 0 0 0 0 0 118002000 2 0 0 0 0 0 0\nlo: 5 1 0 0 0 0 0 0 5 2 0 0\n");
    fixture.write("/proc/net/snmp", "Tcp: InSegs RetransSegs\nTcp: 5 45\n");
    fixture.write("/sys/devices/platform/soc/soc:firmware/get_throttled", "50004");
    let now = counters.look();
    let mut recorder = Recorder::default();
    recorder.add(1000, 1.0, &before, &now, None);
    recorder.add(2000, 1.0, &now, &now, Some(("plug".to_owned(), 7.5)));
    let samples = recorder.finish(&Fixture::new("").machine);

    assert_eq!(samples.at_ms, [1000, 2000]);
    let core = &samples.cores[0];
    assert_eq!((core.user[0], core.system[0], core.iowait[0], core.irq[0]), (30.0, 20.0, 40.0, 10.0));
    assert!(core.user[1].is_nan(), "no ticks went by");
    assert_eq!(samples.cores[1].user[0], 0.0);
    assert!(samples.cores[2].user[0].is_nan() && samples.cores[2].user.len() == 2);
    let disk = &samples.disks[0];
    assert_eq!((disk.busy[0], disk.read_bytes_per_s[0], disk.latency_ms[0]), (90.0, 204_800.0 * 512.0, 5.0));
    assert!(disk.latency_ms[1].is_nan());
    assert_eq!(samples.nets.len(), 1, "lo did nothing");
    assert_eq!((samples.nets[0].send_bytes_per_s[0], samples.nets[0].retransmits[0]), (118e6, 3.0));
    assert_eq!((samples.temperatures[0].name.as_str(), samples.temperatures[0].values[0]), ("cpu-thermal", 61.5));
    assert_eq!((samples.clocks[0].name.as_str(), samples.clocks[0].values[0]), ("core 0", 1500.0));
    assert_eq!(samples.throttled, 2, "in both intervals it was throttled");
    let watts = samples.watts.unwrap();
    assert!(watts.values[0].is_nan() && watts.values[1] == 7.5);
}

#[test]
fn this_machine_is_sampled_only_when_told_to() {
    let sampler = Sampler::start(&Machine::this(), Instant::now(), None);
    std::thread::sleep(INTERVAL * 2);
    sampler.look();
    std::thread::sleep(INTERVAL * 3);
    sampler.rest();
    std::thread::sleep(INTERVAL * 2);
    let samples = sampler.end();
    assert!((1..=4).contains(&samples.at_ms.len()), "{:?}", samples.at_ms);
    assert!(!samples.cores.is_empty() && samples.cores[0].user.len() == samples.at_ms.len());
}

/// A plug that failed once leaves a hole, and nobody else's watts stand in it.
#[test]
fn watts_of_two_meters_are_not_mixed() {
    let fixture = Fixture::new(PI);
    let look = Counters::new(&fixture.machine).look();
    let mut recorder = Recorder::default();
    let said = [None, Some(("only processor", 4.0)), Some(("plug", 21.0)), None, Some(("plug", 23.0))];
    for (n, watts) in said.into_iter().enumerate() {
        let watts = watts.map(|(name, value): (&str, f64)| (name.to_owned(), value));
        recorder.add(1000 * (n as u64 + 1), 1.0, &look, &look, watts);
    }
    let watts = recorder.finish(&fixture.machine).watts.unwrap();
    let shown: Vec<String> = watts.values.iter().map(f64::to_string).collect();
    assert_eq!((watts.name.as_str(), shown.join(" ").as_str()), ("plug", "NaN NaN 21 NaN 23"));
}

/// Counters are looked at twice a second, whatever a plug does.
#[test]
fn nobody_waits_for_a_plug() {
    use crate::power::{Login, SourceSpec};
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let plug = SourceSpec::Tasmota { address, channel: 0, login: Login::default() };
    let sources = Sources::new(&Fixture::new("").machine, &[plug], &[], None);
    let sampler = Sampler::start(&Machine::this(), Instant::now(), Some(Arc::new(Mutex::new(sources))));
    sampler.look();
    std::thread::sleep(INTERVAL * 6);
    let samples = sampler.end();
    assert!(samples.at_ms.len() >= 3, "{:?}", samples.at_ms);
}

#[test]
fn watts_of_parts_are_not_called_those_of_the_machine() {
    use crate::power::{Basis, Reading, Readout, Scope};
    let reading = |of: &str, scope, basis, watts| Reading {
        source: "rapl".to_owned(),
        of: of.to_owned(),
        scope,
        basis,
        watts,
        energy_wh: None,
    };
    let parts = vec![
        reading("processor", Scope::Part, Basis::Measured, 12.0),
        reading("memory", Scope::Part, Basis::Measured, 2.0),
        reading("the machine", Scope::Board, Basis::Estimated, 50.0),
    ];
    let readout = Readout { readings: parts, ..Readout::default() };
    assert_eq!(watts::chosen(&readout), Some(("only processor, memory".to_owned(), 14.0)));
    assert_eq!(watts::chosen(&Readout::default()), None);
}
