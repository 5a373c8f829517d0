//! A cluster whose processes have certificates: it works like another one, and takes in no process without one.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use testkit::{Cluster, Shape, Wiring};

use super::sys::ensure_eq;
use super::{Bench, Needs, Test};

pub const OWN: &[(Needs, Test)] =
    &[(Needs::Only(Wiring::Tcp), ("tls::a_cluster_with_certificates_takes_in_no_other_process", certified))];

/// A command's exit code and words.
fn run(bin: &Path, args: &[&str], tls: &Path) -> Result<(i32, String)> {
    let out = Command::new(bin).args(args).env("STRIA_TLS", tls).output()?;
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    Ok((out.status.code().unwrap_or(-1), text))
}

fn certified(b: &mut Bench) -> Result<()> {
    let parent = b.cluster.dir.parent().context("a cluster has a parent")?.to_path_buf();
    let shape = Shape { wiring: Wiring::Tcp, osts: 2, ost_size: "1G".into(), tls: true };
    let cluster = Cluster::start(b.cluster.bin(), &parent, shape)?;
    let (bin, mgs) = (cluster.bin().to_path_buf(), cluster.mgs());
    let folder = |role| cluster.certificate(role).context("it has certificates");
    let (admin, client) = (folder(pki::Role::Admin)?, folder(pki::Role::Client)?);

    // 1. Names, small content and large content.
    let dir = cluster.mount.join("d");
    fs::create_dir(&dir)?;
    for n in 0..50 {
        fs::write(dir.join(n.to_string()), vec![n as u8; n * 997])?;
    }
    let large: Vec<u8> = (0..9_000_017u32).map(|n| ((n * 7) >> 3) as u8).collect();
    fs::write(dir.join("large"), &large)?;
    ensure!(fs::read(dir.join("large"))? == large, "content comes back");
    ensure_eq(fs::read_dir(&dir)?.count(), 51, "names")?;

    // 2. A command with an administrator's certificate, and one without any.
    let status = ["status", "--mgs", &*mgs];
    let (code, text) = run(&bin, &status, &admin)?;
    ensure!(code == 0, "status as administrator: {code}: {text}");
    let (code, text) = run(&bin, &status, Path::new("off"))?;
    ensure!(code != 0 && text.contains("does not answer"), "status without a certificate: {code}: {text}");

    // 3. A client's certificate registers no target.
    let device = cluster.dir.join("stranger.img");
    let config = cluster.dir.join("stranger.toml");
    let text = format!(
        "mgs = [\"{mgs}\"]\nfsname = \"stria\"\ndevices = [\"{}\"]\nsize = \"1G\"\ntls = \"{}\"\n",
        device.display(),
        client.display()
    );
    fs::write(&config, text)?;
    let config = config.to_str().context("a path of text")?;
    let (code, text) = run(&bin, &["oss", "--config", config, "--format"], &client)?;
    ensure!(code != 0 && text.contains("may not register"), "a client as a server: {code}: {text}");

    // 4. The cluster map is changed by administrators only.
    let remove = ["target", "remove", "stria-OST0001", "--dry-run", "--mgs", &*mgs];
    let create = ["fs", "create", "strange", "--mgs", &*mgs];
    for folder in [&client, &cluster.certificate(pki::Role::Server).context("it has certificates")?] {
        for words in [&remove[..], &create] {
            let (code, text) = run(&bin, words, folder)?;
            ensure!(code == 1 && text.contains("may not change the cluster"), "{words:?}: {code}: {text}");
        }
    }
    let (code, text) = run(&bin, &remove, &admin)?;
    ensure!(code == 1 && text.contains("is up; stop its server first"), "as administrator: {code}: {text}");

    // 5. Revoked, the mount loses its connections, and a file that stays open is an error soon. The servers look for the list each second.
    let file = fs::File::open(dir.join("large"))?;
    let mut authority = pki::Authority::open(&cluster.dir.join("ca"))?;
    let client = Some(pki::Role::Client);
    authority.revoke("host", client, pki::Reason::KeyCompromise, SystemTime::now())?;
    let until = Instant::now() + Duration::from_secs(20);
    let said = |log: &str| -> Result<bool> {
        Ok(fs::read_to_string(cluster.dir.join(log))?.contains("refused: its certificate is refused"))
    };
    while !(said("mds.log")? && said("oss0.log")?) {
        ensure!(Instant::now() < until, "the servers did not close a revoked client's connections");
        // So that it has connections to all.
        let (mut byte, file) = ([0], &file);
        _ = file.read_at(&mut byte, 0);
        std::thread::sleep(Duration::from_millis(200));
    }
    let (code, text) = run(&bin, &status, &admin)?;
    ensure!(code == 0, "others are not disturbed: {code}: {text}");
    Ok(())
}
