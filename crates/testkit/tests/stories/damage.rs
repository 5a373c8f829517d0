use testkit::story::{Story, StoryShape, bytes_of};
use testkit::{Who, Wiring};
use types::Code;

const STRIPED: &str = "-c 2 -S 64k --inline 0";

/// [S-missing-object] An object that the layout says was written and that is not there is `EIO` and a damage line, never
/// zeros.
#[test]
fn a_missing_object_is_an_error_and_a_damage_record_never_zeros() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        for is_reopened in [false, true] {
            let mut story = Story::begin(StoryShape::quiet(wiring));
            let want = bytes_of(1, 200_000);
            for name in ["broken", "whole"] {
                story.create_striped(name, STRIPED).unwrap();
                story.write(name, 0, &want).unwrap();
                story.fsync(name).unwrap();
            }
            if is_reopened {
                story.close("broken").unwrap();
                story.remount();
            }
            let fid = story.lookup("broken").unwrap().fid;
            let (who, object) = story.objects_of(fid)[0];
            story.destroy_object(who, object);
            let fault = story.read("broken").expect_err("its bytes are gone");
            assert_eq!((fault.code, client::errno_of(fault.code)), (Code::Damaged, 5), "{fault}");
            // 1. It is on the list of the OST, durably, with the file that it is about.
            let damage = story.damage(who);
            assert_eq!(damage.iter().map(|d| (d.object, d.kind)).collect::<Vec<_>>(), [(object, 2)]);
            assert_eq!(story.fs().getxattr(fid, b"stria.path").unwrap(), b"/broken");
            story.stop_clean(who);
            story.start(who);
            assert_eq!(story.damage(who).len(), 1);
            // 2. Others are not concerned.
            assert!(story.read("whole").unwrap() == want);
        }
    }
}

/// [S-missing-object] [S-sparse] What was never written is a hole, and no damage.
#[test]
fn an_object_that_was_never_written_is_a_hole() {
    let mut story = Story::begin(StoryShape::quiet(Wiring::Local));
    let fid = story.create_striped("f", STRIPED).unwrap();
    let tail = bytes_of(1, 1000);
    story.write("f", 65_536, &tail).unwrap();
    story.fsync("f").unwrap();
    story.power_cut_and_remount(5);
    assert_eq!(story.objects_of(fid).len(), 1, "the first object was not made");
    let found = story.read("f").unwrap();
    assert!(found[..65_536].iter().all(|b| *b == 0) && found[65_536..] == tail);
    assert!(story.damage(Who::Ost(0)).is_empty() && story.damage(Who::Ost(1)).is_empty());
}

/// [S-checksums] A page that does not match its checksum is `EIO`, never other bytes, and it is on the list of damage.
#[test]
fn a_flipped_bit_is_an_error_and_a_damage_record() {
    let story = Story::begin(StoryShape::quiet(Wiring::Tcp));
    let want = bytes_of(1, 100_000);
    let fid = story.create_striped("f", STRIPED).unwrap();
    story.write("f", 0, &want).unwrap();
    story.fsync("f").unwrap();
    let page = &want[8 * 4096..9 * 4096];
    let who = story.flip_bit_of(&page[100..164]);
    let fault = story.read("f").expect_err("a page of it is damaged");
    assert_eq!(client::errno_of(fault.code), 5, "{fault}");
    let damage = story.damage(who);
    assert_eq!(damage.len(), 1);
    assert_eq!((damage[0].object.fid, damage[0].offset, damage[0].kind), (fid, 8 * 4096, 1));
    // Every other page can be read.
    let mut buf = types::Buf::new();
    story.fs().read(story.handle("f"), 0, 8 * 4096, &mut buf).unwrap();
    assert!(buf[..] == want[..8 * 4096]);
    story.fs().read(story.handle("f"), 9 * 4096, 50_000, &mut buf).unwrap();
    assert!(buf[..] == want[9 * 4096..][..50_000]);
}
