//! Calls that send to several targets before they wait for the first answer.

use std::time::{Duration, Instant};

use testkit::Wiring;
use testkit::story::{Story, StoryShape, bytes_of};
use types::Buf;

/// [S-replay] A write that was given up goes before every newer one to its target, also one that begins at another target: it
/// cannot arrive late and take the place of what was acknowledged after it.
#[test]
fn a_given_up_write_never_overwrites_a_newer_one_that_begins_elsewhere() {
    let mut story = Story::begin(StoryShape {
        op_timeout: Duration::from_millis(2_000),
        ..StoryShape::quiet(Wiring::Tcp)
    });
    let stripe = 64 << 10;
    let fid = story.create_striped("f", "-c 2 -S 64k --inline 0").unwrap();
    story.write("f", 0, &bytes_of(1, 4 * stripe)).unwrap();
    story.fsync("f").unwrap();
    let (who, _) = *story.objects_of(fid).iter().find(|(_, object)| object.stripe == 1).unwrap();
    // It is carried out, the answer is lost, and then so is what was carried out.
    story.lose_replies(who);
    story.write("f", stripe as u64, &bytes_of(2, stripe)).unwrap_err();
    story.power_cut(who, 0);
    story.heal(who);
    story.start(who);
    // The first piece of this goes to the other target, the second to the one that was told something that is given up.
    let newer = bytes_of(3, 2 * stripe);
    story.write("f", 0, &newer).unwrap();
    // A write that touches only this target resolves the request that is stuck there.
    story.write("f", 3 * stripe as u64, &bytes_of(4, 100)).unwrap();
    assert!(story.read("f").unwrap()[..2 * stripe] == newer, "an older write came after a newer one");
    story.fsync("f").unwrap();
    story.power_cut_and_remount(0);
    assert!(story.read("f").unwrap()[..2 * stripe] == newer, "and it lasts");
}

/// [S-deadline] Threads that each send many requests before they receive the first answer do not wait for each other's
/// connections: more requests than a pool lends connections are over in no time.
#[test]
fn many_threads_with_many_pieces_each_do_not_wait_for_each_other() {
    let story = Story::begin(StoryShape::quiet(Wiring::Tcp));
    story.create_striped("f", "-c 2 -S 64k --inline 0").unwrap();
    let want = bytes_of(1, 2 << 20);
    story.write("f", 0, &want).unwrap();
    let handle = story.handle("f");
    let read = || {
        let mut buf = Buf::new();
        story.fs().read(handle, 0, want.len(), &mut buf).unwrap();
        assert!(buf[..] == want[..]);
    };
    let begin = Instant::now();
    // Thrice as many pieces as connections, and each piece is asked for before the first is answered.
    std::thread::scope(|s| {
        for _ in 0..24 {
            s.spawn(|| (0..2).for_each(|_| read()));
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(12), "{:?}", begin.elapsed());
}
