//! Nodemaps at real mounts, over TCP with certificates.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;
use rustix::io::Errno;
use testkit::cluster::is_mounted;
use testkit::{Cluster, Shape, Wiring};

use super::handles;
use super::semantics::wait_until;
use super::sys::{ensure_eq, expect_errno, run};
use super::{Bench, Needs, Test};

pub const OWN: &[(Needs, Test)] = &[
    (
        Needs::Only(Wiring::Tcp),
        ("nodemaps::clients_are_banned_limited_to_reading_squashed_and_mapped", nodemaps),
    ),
    (Needs::Only(Wiring::Tcp), ("nodemaps::clients_see_one_directory_as_their_root", root)),
];

/// A command of the administrator.
fn admin(cluster: &Cluster, line: &str) -> Result<String> {
    let mgs = cluster.mgs();
    let words: Vec<&str> = line.split(' ').chain(["--mgs", &mgs]).collect();
    let (code, out) = cluster.stria(&words)?;
    ensure!(code == 0, "stria {line}: {code}: {out}");
    Ok(out)
}

/// The mount of another client, until it is dropped.
struct Guest {
    point: PathBuf,
}

impl Guest {
    fn mount(cluster: &Cluster, certificate: &Path, point: PathBuf) -> Result<Result<Guest, String>> {
        fs::create_dir_all(&point)?;
        let source = format!("{}:/stria", cluster.mgs());
        let out = Command::new(cluster.bin())
            .args(["mount", &source])
            .arg(&point)
            .env("STRIA_TLS", certificate)
            .output()?;
        let text =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        Ok(if out.status.success() { Ok(Guest { point }) } else { Err(text) })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if is_mounted(&self.point) {
            run("umount", &["-l", &self.point.display().to_string()], Path::new("/")).ok();
        }
    }
}

/// A cluster, and the certificate of a client guest7.
fn start(b: &mut Bench) -> Result<(Cluster, PathBuf)> {
    let parent = b.cluster.dir.parent().context("a cluster has a parent")?.to_path_buf();
    let shape = Shape { wiring: Wiring::Tcp, osts: 2, ost_size: "1G".into(), tls: true, etcd: vec![] };
    let cluster = Cluster::start(b.cluster.bin(), &parent, shape)?;
    let mut authority = pki::Authority::open(&cluster.dir.join("ca"))?;
    let node = "guest7".parse()?;
    authority.issue(pki::Role::Client, &node, 30, SystemTime::now())?;
    let certificate = authority.node_dir(pki::Role::Client, &node);
    Ok((cluster, certificate))
}

