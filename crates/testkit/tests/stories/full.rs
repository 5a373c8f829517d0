use testkit::story::{Story, StoryShape, bytes_of, wait_until};
use testkit::{Who, Wiring};
use types::Code;

const PIECE: usize = 256 * 1024;
const STRIPED: &str = "-c 2 -S 64k --inline 0";

/// Writes files of a piece each until the OSTs are full; returns those that were written whole.
fn fill(story: &Story, prefix: &str) -> Vec<String> {
    let mut whole = vec![];
    for n in 0.. {
        let name = format!("{prefix}{n}");
        story.create_striped(&name, STRIPED).unwrap();
        match story.write(&name, 0, &content(&name)) {
            Ok(()) => whole.push(name),
            Err(fault) => {
                assert_eq!(fault.code, Code::NoSpace, "{fault}");
                assert_eq!(client::errno_of(fault.code), 28, "ENOSPC");
                return whole;
            }
        }
    }
    unreachable!("media are finite")
}

fn content(name: &str) -> Vec<u8> {
    bytes_of(name.bytes().fold(7, |h, b| h * 131 + b as u64), PIECE)
}

/// [S-no-space] A full OST refuses a write with `ENOSPC` before anything of it is acknowledged; files can still be removed, and
/// their space is usable again.
#[test]
fn a_full_file_system_says_so_harms_nothing_and_takes_again_what_is_freed() {
    let shape = StoryShape { ost_bytes: 9 << 20, ..StoryShape::lively(Wiring::Local) };
    let mut story = Story::begin(shape);
    let first = fill(&story, "a");
    assert!(first.len() >= 4, "only {} files fit", first.len());
    for name in &first {
        story.fsync(name).unwrap_or_else(|e| panic!("fsync of {name} on a full OST: {e}"));
        story.close(name).unwrap();
    }
    // 1. Acknowledged data is whole, also after a power loss of all servers.
    story.power_cut_and_remount(1);
    for name in &first {
        assert!(story.read(name).unwrap() == content(name), "{name}");
    }
    // 2. Overwriting within a full OST is refused or done, never half.
    story.open(&first[0]).unwrap();
    if let Err(fault) = story.write(&first[0], 0, &content(&first[0])) {
        assert_eq!(fault.code, Code::NoSpace);
    }
    assert!(story.read(&first[0]).unwrap() == content(&first[0]));
    // 3. Removing works, and gives space back.
    for name in story.list().unwrap() {
        story.unlink(&name).unwrap();
    }
    story.unmount().unwrap();
    story.remount();
    wait_until("the objects are destroyed", || story.objects().is_empty());
    // 4. Space is free again once what freed it is sealed.
    let mut again = 0;
    wait_until("the space is usable again", || {
        again += 1;
        let prefix = format!("b{again}-");
        let whole = fill(&story, &prefix).len();
        if whole < first.len() {
            story.list().unwrap().iter().for_each(|n| story.unlink(n).unwrap());
            story.unmount().unwrap();
            story.remount();
            wait_until("the objects are destroyed", || story.objects().is_empty());
        }
        whole >= first.len()
    });
}

/// [S-no-space] A full OST can be emptied, although nothing runs there but what is asked: truncation and removal need no space
/// that writes may take.
#[test]
fn truncation_works_on_a_full_ost_and_survives_power_loss() {
    let shape = StoryShape { ost_bytes: 9 << 20, ..StoryShape::quiet(Wiring::Local) };
    let mut story = Story::begin(shape);
    let names = fill(&story, "a");
    for name in &names {
        story.truncate(name, 1000).unwrap_or_else(|e| panic!("truncate of {name} on a full OST: {e}"));
        story.fsync(name).unwrap();
    }
    story.power_cut_and_remount(2);
    for name in &names {
        assert!(story.read(name).unwrap() == content(name)[..1000], "{name}");
    }
    let free = |n| story.stat(Who::Ost(n)).bytes_available;
    assert!(free(0) + free(1) > (names.len() * PIECE / 2) as u64, "what was cut off is free");
}

