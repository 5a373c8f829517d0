use client::fsck::Problem;
use testkit::Wiring;
use testkit::story::{Story, StoryShape, bytes_of, wait_until};
use types::Code;

const STRIPED: &str = "-c 2 -S 64k --inline 0";

fn striped(story: &Story, name: &str, seed: u64) {
    story.create_striped(name, STRIPED).unwrap();
    story.write(name, 0, &bytes_of(seed, 150_000)).unwrap();
    story.fsync(name).unwrap();
    story.close(name).unwrap();
}

/// A restored MDT has the state of its backup, and fsck finds what is different since: no more and no less.
#[test]
fn fsck_of_a_restored_mdt_finds_the_difference() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let mut story = Story::begin(StoryShape::lively(wiring));
        striped(&story, "kept", 1);
        striped(&story, "removed", 2);
        story.create("small").unwrap();
        story.write("small", 0, &bytes_of(3, 5_000)).unwrap();
        story.fsync("small").unwrap();
        story.close("small").unwrap();
        story.check_clean();
        let kept = story.objects().len();
        let backup = story.backup();
        story.unlink("removed").unwrap();
        wait_until("its objects are destroyed", || story.objects().len() < kept - 1);
        striped(&story, "new", 4);
        let newest = story.lookup("new").unwrap().fid;
        story.unmount().unwrap();
        story.restore(&backup);
        story.remount();
        let found = story.fsck().findings.into_iter().map(|f| (f.kind, f.path)).collect::<Vec<_>>();
        let orphan = (Problem::OrphanObject, String::new());
        let missing = (Problem::MissingObject, "/removed".to_string());
        assert_eq!(found, [orphan.clone(), orphan, missing.clone(), missing], "{wiring:?}");
        assert_eq!(story.read("kept").unwrap(), bytes_of(1, 150_000));
        assert_eq!(story.read("small").unwrap(), bytes_of(3, 5_000));
        assert_eq!(story.lookup("new").unwrap_err().code, Code::NotFound);
        // mds-O5: numbers that were given out after the backup are not given again.
        assert!(story.create("later").unwrap() > newest);
    }
}
