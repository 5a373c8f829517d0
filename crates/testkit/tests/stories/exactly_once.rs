use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use client::{Fs, OpenFlags};
use testkit::story::{Story, StoryShape, bytes_of, count};
use testkit::{Rng, Who, Wiring};
use types::{Code, Cred, Fault, Fid};
use wire::meta::FileState;
use wire::session::Detach;

/// The server's event while the client waits for the lost reply.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// The link comes back.
    Heals,
    /// The server was killed, and starts.
    Killed,
    /// The server lost power, and starts.
    LostPower(u64),
    /// The MDT ends the client's session before the link comes back.
    SessionEnded,
}

/// Requests whose lost answer was that of a change, and those before which the client asked something.
static CHANGES: AtomicU32 = AtomicU32::new(0);
static QUESTIONS: AtomicU32 = AtomicU32::new(0);
/// A server that lives carries a change out within milliseconds.
const CARRIED_OUT: Duration = Duration::from_secs(2);

/// Carries out `op`, whose answer is lost after the server has carried it out; then `then` happens.
fn with_lost_reply<T: Send>(
    story: &mut Story,
    who: Who,
    then: Then,
    op: impl FnOnce(Arc<Fs>) -> Result<T, Fault> + Send,
) -> Result<T, Fault> {
    let fs = story.fs().clone();
    let (before, session) = (story.stat(who).last_seq, fs.session());
    story.lose_replies(who);
    std::thread::scope(|s| {
        let asking = s.spawn(move || op(fs));
        let begin = Instant::now();
        while story.stat(who).last_seq <= before && begin.elapsed() < CARRIED_OUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        if story.stat(who).last_seq <= before {
            // After a restart the client may have no lease of the name yet, so it asks for the name first, and waits for that answer.
            let (asked, changes) = (QUESTIONS.fetch_add(1, SeqCst) + 1, CHANGES.load(SeqCst));
            assert!(
                asked <= 2 + changes / 4,
                "{asked} times the client asked something before {changes} changes"
            );
            story.heal(who);
            return asking.join().unwrap();
        }
        CHANGES.fetch_add(1, SeqCst);
        match then {
            Then::Heals => story.heal(who),
            Then::Killed => {
                story.kill(who);
                story.start(who);
            }
            Then::LostPower(seed) => {
                story.power_cut(who, seed);
                story.start(who);
            }
            Then::SessionEnded => {
                story.ask(Who::Mdt, &Detach { session }).unwrap();
                story.heal(who);
            }
        }
        asking.join().unwrap()
    })
}

/// [S-exactly-once] A request that is sent again after a lost answer takes effect once: each change of names.
#[test]
fn changes_of_names_whose_answers_are_lost_happen_once() {
    for (round, then) in
        [Then::Heals, Then::Killed, Then::LostPower(0), Then::LostPower(3)].into_iter().enumerate()
    {
        let mut story = Story::begin(StoryShape::quiet(Wiring::Tcp));
        let (cred, root) = (Cred::root(), Fid::ROOT);
        let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
        for n in 0..count(2, 20) {
            let what = |op: &str| format!("{op}, {then:?}, {round}.{n}");
            let (a, b, d) = (format!("a{n}"), format!("b{n}"), format!("d{n}"));
            let done = with_lost_reply(&mut story, Who::Mdt, then, |fs| {
                let (made, handle) = fs.create(root, a.as_bytes(), 0o644, flags, &cred)?;
                // With nothing open the client asks nothing before it renames: the first answer lost is the rename's.
                fs.release(handle);
                Ok(made)
            });
            let made = done.unwrap_or_else(|e| panic!("{}: {e}", what("an exclusive create")));
            assert_eq!(story.lookup(&a).unwrap().fid, made.fid, "{}", what("create"));
            let done = with_lost_reply(&mut story, Who::Mdt, then, |fs| {
                fs.rename(root, a.as_bytes(), root, b.as_bytes(), 0, &cred)
            });
            done.unwrap_or_else(|e| panic!("{}: {e}", what("rename")));
            assert!(!story.exists(&a) && story.lookup(&b).unwrap().fid == made.fid, "{}", what("rename"));
            let done = with_lost_reply(&mut story, Who::Mdt, then, |fs| {
                fs.link(made.fid, root, a.as_bytes(), &cred)
            });
            done.unwrap_or_else(|e| panic!("{}: {e}", what("link")));
            assert_eq!(story.lookup(&a).unwrap().nlink, 2, "{}", what("link"));
            let done =
                with_lost_reply(&mut story, Who::Mdt, then, |fs| fs.mkdir(root, d.as_bytes(), 0o755, &cred));
            done.unwrap_or_else(|e| panic!("{}: {e}", what("mkdir")));
            let done = with_lost_reply(&mut story, Who::Mdt, then, |fs| fs.unlink(root, a.as_bytes(), &cred));
            done.unwrap_or_else(|e| panic!("{}: {e}", what("unlink")));
            assert_eq!(story.lookup(&b).unwrap().nlink, 1, "{}", what("unlink"));
            let done = with_lost_reply(&mut story, Who::Mdt, then, |fs| fs.rmdir(root, d.as_bytes(), &cred));
            done.unwrap_or_else(|e| panic!("{}: {e}", what("rmdir")));
            assert_eq!(story.list().unwrap().len() as u64, n + 1, "one name is left of each round");
        }
        story.check_clean_but_for_purge();
    }
}