/// [S-no-space] A call whose bytes go to several OSTs may have reached those that have room: what lies past the size is cut off again,
/// and shows nowhere when the file is made longer.
#[test]
fn what_other_osts_took_of_a_refused_write_does_not_come_back() {
    let shape = StoryShape { ost_bytes: 9 << 20, ..StoryShape::quiet(Wiring::Local) };
    let mut story = Story::begin(shape);
    // 1. OST 1 is full, OST 0 is not.
    story.create_striped("filler", "-c 1 -i 1 --inline 0").unwrap();
    let mut at = 0;
    for len in [PIECE, 64 << 10, 4096] {
        while story.write("filler", at, &vec![9; len]).is_ok() {
            at += len as u64;
        }
    }
    // 2. Stripes 0, 2 … go to OST 1 and are refused; 1, 3 … find room.
    let fid = story.create_striped("f", "-c 2 -i 1 -S 64k --inline 0").unwrap();
    let refused = story.write("f", 0, &content("f")).unwrap_err();
    assert_eq!(refused.code, Code::NoSpace, "{refused}");
    let attr = story.fs().getattr(fid).unwrap();
    assert_eq!((attr.size, attr.blocks), (0, 0), "nothing is contiguous, and nothing is kept");
    // 3. Longer, with the size untouched by any write in between.
    story.truncate("f", PIECE as u64).unwrap();
    assert!(story.read("f").unwrap() == vec![0; PIECE], "zeros where nothing was acknowledged");
    story.fsync("f").unwrap();
    story.power_cut_and_remount(3);
    assert!(story.read("f").unwrap() == vec![0; PIECE], "zeros after a power loss");
}

/// A file system that does nothing by itself but purge, and that only when it is hurried: its own time never comes.
fn small_and_slow() -> Story {
    let shape = StoryShape { ost_bytes: 9 << 20, background: true, ..StoryShape::quiet(Wiring::Local) };
    Story::begin(shape)
}

/// [S-no-space] A write waits for the space of removed files while their objects are still being destroyed.
#[test]
fn what_was_removed_makes_room_for_the_next_write_at_once() {
    let story = small_and_slow();
    let mut names = fill(&story, "a");
    for round in 0..10 {
        // 1. One file goes, and one of its size comes, in its place.
        let name = format!("b{round}");
        story.create_striped(&name, STRIPED).unwrap();
        assert_eq!(
            story.write(&name, 0, &content(&name)).unwrap_err().code,
            Code::NoSpace,
            "nothing is dying"
        );
        let victim = names.remove(0);
        story.close(&victim).unwrap();
        story.unlink(&victim).unwrap();
        story.write(&name, 0, &content(&name)).unwrap_or_else(|e| panic!("round {round}: {e}"));
        names.push(name);
    }
    names.iter().for_each(|name| assert!(story.read(name).unwrap() == content(name), "{name}"));
    // 2. The same with all of it, with what is cut to nothing, and with what a rename replaces.
    for name in names.drain(1..) {
        story.close(&name).unwrap();
        story.unlink(&name).unwrap();
    }
    let mut again = fill(&story, "c");
    story.truncate(&again[0], 0).unwrap();
    story.write(&again[0], 0, &content(&again[0])).unwrap();
    story.create("empty").unwrap();
    story.close("empty").unwrap();
    story.close(&again[1]).unwrap();
    story.rename("empty", &again[1]).unwrap();
    story.create_striped("d", STRIPED).unwrap();
    story.write("d", 0, &content("d")).unwrap();
    // 3. An allocation waits as well, and an inline file that grows.
    again.drain(..2).for_each(drop);
    let mut remove = || {
        let victim = again.remove(0);
        story.close(&victim).unwrap();
        story.unlink(&victim).unwrap();
    };
    remove();
    story.create_striped("e", STRIPED).unwrap();
    story.fs().fallocate(story.handle("e"), 0, PIECE as u64, client::Allocate::KeepSize).unwrap();
    story.create_striped("f", "-c 2 -S 64k").unwrap();
    story.write("f", 0, &content("f")[..60_000]).unwrap();
    while story.write("e", story.lookup("e").unwrap().size, &[7; 4096]).is_ok() {}
    (0..2).for_each(|_| remove());
    story.write("f", 60_000, &content("f")[60_000..]).unwrap();
    assert!(story.read("f").unwrap() == content("f"));
}

/// [S-no-space] A refused append of which a part was acknowledged goes on behind that part when there is room again.
#[test]
fn an_append_that_waited_for_room_has_its_bytes_once() {
    let story = small_and_slow();
    // 1. OST 1 has less room than OST 0.
    story.create_striped("filler", "-c 1 -i 1 --inline 0").unwrap();
    let mut at = 0;
    for len in [PIECE, 4096] {
        while story.write("filler", at, &vec![9; len]).is_ok() {
            at += len as u64;
        }
    }
    // 2. The first stripe finds room, the second does not until the purge was there.
    story.create_striped("f", "-c 2 -i 0 -S 64k --inline 0").unwrap();
    story.close("filler").unwrap();
    story.unlink("filler").unwrap();
    for part in content("f").chunks(PIECE / 2) {
        assert_eq!(story.fs().append(story.handle("f"), part), Ok(part.len()));
    }
    assert!(story.read("f").unwrap() == content("f"));
}