/// [SECURITY] A client whose nodemap has a root sees that directory, and nothing outside of it.
fn root(b: &mut Bench) -> Result<()> {
    let (cluster, certificate) = start(b)?;
    let all = cluster.mount.join("projects");
    let (a, other) = (all.join("a"), all.join("b"));
    fs::create_dir_all(a.join("dir"))?;
    fs::create_dir_all(&other)?;
    fs::write(a.join("file"), "inside")?;
    fs::write(a.join("dir/deep"), "deep")?;
    fs::write(other.join("secret"), "outside")?;
    fs::write(other.join("shared"), "both")?;
    fs::hard_link(other.join("shared"), a.join("shared"))?;
    File::open(&a)?.sync_all()?;
    let secret = fs::metadata(other.join("secret"))?.ino();

    // 1. A root that is not there: the mount is refused, and hears why.
    let point = cluster.dir.join("guest");
    admin(&cluster, "nodemap add site --node guest* --root /projects/none")?;
    let mut number = 0;
    wait_until("the root is missed", || match Guest::mount(&cluster, &certificate, point.clone())? {
        Ok(_) => Ok(false),
        Err(text) => {
            ensure!(
                text.contains("/projects/none, which is no directory"),
                "a mount without its root: {text}"
            );
            Ok(true)
        }
    })?;
    admin(&cluster, "nodemap modify site --root /projects/a")?;
    let told = admin(&cluster, "nodemap test --cert client/guest7 --nid 127.0.0.1@tcp0 --uid 5")?;
    ensure!(told.contains("root:    /projects/a"), "{told}");
    let mut guest = None;
    wait_until("the root is there", || {
        guest = Guest::mount(&cluster, &certificate, point.clone())?.ok();
        Ok(guest.is_some())
    })?;

    // 2. It is the root of the mount.
    let names = |dir: &Path| -> Result<Vec<String>> {
        let found = fs::read_dir(dir)?.map(|e| Ok(e?.file_name().to_string_lossy().into_owned()));
        let mut found = found.collect::<Result<Vec<_>>>()?;
        found.sort();
        Ok(found)
    };
    ensure_eq(names(&point)?, ["dir", "file", "shared"].map(String::from).to_vec(), "names in the root")?;
    ensure_eq(fs::metadata(&point)?.ino(), 1, "the inode number of the root")?;
    ensure_eq(fs::metadata(point.join("dir/.."))?.ino(), 1, "the parent of a directory in it")?;
    ensure_eq(fs::read_to_string(point.join("dir/deep"))?, "deep".into(), "content")?;
    fs::write(point.join("theirs"), "new")?;
    ensure_eq(fs::read_to_string(a.join("theirs"))?, "new".into(), "a file of the guest")?;
    fs::create_dir(point.join("sub"))?;
    fs::rename(point.join("theirs"), point.join("sub/theirs"))?;
    ensure!(a.join("sub/theirs").exists() && !point.join("projects").exists(), "names inside");
    fs::rename(a.join("sub/theirs"), a.join("theirs"))?;
    wait_until("the other mount's change of the root shows", || Ok(point.join("theirs").exists()))?;

    // 3. By an id: paths are the guest's, and there are no others.
    let by_id = |ino: u64| -> Result<(bool, String)> {
        let mut stria = Command::new(cluster.bin());
        stria.arg("id2path").arg(&point).arg(ino.to_string()).env("STRIA_TLS", &certificate);
        let out = stria.output()?;
        let text = [out.stdout, out.stderr].concat();
        Ok((out.status.success(), String::from_utf8_lossy(&text).trim().to_owned()))
    };
    let shown = |path: PathBuf| (true, path.display().to_string());
    let ino = |name: &str| -> Result<u64> { Ok(fs::metadata(point.join(name))?.ino()) };
    ensure_eq(by_id(ino("dir/deep")?)?, shown(point.join("dir/deep")), "a path by its id")?;
    ensure_eq(by_id(ino("shared")?)?, shown(point.join("shared")), "its name inside only")?;
    ensure_eq(by_id(1)?, shown(point.clone()), "the root by its id")?;
    let (found, text) = by_id(secret)?;
    ensure!(!found && text.contains("there is none of this id"), "a file outside by its id: {text}");

    // 4. A file that is open stays usable when its name goes; a directory that is moved out is gone.
    let mut open = File::open(point.join("file"))?;
    fs::remove_file(a.join("file"))?;
    wait_until("the name is gone", || Ok(!point.join("file").exists()))?;
    let mut text = String::new();
    open.read_to_string(&mut text)?;
    ensure_eq(text, "inside".into(), "an open file without a name")?;
    fs::rename(a.join("dir"), other.join("dir"))?;
    wait_until("the directory is gone", || Ok(fs::metadata(point.join("dir/deep")).is_err()))?;
    ensure!(fs::read_to_string(point.join("shared"))? == "both", "the rest stays");

    // 5. By handles, which another mount gives for files outside.
    let [outside, shared, inside] = [other.join("secret"), other.join("shared"), a.join("theirs")];
    let taken = handles::take(&[&outside, &shared, &inside, &other, &cluster.mount])?;
    let got = handles::open(&point, &taken)?;
    let is = |text: &str| text.to_owned();
    ensure_eq(
        got[..4].to_vec(),
        vec![is("ESTALE"), is("both"), is("new"), is("ESTALE")],
        "files by handles",
    )?;
    ensure!(got[4].starts_with(&format!("{} ", point.display())), "the root by its handle: {}", got[4]);

    // 6. Another root ends the session, and the mount goes on there. Bytes of a file outside of it are out of reach, though it is open.
    //    Another client goes on with its open file, though keys change (mgmt-K2).
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(a.join("large"), &large)?;
    let direct =
        |path: PathBuf| File::options().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path);
    let theirs = direct(point.join("large"))?;
    let ours = direct(a.join("large"))?;
    let part = |file: &File, at: u64| {
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, at).map(|()| bytes == large[at as usize..][..4096])
    };
    ensure!(part(&theirs, 0)? && part(&ours, 0)?, "bytes that both may read");
    admin(&cluster, "nodemap modify site --root /projects/b")?;
    let mut at = 0;
    wait_until("the bytes of a file outside are out of reach", || {
        at += 4096;
        ensure!(part(&ours, at)?, "another client's bytes");
        Ok(part(&theirs, at).is_err())
    })?;
    wait_until("the guest sees another root", || Ok(point.join("secret").exists()))?;
    wait_until("and nothing of the former", || {
        number += 1;
        fs::write(point.join(format!("n{number}")), "x").ok();
        Ok(names(&point)
            .is_ok_and(|names| names.contains(&"secret".into()) && !names.contains(&"theirs".into())))
    })?;
    Ok(())
}

