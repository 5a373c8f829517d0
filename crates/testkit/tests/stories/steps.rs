use testkit::story::{Film, Story, StoryShape, bytes_of};
use testkit::{Who, Wiring};
use types::Fid;
use wire::meta::FileState;

use crate::model::Past;

const STRIPED: &str = "-c 2 -S 64k --inline 0";

/// The operations on one file, and their film.
struct Scene {
    story: Story,
    film: Film,
    fid: Fid,
    past: Past,
}

/// Plays `act` on a file that begins with `content`, fsynced.
fn scene(striping: &str, content: &[u8], act: impl FnOnce(&Story, &mut Past)) -> Scene {
    let story = Story::begin(StoryShape::quiet(Wiring::Local));
    let fid = match striping {
        "" => story.create("f").unwrap(),
        _ => story.create_striped("f", striping).unwrap(),
    };
    let mut past = Past::born(0);
    story.write("f", 0, content).unwrap();
    past.write(0, 0, content);
    story.fsync("f").unwrap();
    past.fsynced(0);
    story.record();
    act(&story, &mut past);
    Scene { film: story.take_film(), story, fid, past }
}

impl Scene {
    /// Cuts the power before every event, in every way, and a kill too; `look` sees the cluster before any client asks.
    fn at_every_event(&self, seeds: u64, look: impl Fn(&Story, &str)) {
        let mut player = self.film.player();
        for k in 0..=self.film.len() {
            player.play_to(k);
            let cuts = (0..seeds).map(|s| (format!("cut {s}"), player.cut(s + k as u64)));
            let kill = std::iter::once(("kill".to_string(), player.kill()));
            for (n, (how, media)) in cuts.chain(kill).enumerate() {
                let when = format!("{how} before event {k} of {}", self.film.len());
                let story = self.story.again_on(StoryShape::quiet(Wiring::Local), media);
                look(&story, &when);
                let found = story.read("f").unwrap_or_else(|e| panic!("{when}: {e}"));
                self.past.judge(k, Some(&found)).unwrap_or_else(|why| panic!("{when}: {why}"));
                assert!(story.read("f").unwrap() == found, "{when}: a second look shows something else");
                if n == 0 && k % 4 == 0 {
                    story.open("f").unwrap();
                    story.write("f", 0, b"it goes on").unwrap();
                    story.close("f").unwrap();
                    story.check_clean_but_for_purge();
                }
            }
        }
    }
}

/// Checks the MDT's size and written bits: no data that they report may be missing. `set`: a size from truncate, which needs no data.
pub fn check_word_of_the_mdt(story: &Story, fid: Fid, set: u64, when: &str) {
    let inode = story.inode(fid).unwrap();
    let Some(layout) = &inode.layout else { return };
    let stats: Vec<_> = story.objects().into_iter().map(|(_, s)| s).filter(|s| s.object.fid == fid).collect();
    for (object, _, is_written) in layout.objects(fid) {
        let is_there = stats.iter().any(|s| s.object == object);
        assert!(!is_written || is_there, "{when}: object {object} is said to be written, and is not there");
    }
    if !matches!(inode.state, FileState::Truncating { .. }) {
        let proven = stats.iter().filter(|s| s.object.generation == layout.generation);
        let proven = proven.map(|s| layout.size_from(s.object.component, s.object.stripe, s.len)).max();
        let size = inode.attr.size;
        assert!(
            size <= proven.unwrap_or(0).max(set),
            "{when}: {size} bytes are named, the objects prove {proven:?}"
        );
    }
}

/// plan-O3: the MDT names no size and no written object before the bytes are flushed: with power cut at every event of a file's
/// growth by writes, settles and fsyncs.
#[test]
fn o3_size_is_never_named_before_its_bytes_are_flushed() {
    let scene = scene(STRIPED, &bytes_of(1, 50_000), |story, past| {
        for n in 0..4u64 {
            let (offset, data) = (past.size(), bytes_of(n + 10, 60_000));
            past.write(story.events(), offset, &data);
            story.write("f", offset, &data).unwrap();
            match n {
                // The MDT is flushed on its own: it must not have heard of the bytes.
                0 | 2 => story.flush(Who::Mdt),
                _ => {
                    story.fsync("f").unwrap();
                    past.fsynced(story.events());
                }
            }
        }
        story.close("f").unwrap();
    });
    scene.at_every_event(2, |story, when| check_word_of_the_mdt(story, scene.fid, 0, when));
}

