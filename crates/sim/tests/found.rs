//! Schedules that once found a bug, each with the bug. A later change of the simulator or of the pool may make another schedule
//! of a seed; what it found then is a test of its own beside the code.

use larder_sim::schedule::{Options, run};

#[test]
fn schedules_that_found_bugs_are_good_now() {
    let found = [
        (1504445048, "older labels of disks that agree outvoted what was settled on one of them"),
        (
            3533640620,
            "a disk that came back was in sync before a dead file on it was unlinked durably: the object lived again",
        ),
        (
            2322994772,
            "healing a copy of the journal was cut short, and the copy passed for a whole one when the other was gone",
        ),
        (793040302, "a volume that went back did not bring back dirty data of then that a crash had taken since"),
        (2763373965, "an upload that quicker writers overtook again and again was refused, which nobody expected"),
        (
            2274413342,
            "a record of a batch that was torn before its header stood in for one of the next batch at the same place",
        ),
        (4058812734, "a file of a snapshot that was destroyed while it was read was told as damage, not as gone"),
        (
            567414293,
            "a file that lay ready on one copy of the journal, and could not be read there, kept the pool closed",
        ),
        (
            2548224574,
            "the journal of an older copy of a disk was believed, because the newest label had it out of sync, not as an older copy",
        ),
        (
            2590251446,
            "a put that the engine had given up came after the volume was sealed: an object in clear, which no longer opened",
        ),
        (
            2764222860,
            "a range of a file was not cloned while disks hung: a flush under way was taken for a file that changes",
        ),
        (
            1255214534,
            "the machine remembered a life that no disk had: it refused to open the pool without one of the disks",
        ),
    ];
    for (seed, bug) in found {
        let report = run(seed, Options::default());
        assert_eq!(report.failure, None, "seed {seed} ({bug})");
        assert!(report.counts.operations > 0, "seed {seed} did nothing");
    }
}