/// [S-exactly-once] [S-append] Appends whose answers are lost are in the file once, inline and in objects, whatever the server
/// went through.
#[test]
fn appends_whose_answers_are_lost_are_in_the_file_once() {
    for seed in 0..count(3, 60) {
        let mut story = Story::begin(StoryShape::quiet(Wiring::Tcp).osts(1));
        story.create("inline").unwrap();
        story.create_striped("striped", "-c 1 --inline 0").unwrap();
        let mut rng = Rng::new(seed);
        for (name, who) in [("inline", Who::Mdt), ("striped", Who::Ost(0))] {
            let flags = OpenFlags { append: true, ..OpenFlags::read_write() };
            let fid = story.lookup(name).unwrap().fid;
            let (handle, _) = story.fs().open(fid, flags).unwrap();
            story.fs().write(handle, 0, b"begin").unwrap();
            let mut want = b"begin".to_vec();
            for _ in 0..8 {
                let data = bytes_of(rng.next_u64(), 1 + rng.below(5_000) as usize);
                let then = match rng.below(3) {
                    0 => Then::Heals,
                    1 => Then::Killed,
                    _ => Then::LostPower(rng.next_u64()),
                };
                let done = with_lost_reply(&mut story, who, then, |fs| fs.write(handle, 0, &data));
                done.unwrap_or_else(|e| panic!("seed {seed}: {name} {then:?}: {e}"));
                want.extend_from_slice(&data);
                assert!(story.read(name).unwrap() == want, "seed {seed}: {name} {then:?}");
            }
            story.fs().fsync(handle, false).unwrap();
            story.fs().release(handle);
        }
    }
}

/// Of several files at once: the MDT is told in one frame, and the answer to that is lost.
#[test]
fn what_was_told_together_is_true_though_the_answer_was_lost() {
    for then in [Then::Heals, Then::Killed, Then::LostPower(0), Then::LostPower(1), Then::LostPower(2)] {
        let mut story = Story::begin(StoryShape::quiet(Wiring::Tcp));
        let size = |n: u64| 70_000 + 1000 * n;
        let fids: Vec<Fid> = (0..12)
            .map(|n| {
                let name = format!("f{n}");
                let fid = story.create_striped(&name, "-c 1 --inline 0").unwrap();
                story.write(&name, 0, &bytes_of(n, size(n) as usize)).unwrap();
                story.close(&name).unwrap();
                fid
            })
            .collect();
        with_lost_reply(&mut story, Who::Mdt, then, |fs| fs.shutdown()).unwrap();
        for (fid, n) in fids.into_iter().zip(0..) {
            let inode = story.inode(fid).unwrap();
            assert_eq!((inode.attr.size, inode.state), (size(n), FileState::Settled), "{then:?}, file {n}");
        }
        story.remount();
        for n in 0..12 {
            assert!(story.read(&format!("f{n}")).unwrap() == bytes_of(n, size(n) as usize), "{then:?} {n}");
        }
    }
}

/// [S-exactly-once] A change whose answer was lost is not carried out once more in the next session: its outcome is unknown, and the call fails.
#[test]
fn a_change_without_an_answer_is_not_repeated_in_another_session() {
    let mut story = Story::begin(StoryShape::quiet(Wiring::Tcp));
    let (cred, root) = (Cred::root(), Fid::ROOT);
    let make = |fs: Arc<Fs>| fs.mkdir(root, b"d", 0o755, &cred);
    let made = with_lost_reply(&mut story, Who::Mdt, Then::SessionEnded, make);
    assert_eq!(made.unwrap_err().code, Code::NoSession);
    story.lookup("d").unwrap();
    // The mount goes on in its new session.
    story.fs().mkdir(root, b"e", 0o755, &cred).unwrap();
}
