use super::*;
use crate::cmd::{Cli, Command};
use crate::testdir::TestDir;
use clap::Parser;

fn up(dir: &Path, more: &str) -> Up {
    let mut words = vec!["stria", "up", "--dir", dir.to_str().unwrap()];
    words.extend(more.split_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        Command::Up(up) => up,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_cluster_has_the_defaults_or_what_is_asked_for() {
    let dir = TestDir::new("up-plan");
    let plain = up(dir.path(), "").plan().unwrap();
    assert_eq!(
        (plain.fsname.as_str(), plain.osts, plain.ost_size, plain.ready),
        ("stria", 4, Size(8 << 30), false)
    );
    let asked =
        up(dir.path(), "--osts 2 --mdts 1 --ost-size 1G --mdt-size 512M --fsname demo").plan().unwrap();
    assert_eq!((asked.fsname.as_str(), asked.osts, asked.bytes_promised()), ("demo", 2, 2560 << 20));
}

#[test]
fn wishes_that_cannot_be_had_are_refused_with_the_way_out() {
    let dir = TestDir::new("up-refused");
    for (more, reason) in [
        ("--mdts 2", "later release"),
        ("--ost-size 1M", "too small"),
        ("--mdt-size 1M", "too small"),
        ("--fsname a/b", "name"),
        ("--fsname much-too-long-a-name", "longer"),
    ] {
        let err = up(dir.path(), more).plan().unwrap_err();
        assert!(err.to_string().contains(reason), "{more}: {err}");
        assert_eq!(crate::exit::code_of(&err), Exit::Unusable, "{more}");
    }
}

#[test]
fn on_an_existing_directory_conflicting_wishes_and_missing_media_are_refused() {
    let dir = TestDir::new("up-existing");
    let mut there = Cluster::new("demo".into(), 2, SIZE, Size(1 << 30), None);
    there.ready = true;
    there.write(dir.path()).unwrap();
    for image in there.images(dir.path()) {
        std::fs::write(image, b"").unwrap();
    }
    drop(::mgs::Mgs::open(&Cluster::mgs_dir(dir.path())).unwrap());
    assert_eq!(up(dir.path(), "").plan().unwrap(), there);
    assert_eq!(up(dir.path(), "--osts 2 --ost-size 1024M").plan().unwrap(), there);
    for more in ["--osts 3", "--ost-size 2G", "--mdt-size 1G", "--fsname other", "--inline-max 0"] {
        let err = up(dir.path(), more).plan().unwrap_err().to_string();
        assert!(err.starts_with(more) && err.contains("leave the option out"), "{more}: {err}");
    }
    std::fs::remove_file(there.ost_image(dir.path(), 1)).unwrap();
    let err = up(dir.path(), "").plan().unwrap_err().to_string();
    assert!(err.contains("ost0001.img") && err.contains("missing"), "{err}");
    // Before it was ready no data was stored, so a missing image is no loss.
    there.ready = false;
    there.write(dir.path()).unwrap();
    assert_eq!(up(dir.path(), "--osts 3").plan().unwrap().osts, 3);
}

#[test]
fn a_foreign_directory_is_refused() {
    let dir = TestDir::new("up-foreign");
    std::fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    let err = up(dir.path(), "").plan().unwrap_err();
    assert!(err.to_string().contains("notes.txt"), "{err}");
}