/// [S-no-space] A write to a full OST fails with ENOSPC also while the MDT does not answer.
#[test]
fn a_full_ost_says_so_also_while_the_mdt_is_away() {
    let mut story = small_and_slow();
    let names = fill(&story, "a");
    story.create_striped("b", STRIPED).unwrap();
    story.write("b", 0, &[1; 4096]).unwrap_or_default();
    story.kill(Who::Mdt);
    let fault = story.write(names.last().unwrap(), PIECE as u64, &content("b")).unwrap_err();
    assert_eq!(fault.code, Code::NoSpace, "{fault}");
    story.start(Who::Mdt);
}

/// [S-grants] Pages of shared mappings that the kernel writes later find the space that is kept for them, although others have filled the
/// OST since; and it is everybody's when the mount is gone.
#[test]
fn mapped_pages_find_the_space_that_is_kept_for_them() {
    let shape = StoryShape { ost_bytes: 12 << 20, ..StoryShape::quiet(Wiring::Local) };
    let mut story = Story::begin(shape);
    story.create_striped("map", "-c 2 -S 64k --inline 0").unwrap();
    story.truncate("map", 32 << 20).unwrap();
    let page = |n: u64| testkit::story::page_of(n);
    let write =
        |story: &Story, n: u64| story.fs().write_mapped(story.handle("map"), n * (64 << 10), &page(n));
    // 1. The first to each OST asks for a grant.
    (0..2).for_each(|n| write(&story, n).unwrap());
    // 2. Others fill both OSTs.
    fill(&story, "a");
    story.create_striped("filler", "-c 1 -i 0 --inline 0").unwrap();
    let fill_up = |story: &Story, from: u64| {
        let pages = (from..).take_while(|at| story.write("filler", at * 4096, &[9; 4096]).is_ok());
        pages.count() as u64
    };
    let filled = fill_up(&story, 0);
    // 3. The kernel's pages still find room.
    (2..32).for_each(|n| write(&story, n).unwrap_or_else(|e| panic!("page {n}: {e}")));
    let content = story.read("map").unwrap();
    (0..32).for_each(|n| assert!(content[n as usize * (64 << 10)..][..4096] == page(n), "page {n}"));
    assert_eq!(fill_up(&story, filled), 0, "nobody else has");
    // 4. Unused grants are free for all once the mount has ended.
    story.unmount().unwrap();
    story.remount();
    story.open("filler").unwrap();
    assert!(fill_up(&story, filled) >= 4);
}

/// [S-room-for-names] Small content lies on the MDT while there is room for it; then it goes to OSTs, so that names have the rest.
#[test]
fn an_mdt_that_fills_keeps_its_room_for_names() {
    const BYTES: usize = 20 << 10;
    let mut story = Story::begin(StoryShape { ost_bytes: 64 << 20, ..StoryShape::lively(Wiring::Local) });
    let of = |n: u64| bytes_of(n, BYTES);
    let name = |n: u64| format!("f{n}");
    let stat = |story: &Story| story.ask(Who::Mdt, &wire::mdt::MdtStat { cap: story.admin() }).unwrap();
    let empty = stat(&story);
    assert_eq!((empty.inline_max, empty.inline_limit, empty.failure.as_str()), (65_536, u32::MAX, ""));
    assert!(empty.room_bytes_used * 10 < empty.room_bytes_total, "{empty:?}");
    for n in 0..150 {
        story.create(&name(n)).unwrap();
        story.write(&name(n), 0, &of(n)).unwrap_or_else(|e| panic!("{}: {e}", name(n)));
        story.close(&name(n)).unwrap();
    }
    let objects = story.objects().len();
    assert!((75..150).contains(&objects), "{objects} of 150 files have objects: the first have none");
    let full = stat(&story);
    let percent = full.room_bytes_used * 100 / full.room_bytes_total;
    assert!((50..65).contains(&percent) && full.inline_limit == 16 << 10, "{full:?}");
    assert!(full.records >= empty.records + 300 && full.last_seq >= empty.last_seq + 150, "{full:?}");
    // Existing data is overwritten in place.
    story.open(&name(0)).unwrap();
    story.write(&name(0), 0, &of(1000)).unwrap();
    story.close(&name(0)).unwrap();
    assert_eq!(story.objects().len(), objects);
    // Names have room.
    for n in 0..600 {
        story.create(&format!("empty{n}")).unwrap_or_else(|e| panic!("empty{n}: {e}"));
        story.close(&format!("empty{n}")).unwrap();
    }
    let check = |story: &Story| {
        for n in 0..150 {
            assert!(story.read(&name(n)).unwrap() == of(if n == 0 { 1000 } else { n }), "{}", name(n));
        }
        assert_eq!(story.list().unwrap().len(), 750);
    };
    check(&story);
    story.unmount().unwrap();
    story.remount();
    check(&story);
}
