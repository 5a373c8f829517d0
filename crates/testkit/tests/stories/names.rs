use std::collections::BTreeMap;

use testkit::story::{Film, Story, StoryShape, bytes_of, count};
use testkit::{Rng, Wiring};

/// Names with what they lead to: number, links, content.
type Names = BTreeMap<String, (u64, u32, Vec<u8>)>;

/// The name space after each operation: the event before which the operation began, and whether it was durable later.
struct Work {
    film: Film,
    after: Vec<(usize, Names)>,
    /// Event of return of a flush, and the operation that was the last then.
    durable: Vec<(usize, usize)>,
    story: Story,
}

fn work(seed: u64, steps: u64) -> Work {
    let mut rng = Rng::new(seed);
    let story = Story::begin(StoryShape::quiet(Wiring::Local));
    story.record();
    let (mut names, mut after, mut durable) = (Names::new(), vec![(0, Names::new())], vec![]);
    for n in 0..steps {
        let at = story.events();
        let existing: Vec<String> = names.keys().cloned().collect();
        let old = (!existing.is_empty()).then(|| rng.pick(&existing).clone());
        match (rng.below(10), old) {
            (0..4, _) | (_, None) => {
                let name = format!("n{n}");
                let fid = story.create(&name).unwrap();
                names.insert(name, (fid.0, 1, vec![]));
            }
            // Inline content is metadata: it keeps the order too.
            (4..6, Some(name)) => {
                let data = bytes_of(rng.next_u64(), 1 + rng.below(300) as usize);
                if story.open(&name).is_err() {
                    continue;
                }
                // Opening is no change of the names; the write is.
                story.write(&name, 0, &data).unwrap();
                let fid = names[&name].0;
                for (_, (_, _, content)) in names.iter_mut().filter(|(_, f)| f.0 == fid) {
                    let len = content.len().max(data.len());
                    content.resize(len, 0);
                    content[..data.len()].copy_from_slice(&data);
                }
            }
            (6, Some(name)) => {
                story.unlink(&name).unwrap();
                let (fid, ..) = names.remove(&name).unwrap();
                names.values_mut().filter(|f| f.0 == fid).for_each(|f| f.1 -= 1);
            }
            (7, Some(name)) => {
                let new = format!("l{n}");
                let fid = types::Fid(names[&name].0);
                story.fs().link(fid, types::Fid::ROOT, new.as_bytes(), &types::Cred::root()).unwrap();
                names.values_mut().filter(|f| f.0 == fid.0).for_each(|f| f.1 += 1);
                let file = names[&name].clone();
                names.insert(new, file);
            }
            (_, Some(name)) => {
                // To a new name, or over an old one.
                let new = if rng.chance(50) { format!("m{n}") } else { rng.pick(&existing).clone() };
                story.rename(&name, &new).unwrap();
                if names.get(&new).is_none_or(|f| f.0 != names[&name].0) {
                    let file = names.remove(&name).unwrap();
                    if let Some((gone, ..)) = names.insert(new, file) {
                        names.values_mut().filter(|f| f.0 == gone).for_each(|f| f.1 -= 1);
                    }
                }
            }
        }
        after.push((at, names.clone()));
        if rng.chance(8) {
            story.sync_names().unwrap();
            durable.push((story.events(), after.len() - 1));
        }
    }
    Work { film: story.take_film(), after, durable, story }
}

fn seen(story: &Story) -> Names {
    let name_of = |name: String| {
        let attr = story.lookup(&name).unwrap();
        let content = story.read(&name).unwrap();
        (name, (attr.fid.0, attr.nlink, content))
    };
    story.list().unwrap().into_iter().map(name_of).collect()
}

/// [S-metadata-order] Metadata operations are atomic and survive in their order: if a later one survives a power loss, so do all
/// earlier ones of that MDT.
#[test]
fn after_power_loss_the_name_space_is_as_it_was_after_one_of_the_operations() {
    for seed in 0..count(3, 40) {
        let work = work(seed, 80);
        let mut rng = Rng::new(seed);
        let mut points: Vec<usize> =
            (0..count(16, 60)).map(|_| rng.below(work.film.len() as u64 + 1) as usize).collect();
        points.sort();
        let mut player = work.film.player();
        for (n, k) in points.into_iter().enumerate() {
            player.play_to(k);
            let cut = rng.next_u64();
            let story = work.story.again_on(StoryShape::quiet(Wiring::Local), player.cut(cut));
            let least = work.durable.iter().filter(|(at, _)| *at <= k).map(|(_, op)| *op).max().unwrap_or(0);
            let found = seen(&story);
            let fits = work.after[least..].iter().any(|(began, names)| *began <= k && *names == found);
            assert!(
                fits,
                "seed {seed}, cut {cut} at event {k}: {found:?} is no state since operation {least}"
            );
            if n % 4 == 0 {
                story.check_clean_but_for_purge();
            }
        }
    }
}