/// meta-O4: a file that moves from its record to objects has all its bytes at every moment: with power cut at every event of it.
#[test]
fn o4_growth_survives_power_loss_at_every_step() {
    // Bytes of the record that the write leaves alone, and of the write.
    for (kept, offset, len) in [(40_000, 60_000, 30_000), (65_000, 64_000, 200_000), (5_000, 300_000, 1_000)]
    {
        let scene = scene("", &bytes_of(1, kept), |story, past| {
            let data = bytes_of(2, len);
            past.write(story.events(), offset, &data);
            story.write("f", offset, &data).unwrap();
            story.fsync("f").unwrap();
            past.fsynced(story.events());
        });
        assert!(scene.story.layout(scene.fid).is_some(), "it has moved");
        scene.at_every_event(2, |story, when| check_word_of_the_mdt(story, scene.fid, 0, when));
    }
}

/// [S-truncate] [S-power-loss] A striped file that is shrunk, extended or emptied: with power cut at every event it is as
/// before or as after, and what was cut off never comes back.
#[test]
fn truncates_of_striped_files_survive_power_loss_at_every_step() {
    for sizes in [vec![100_000], vec![0], vec![400_000], vec![70_000, 200_000], vec![1, 0, 131_072]] {
        let scene = scene(STRIPED, &bytes_of(1, 300_000), |story, past| {
            for size in &sizes {
                past.truncate(story.events(), *size);
                story.truncate("f", *size).unwrap();
                story.fsync("f").unwrap();
                past.fsynced(story.events());
            }
        });
        assert!(scene.story.read("f").unwrap() == scene.past.now());
        scene.at_every_event(1, |_, _| {});
    }
}

/// [S-power-loss] A file that moves on to another OST has all its bytes at every moment, with power cut at every event of it; and no object is
/// ever left without a name.
#[test]
fn a_move_to_another_ost_survives_power_loss_at_every_step() {
    // One component, and three, of which two are empty afterwards.
    for striping in ["-c 1 -S 64k --inline 0", "--inline 0"] {
        moves_on(striping);
    }
}

fn moves_on(striping: &str) {
    let scene = scene(striping, &bytes_of(1, 50_007), |story, past| {
        // 1. The file's OST is full but for less than a page.
        let fid = story.lookup("f").unwrap().fid;
        let first = story.layout(fid).unwrap().components[0].mirrors[0];
        let index = story.map().mirror(first).unwrap().primary;
        let index = story.map().target(index).unwrap().index;
        story.create_striped("filler", &format!("-c 1 -i {index} --inline 0")).unwrap();
        let mut at = 0;
        for len in [1 << 20, 64 << 10, 4096] {
            while story.write("filler", at, &vec![9; len]).is_ok() {
                at += len as u64;
            }
        }
        story.fsync("filler").unwrap();
        // 2. It goes on elsewhere, from within a page.
        for n in 0..3u64 {
            let (offset, data) = (past.size(), bytes_of(n + 10, 30_000));
            past.write(story.events(), offset, &data);
            story.write("f", offset, &data).unwrap();
        }
        story.fsync("f").unwrap();
        past.fsynced(story.events());
        let data = bytes_of(20, 9);
        past.write(story.events(), past.size(), &data);
        story.write("f", story.lookup("f").unwrap().size, &data).unwrap();
        let layout = story.layout(fid).unwrap();
        assert_ne!(layout.split(fid, 100_000, 1)[0].mirror, first, "it has moved");
    });
    scene.at_every_event(1, |story, when| {
        check_word_of_the_mdt(story, scene.fid, 0, when);
        let Some(layout) = story.inode(scene.fid).unwrap().layout else { return };
        let mut named: Vec<_> =
            layout.objects(scene.fid).map(|(o, mirror, _)| (o, story.ost_of(mirror))).collect();
        named.sort_by_key(|(o, _)| *o);
        for (who, object) in story.objects_of(scene.fid) {
            assert!(named.contains(&(object, who)), "{when}: object {object} has no name");
        }
    });
}

/// meta-M1, client-MG2: a file that a drain moves has all its bytes at every moment, with power cut at every event of it; and each object is
/// named by the file or by the unlink log.
#[test]
fn m1_a_migration_survives_power_loss_at_every_step() {
    let scene = scene(STRIPED, &bytes_of(1, 200_000), |story, past| {
        let fid = story.lookup("f").unwrap().fid;
        let before = story.layout(fid).unwrap();
        let off = story.mark_draining(0);
        assert!(before.objects(fid).any(|(_, mirror, _)| mirror == off));
        let report = story.drain_once(off);
        assert_eq!((report.files, report.left_count), (1, 0), "{report:?}");
        let after = story.layout(fid).unwrap();
        assert!(after.generation > before.generation);
        assert!(!after.objects(fid).any(|(_, mirror, _)| mirror == off));
        // The file is used on.
        let data = bytes_of(3, 70_000);
        past.write(story.events(), 150_000, &data);
        story.write("f", 150_000, &data).unwrap();
        story.fsync("f").unwrap();
        past.fsynced(story.events());
    });
    scene.at_every_event(1, |story, when| check_word_of_the_mdt(story, scene.fid, 0, when));
}
