use client::Fs;
use testkit::story::{Story, StoryShape, bytes_of, count};
use testkit::{Rng, Who, Wiring};
use types::{Cred, Fid, Kind};
use wire::meta::Contents;

/// Sums from a walk over all names. A file counts in the directory of its first name; here each file has one name.
fn walk(fs: &Fs, dir: Fid) -> [u64; 5] {
    let mut sums = [0; 5];
    for item in fs.readdir(dir, 0, 4096, false).unwrap() {
        if matches!(&*item.name, b"." | b"..") {
            continue;
        }
        let attr = fs.getattr(item.fid).unwrap();
        let below = match attr.kind {
            Kind::Dir => walk(fs, item.fid),
            _ => [0; 5],
        };
        let own = match attr.kind {
            Kind::File => [1, 0, 0, attr.size, attr.blocks],
            Kind::Dir => [0, 1, 0, 0, 0],
            _ => [0, 0, 1, attr.size, attr.blocks],
        };
        sums = std::array::from_fn(|n| sums[n] + own[n] + below[n]);
    }
    sums
}

/// [S-du] The counts of a directory are what a walk finds, also when the metadata server was killed or lost power.
#[test]
fn counts_are_what_a_walk_finds_after_kills_and_power_losses() {
    for seed in 0..count(2, 50) {
        let mut story = Story::begin(StoryShape::lively(Wiring::Tcp));
        let (mut rng, cred, root) = (Rng::new(seed), Cred::root(), Fid::ROOT);
        let mut dirs = vec![root];
        for n in 0..40 {
            let fs = story.fs().clone();
            let name = format!("f{n}");
            match n % 4 {
                0 => drop(story.create_striped(&name, "-c 2 -S 64k --inline 0").unwrap()),
                _ => drop(story.create(&name).unwrap()),
            }
            story.write(&name, rng.below(9) * 4096, &bytes_of(seed, 1 + rng.below(90_000) as usize)).unwrap();
            story.close(&name).unwrap();
            if n % 5 == 0 {
                let parent = *rng.pick(&dirs);
                dirs.push(fs.mkdir(parent, format!("d{n}").as_bytes(), 0o755, &cred).unwrap().fid);
            }
            let to = *rng.pick(&dirs);
            fs.rename(root, name.as_bytes(), to, name.as_bytes(), 0, &cred).unwrap();
            if n % 7 == 3 {
                fs.unlink(to, name.as_bytes(), &cred).unwrap();
            }
            match rng.below(8) {
                0 => {
                    story.kill(Who::Mdt);
                    story.start(Who::Mdt);
                }
                1 => {
                    story.power_cut(Who::Mdt, seed);
                    story.start(Who::Mdt);
                }
                _ => {}
            }
            let fs = story.fs();
            let du = fs.du(root, &cred).unwrap();
            let Contents { files, dirs, others, bytes, blocks } = du.counts.tree;
            assert_eq!(du.unsettled, 0);
            assert_eq!([files, dirs, others, bytes, blocks], walk(fs, root), "seed {seed}, step {n}");
        }
        story.check_clean_but_for_purge();
    }
}
