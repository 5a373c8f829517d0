use testkit::story::{Story, StoryShape, bytes_of, count};
use testkit::{Rng, Who, Wiring};

/// [S-kill] A `kill -9` of any process, or of all, loses nothing that a call acknowledged. What a killed client had not shipped is looked at by the
/// suite `crash::kill_any_process_loses_nothing_acknowledged`; here it has shipped all.
#[test]
fn kills_of_any_process_lose_nothing_acknowledged() {
    for seed in 0..count(3, 100) {
        let mut story = Story::begin(StoryShape::lively(Wiring::Tcp));
        let mut rng = Rng::new(seed);
        let mut files: Vec<(String, Vec<u8>)> = vec![];
        for n in 0..24 {
            let name = format!("f{n}");
            match n % 3 {
                0 => story.create(&name).unwrap(),
                _ => story.create_striped(&name, "-c 2 -S 64k --inline 0").unwrap(),
            };
            let content = bytes_of(rng.next_u64(), 1 + rng.below(100_000) as usize);
            story.write(&name, 0, &content).unwrap();
            files.push((name, content));
            let what = rng.below(8);
            if matches!(what, 3 | 4) {
                story.sync_names().unwrap();
            }
            match what {
                0 => restart(&mut story, Who::Mdt),
                1 => restart(&mut story, Who::Ost(0)),
                2 => restart(&mut story, Who::Ost(1)),
                3 => story.remount(),
                4 => story.kill_all_and_remount(),
                _ => {}
            }
            let (name, content) = rng.pick(&files);
            assert!(story.read(name).unwrap() == *content, "seed {seed}: {name}");
        }
        for (name, content) in &files {
            assert!(story.read(name).unwrap() == *content, "seed {seed}: {name}");
        }
        story.check_clean();
    }
}

fn restart(story: &mut Story, who: Who) {
    story.kill(who);
    story.start(who);
}