/// [SECURITY] Each treatment, as programs at a mount see it, and its end.
fn nodemaps(b: &mut Bench) -> Result<()> {
    let (cluster, certificate) = start(b)?;
    let dir = cluster.mount.join("d");
    fs::create_dir(&dir)?;
    fs::set_permissions(&dir, Permissions::from_mode(0o777))?;
    let large: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
    fs::write(dir.join("large"), &large)?;
    fs::write(dir.join("small"), "small")?;
    File::open(&dir)?.sync_all()?;

    // 1. A banned client does not mount and hears why; its mount ends to work when the map comes.
    let point = cluster.dir.join("guest");
    admin(&cluster, "nodemap add guests --node guest* --ban")?;
    let told = admin(&cluster, "nodemap test --cert client/guest7 --nid 127.0.0.1@tcp0 --uid 5")?;
    ensure!(told.contains("nodemap: guests") && told.contains("mounts:  refused"), "{told}");
    let is_told = |refused: Result<Guest, String>| match refused {
        Ok(_) => Ok(false),
        Err(text) => {
            ensure!(text.contains("the nodemap guests bans this node"), "a banned client's mount: {text}");
            Ok(true)
        }
    };
    wait_until("the servers have the map", || is_told(Guest::mount(&cluster, &certificate, point.clone())?))?;
    admin(&cluster, "nodemap modify guests --ban=false")?;
    let mut guest = None;
    wait_until("the ban has ended", || {
        guest = Guest::mount(&cluster, &certificate, point.clone())?.ok();
        Ok(guest.is_some())
    })?;
    let theirs = point.join("d");
    fs::write(theirs.join("theirs"), "x")?;
    ensure_eq(fs::read(theirs.join("large"))?.len(), large.len(), "bytes for the guest")?;
    admin(&cluster, "nodemap modify guests --ban")?;
    let mut number = 0;
    wait_until("the guest's calls fail", || {
        number += 1;
        Ok(fs::write(theirs.join(format!("n{number}")), "x").is_err())
    })?;
    ensure!(fs::read(theirs.join("large")).is_err(), "a banned client reads no content");
    drop(guest);
    ensure_eq(fs::read(dir.join("large"))?.len(), large.len(), "another client goes on")?;

    // 2. A client that may only read.
    admin(&cluster, "nodemap add readers --node host --read-only")?;
    wait_until("changes are refused", || {
        number += 1;
        Ok(File::create(dir.join(format!("n{number}")))
            .is_err_and(|e| Errno::from_io_error(&e) == Some(Errno::ROFS)))
    })?;
    ensure!(fs::read(dir.join("large"))? == large, "content for a reader");
    expect_errno(fs::write(dir.join("large"), "x"), Errno::ROFS, "a write")?;
    expect_errno(fs::remove_file(dir.join("small")), Errno::ROFS, "an unlink")?;
    expect_errno(fs::create_dir(dir.join("new")), Errno::ROFS, "a mkdir")?;
    expect_errno(fs::rename(dir.join("small"), dir.join("s")), Errno::ROFS, "a rename")?;
    expect_errno(
        fs::set_permissions(dir.join("small"), Permissions::from_mode(0o600)),
        Errno::ROFS,
        "a chmod",
    )?;
    admin(&cluster, "nodemap remove readers")?;
    wait_until("changes are taken again", || Ok(fs::write(dir.join("again"), "x").is_ok()))?;

    // 3. A squashed client: its root is an ordinary user.
    let owner = |name: &str| fs::metadata(dir.join(name)).map(|m| (m.uid(), m.gid()));
    fs::write(dir.join("of-root"), "x")?;
    fs::set_permissions(dir.join("of-root"), Permissions::from_mode(0o600))?;
    File::open(dir.join("of-root"))?.sync_all()?;
    admin(&cluster, "nodemap add squashed --node host --squash all --squash-to 7:8")?;
    wait_until("files belong to the squash user", || {
        number += 1;
        let name = format!("n{number}");
        Ok(fs::write(dir.join(&name), "x").is_ok() && owner(&name).is_ok_and(|ids| ids == (7, 8)))
    })?;
    expect_errno(chown(dir.join("small"), Some(9), None), Errno::PERM, "a chown by a squashed root")?;
    let mut text = String::new();
    let read = File::open(dir.join("of-root")).and_then(|mut file| file.read_to_string(&mut text));
    expect_errno(read, Errno::ACCESS, "another user's file")?;

    // 4. Mapped ids: the client sees its own, the file system has others.
    admin(&cluster, "nodemap modify squashed --squash none --uid-map 0:5000:100 --gid-map 0:6000:100")?;
    wait_until("ids are mapped", || {
        // A file of before stays the squash user's.
        number += 1;
        let name = format!("n{number}");
        Ok(fs::write(dir.join(&name), "x").is_ok() && owner(&name).is_ok_and(|ids| ids == (0, 0)))
    })?;
    fs::write(dir.join("mapped"), "x")?;
    File::open(dir.join("mapped"))?.sync_all()?;
    ensure_eq(owner("small")?, (7, 8), "a file whose owner no range has")?;
    let invalid = chown(dir.join("mapped"), Some(777), None);
    expect_errno(invalid, Errno::INVAL, "a chown to a user that no range has")?;
    admin(&cluster, "nodemap remove squashed")?;
    wait_until("ids are not mapped any more", || Ok(owner("mapped").is_ok_and(|ids| ids == (5000, 6000))))?;
    ensure_eq(owner("small")?, (0, 0), "root's file")?;
    let list = admin(&cluster, "nodemap list")?;
    ensure!(list.contains("guests") && !list.contains("squashed"), "{list}");
    Ok(())
}
