use std::collections::BTreeMap;

use testkit::story::{Film, Story, StoryShape, bytes_of, count};
use testkit::{Rng, Wiring};

use crate::model::Past;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// As large as a file of the workload may get.
const SIZE_MAX: u64 = 400_000;

/// A random client's work, and what its files went through.
struct Work {
    film: Film,
    pasts: BTreeMap<&'static str, Past>,
    story: Story,
}

fn work(seed: u64, steps: u64) -> Work {
    let mut rng = Rng::new(seed);
    let story = Story::begin(StoryShape::quiet(Wiring::Local));
    story.record();
    let mut pasts: BTreeMap<&str, Past> = BTreeMap::new();
    for name in NAMES {
        pasts.insert(name, Past::born(story.events()));
        match name {
            "a" => story.create(name).unwrap(),
            "b" => story.create_striped(name, "-c 2 -S 64k --inline 0").unwrap(),
            "c" => story.create_striped(name, "-c 1 --inline 0").unwrap(),
            _ => story.create(name).unwrap(),
        };
    }
    for _ in 0..steps {
        let name = *rng.pick(&NAMES);
        let past = pasts.get_mut(name).unwrap();
        let at = story.events();
        match rng.below(20) {
            0..4 => {
                story.fsync(name).unwrap();
                past.fsynced(story.events());
            }
            4 => {
                let size = rng.below(past.size() + 5000);
                past.truncate(at, size);
                story.truncate(name, size).unwrap();
                story.fsync(name).unwrap();
                past.fsynced(story.events());
            }
            5 => story.flush_all(),
            // Whole pages.
            6..12 => {
                let page = rng.below(if name == "a" { 16 } else { SIZE_MAX / 4096 - 8 });
                let data = bytes_of(rng.next_u64(), 4096 * (1 + rng.below(8)) as usize);
                past.write(at, page * 4096, &data);
                story.write(name, page * 4096, &data).unwrap();
            }
            // Bytes anywhere.
            _ => {
                let offset =
                    rng.below(if name == "a" { 30_000 } else { past.size().min(SIZE_MAX - 50_000) + 1 });
                let len = 1 + rng.below(20_000) as usize;
                let data = bytes_of(rng.next_u64(), len);
                past.write(at, offset, &data);
                story.write(name, offset, &data).unwrap();
            }
        }
        if rng.chance(5) {
            assert!(story.read(name).unwrap() == pasts[name].now(), "seed {seed}: {name} before any crash");
        }
    }
    Work { film: story.take_film(), pasts, story }
}

/// [S-power-loss] Each write without fsync may survive or not, independently. A page is old or new, never mixed; below the
/// durable size there are never zeros or foreign bytes where data was.
#[test]
fn after_power_loss_each_page_is_old_or_new_and_the_durable_size_stands() {
    let (works, cuts) = (count(3, 40), count(14, 60));
    for seed in 0..works {
        let work = work(seed, 60);
        let mut rng = Rng::new(seed ^ 0xc0ffee);
        let mut points: Vec<usize> =
            (0..cuts).map(|_| rng.below(work.film.len() as u64 + 1) as usize).collect();
        points.sort();
        let mut player = work.film.player();
        for (n, k) in points.into_iter().enumerate() {
            player.play_to(k);
            let cut = rng.next_u64();
            let story = work.story.again_on(StoryShape::quiet(Wiring::Local), player.cut(cut));
            judge(&story, &work, k, &format!("seed {seed}, cut {cut} at event {k}"));
            if n % 5 == 0 {
                drop(story);
                let story = work.story.again_on(StoryShape::lively(Wiring::Local), player.cut(cut));
                judge(&story, &work, k, "lively");
                story.check_clean();
            }
        }
    }
}

fn judge(story: &Story, work: &Work, k: usize, when: &str) {
    for (name, past) in &work.pasts {
        let found =
            story.exists(name).then(|| story.read(name).unwrap_or_else(|e| panic!("{when}: {name}: {e}")));
        if let Err(why) = past.judge(k, found.as_deref()) {
            panic!("{when}: file {name}: {why}");
        }
    }
    // It goes on from there.
    story.create("new").unwrap();
    story.write("new", 0, b"after").unwrap();
    story.fsync("new").unwrap();
    assert_eq!(story.read("new").unwrap(), b"after", "{when}");
}

/// [S-kill] A `kill -9` of all processes loses nothing that a call acknowledged: at every point of a random work.
#[test]
fn a_kill_of_all_at_any_point_loses_nothing_acknowledged() {
    for seed in 100..100 + count(2, 20) {
        let mut work = work(seed, 50);
        work.story.kill_all_and_remount();
        for (name, past) in &work.pasts {
            assert!(work.story.read(name).unwrap() == past.now(), "seed {seed}: {name}");
        }
        work.story.check_clean_but_for_purge();
    }
}
