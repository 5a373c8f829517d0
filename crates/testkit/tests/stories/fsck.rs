use client::fsck::Problem;
use testkit::story::{Story, StoryShape, bytes_of};
use testkit::{Who, Wiring};
use types::{Fid, Generation, ObjectId};

const STRIPED: &str = "-c 2 -S 64k --inline 0";

/// Some files of each kind, fsynced.
fn populated() -> Story {
    let story = Story::begin(StoryShape::lively(Wiring::Local));
    for (name, striping) in [("inline", ""), ("a", STRIPED), ("b", STRIPED)] {
        match striping {
            "" => story.create(name).unwrap(),
            _ => story.create_striped(name, striping).unwrap(),
        };
        story.write(name, 0, &bytes_of(1, 50_000)).unwrap();
        story.write(name, 0, &bytes_of(2, if striping.is_empty() { 100 } else { 150_000 })).unwrap();
        story.fsync(name).unwrap();
        story.close(name).unwrap();
    }
    story.mkdir("dir").unwrap();
    story.check_clean();
    story
}

fn kinds(story: &Story) -> Vec<(Problem, String)> {
    story.fsck().findings.into_iter().map(|f| (f.kind, f.path)).collect()
}

/// Fsck finds an object that no file names, and goes on finding nothing else.
#[test]
fn fsck_finds_an_orphan_object() {
    let story = populated();
    let object =
        ObjectId { fid: Fid(0x7777), generation: Generation(3), component: 0, stripe: 0, snapshot: 0 };
    story.plant_object(Who::Ost(1), object, &bytes_of(1, 5_000));
    assert_eq!(kinds(&story), [(Problem::OrphanObject, String::new())]);
}

/// [S-missing-object] Fsck names the file of an object that is gone.
#[test]
fn fsck_finds_a_missing_object() {
    let story = populated();
    let (who, object) = story.objects_of(story.lookup("b").unwrap().fid)[1];
    story.destroy_object(who, object);
    assert_eq!(kinds(&story), [(Problem::MissingObject, "/b".to_string())]);
}

/// Fsck finds a link count that is not the number of names.
#[test]
fn fsck_finds_a_wrong_link_count() {
    for name in ["inline", "a", "dir"] {
        let mut story = populated();
        let fid = story.lookup(name).unwrap().fid;
        story.unmount().unwrap();
        story.falsify_inode(fid, |inode| inode.attr.nlink += 1);
        story.remount();
        assert_eq!(kinds(&story), [(Problem::LinkCount, format!("/{name}"))]);
    }
}

/// Fsck finds names and inodes that have lost each other.
#[test]
fn fsck_finds_an_inode_that_is_gone() {
    let mut story = populated();
    let fid = story.lookup("a").unwrap().fid;
    story.unmount().unwrap();
    story.delete_inode(fid);
    story.remount();
    let found = kinds(&story);
    assert!(found.contains(&(Problem::DanglingEntry, "/a".to_string())), "{found:?}");
    assert!(found.iter().filter(|(k, _)| *k == Problem::OrphanObject).count() == 2, "{found:?}");
}
