use std::path::Path;

use super::model::{Mount, Server};
use super::*;
use crate::testdir::TestDir;

fn nfs(point: &Path) -> Nfs {
    let mut nfs = Nfs {
        protocols: vec![3, 4],
        last_id: 0,
        grace_sec: 90,
        mount: Mount {
            point: point.into(),
            source: Some("10.0.0.5:7010@tcp0:/stria".into()),
            options: vec!["ro".into()],
        },
        server: Server { port: 2049, bind: Some([127, 0, 0, 1].into()), include: None },
        exports: vec![],
    };
    nfs.put(vec![words::export("/a:ro,squash=all,anonuid=9,hosts=10.0.0.0/8", point).unwrap()]).unwrap();
    nfs
}

#[test]
fn a_model_reads_back_as_it_was_kept() {
    let dir = TestDir::new("gateway-model");
    let at = Places::new(dir.path(), Nfs::NAME);
    assert!(read::<Nfs>(&at).unwrap().is_none());
    let nfs = nfs(Path::new("/mnt/stria"));
    host::write(&at.kept(), &toml::to_string(&nfs).unwrap()).unwrap();
    assert!(read::<Nfs>(&at).unwrap() == Some(nfs));

    let at = at.of(Smb::NAME);
    let smb = Smb {
        workgroup: "W".into(),
        mount: Mount { point: "/m".into(), source: None, options: vec![] },
        server: Server { port: 445, bind: None, include: Some("/i".into()) },
        shares: vec![words::share("a=/a:users=ann,guest,squash=svc", Path::new("/m")).unwrap()],
    };
    host::write(&at.kept(), &toml::to_string(&smb).unwrap()).unwrap();
    assert!(read::<Smb>(&at).unwrap() == Some(smb));
    fs::write(at.kept(), "cheese = 1\n").unwrap();
    let refused = read::<Smb>(&at).err().unwrap().to_string();
    assert!(refused.contains("edited: unknown field `cheese`"), "{refused}");
}

fn common(base: &Path) -> Common {
    Common {
        mount: None,
        source: None,
        options: vec![],
        port: None,
        bind: None,
        include: None,
        now: false,
        dry_run: false,
        base: Base { base: base.into() },
    }
}

#[test]
fn the_mount_is_that_of_before_or_of_the_other_gateway_and_never_another() {
    let dir = TestDir::new("gateway-mount");
    let at = Places::new(dir.path(), Nfs::NAME);
    let kept = nfs(Path::new("/mnt/stria"));
    let ask = |mount: Option<&str>, source: Option<&str>, old: Option<&Nfs>, other: Option<&Smb>| {
        let wish =
            Common { mount: mount.map(Into::into), source: source.map(Into::into), ..common(dir.path()) };
        wish.mount(old, other, &at).map_err(|e| e.to_string())
    };
    assert_eq!(ask(None, None, Some(&kept), None), Ok(kept.mount.clone()));
    assert_eq!(ask(Some("/mnt/stria"), Some("10.0.0.5:/stria"), Some(&kept), None), Ok(kept.mount.clone()));
    assert!(ask(None, None, None, None).unwrap_err().contains("it needs a mount to serve"));
    assert!(ask(Some("/other"), None, Some(&kept), None).unwrap_err().contains("it serves /mnt/stria"));
    let other = ask(Some("/mnt/stria"), Some("10.0.0.9:/stria"), Some(&kept), None);
    assert!(other.unwrap_err().contains("in another way"));
    let smb =
        Smb { workgroup: "W".into(), mount: kept.mount.clone(), server: kept.server.clone(), shares: vec![] };
    assert_eq!(
        ask(Some("/mnt/stria"), None, None, Some(&smb)),
        Ok(kept.mount.clone()),
        "the gateways share their mount"
    );
    let own = ask(Some("/own"), Some("10.0.0.9:/b"), None, Some(&smb)).unwrap();
    assert_eq!(
        (own.point.as_path(), own.source.as_deref()),
        (Path::new("/own"), Some("10.0.0.9:7010@tcp0:/b"))
    );
    let broken = ask(Some("/own"), Some("unix:/a\nExecStart=/x@local0:/b"), None, None).unwrap_err();
    assert!(broken.contains("--source: ") && broken.contains("cannot stand in"), "{broken}");
    let base = Base { base: "/a\nb".into() };
    assert!(base.places::<Nfs>().unwrap_err().to_string().starts_with("--base: "));
    for own in [at.run().join("m"), at.state(), at.state().join("private")] {
        let refused = ask(own.to_str(), None, None, None).unwrap_err();
        assert!(
            refused.contains("keeps its own files in") && refused.contains("another mount point"),
            "{refused}"
        );
    }
    assert!(ask(Some("/own"), Some("nonsense"), None, None).unwrap_err().contains("NID:/fsname"));
}

#[test]
fn nothing_is_written_when_enable_is_refused() {
    let dir = TestDir::new("gateway-refused");
    let at = Places::new(dir.path(), Nfs::NAME);
    let plain =
        Nfs { mount: Mount { point: dir.path().into(), source: None, options: vec![] }, ..nfs(dir.path()) };
    let refused = common(dir.path()).enable(None, plain.clone(), None, &at).err().unwrap();
    assert_eq!(crate::exit::code_of(&refused), Exit::Unusable, "{refused:#}");
    let empty = Nfs { exports: vec![], ..plain };
    let refused = common(dir.path()).enable(None, empty, None, &at).err().unwrap().to_string();
    assert!(refused.contains("there is nothing to serve yet; give --export"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_start_is_refused_before_anything_is_written_where_another_server_listens() {
    let dir = TestDir::new("gateway-port");
    let at = Places::new(dir.path(), Smb::NAME);
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let smb = Smb {
        workgroup: "W".into(),
        mount: Mount { point: "/m".into(), source: None, options: vec![] },
        server: Server { port: other.local_addr().unwrap().port(), bind: None, include: None },
        shares: vec![],
    };
    let ask = |now| Common { now, ..common(dir.path()) }.refuse_bad_start(None, &smb, &at);
    assert!(ask(false).is_ok(), "nothing is started");
    assert!(ask(true).unwrap_err().to_string().contains("another server listens there"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_command_line_takes_what_the_page_shows_and_refuses_what_makes_no_sense() {
    use clap::Parser;
    let parse = |line: &str| crate::cmd::Cli::try_parse_from(line.split_whitespace()).map(drop);
    for line in [
        "stria gateway nfs enable --mount /m --export /projects:ro,squash=root,hosts=10.0.0.0/8 --export / --now",
        "stria gateway nfs enable --mount /m --source 10.0.0.5@tcp:/stria -o nosuid --export / --protocols 4 --grace 0",
        "stria gateway nfs disable --export /projects",
        "stria gateway smb enable --share a=/a:users=@staff --workgroup SITE --bind 10.0.0.7 --port 1445 --include /f",
        "stria gateway smb disable --purge",
        "stria gateway smb list -j",
        "stria gateway nfs status -j --base /b",
    ] {
        assert!(parse(line).is_ok(), "{line}");
    }
    for line in [
        "stria gateway",
        "stria gateway webdav enable",
        "stria gateway nfs enable --protocols 2",
        "stria gateway nfs enable --grace 271",
        "stria gateway nfs enable --port 0",
        "stria gateway nfs enable --bind everywhere",
        "stria gateway nfs enable --source 10.0.0.5:/stria",
        "stria gateway nfs disable --purge --export /a",
    ] {
        assert_eq!(parse(line).expect_err(line).exit_code(), 2, "{line}");
    }
}
