//! Several management services over one etcd: the leading one is lost, and then etcd's quorum, while a client works.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use testkit::etcd::{Etcd, is_installed};
use testkit::{Cluster, Role, Shape, Wiring};

use super::json::SCHEMAS;
use super::revoke::Work;
use super::schema::Schemas;
use super::semantics::wait_until;
use super::sys::ensure_eq;
use super::{Bench, Needs, Test, skip};

pub const OWN: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Tcp), ("mgs::a_lost_leader_is_replaced_and_a_lost_quorum_stops_changes_only", lost)),
    (Needs::Only(Wiring::Tcp), ("mgs::a_lost_map_is_made_from_the_superblocks_of_targets", rebuilt)),
];

const SERVICES: [Role; 2] = [Role::Mgs, Role::SecondMgs];

/// The states of the management services, as `stria status` tells them.
fn states(cluster: &Cluster, schemas: &Schemas) -> Result<Vec<String>> {
    let (_, text) = cluster.stria(&["status", "-j", "--mgs", &cluster.mgs_all().join(",")])?;
    let json = text.find('[').map_or("", |at| &text[at..]);
    // Lines of stderr may follow.
    let value = serde_json::Deserializer::from_str(json).into_iter::<serde_json::Value>().next();
    let value = value.with_context(|| text.clone())?.with_context(|| text.clone())?;
    schemas.check("stria-status.json", &value)?;
    let all = value[0]["management"].as_array().context("no management services")?;
    Ok(all.iter().map(|one| one["state"].as_str().unwrap_or_default().to_owned()).collect())
}

fn leader(cluster: &Cluster, schemas: &Schemas) -> Result<usize> {
    let states = states(cluster, schemas)?;
    states.iter().position(|state| state == "leads").with_context(|| format!("none leads: {states:?}"))
}

/// Waits for the states.
fn wait_states(cluster: &Cluster, schemas: &Schemas, want: [&str; 2]) -> Result<()> {
    let mut last = vec![];
    let waited = wait_until("the states of the management services", || {
        last = states(cluster, schemas)?;
        Ok(last == want)
    });
    waited.with_context(|| format!("wanted {want:?}, found {last:?}"))
}

/// [S-management] Management services are lost and come back while a client writes, flushes and reads back without an error.
fn lost(b: &mut Bench) -> Result<()> {
    if !is_installed("suite mgs") {
        return skip("etcd is not installed (package etcd-server)");
    }
    let schemas = Schemas::read(Path::new(SCHEMAS)).context("run from the root of the checkout")?;
    let mut etcd = Etcd::start(3);
    let parent = b.cluster.dir.parent().context("a cluster has a parent")?.to_path_buf();
    let shape =
        Shape { wiring: Wiring::Tcp, osts: 2, ost_size: "1G".into(), tls: true, etcd: etcd.endpoints() };
    let mut cluster = Cluster::start(b.cluster.bin(), &parent, shape)?;
    let mut work = Work::start(cluster.mount.clone());
    // 1. The leading one is killed. The other leads, and takes a change.
    let mut none = None;
    let waited = wait_until("one leads", || {
        none = leader(&cluster, &schemas).err();
        Ok(none.is_none())
    });
    waited.with_context(|| format!("{none:?}"))?;
    let first = leader(&cluster, &schemas)?;
    // A new name for each try: an earlier one may have been carried out though its answer was lost.
    let mut tries = 0;
    let mut change = |cluster: &Cluster| {
        tries += 1;
        cluster.stria(&["fs", "create", &format!("new{tries}"), "--mgs", &cluster.mgs_all().join(",")])
    };
    let begin = Instant::now();
    cluster.kill(SERVICES[first])?;
    wait_until("the other one takes a change", || Ok(change(&cluster)?.0 == 0))?;
    println!("       another management service took a change after {:.1} s", begin.elapsed().as_secs_f64());
    work.goes_on("the loss of the leading management service")?;
    // 2. A server that starts now registers, and serves.
    cluster.terminate(Role::Oss(0), std::time::Duration::from_secs(20))?;
    cluster.start_role(Role::Oss(0))?;
    work.goes_on("a restart of a server under the other management service")?;
    let want = |leads: usize, other| if leads == 0 { ["leads", other] } else { [other, "leads"] };
    wait_states(&cluster, &schemas, want(1 - first, "silent"))?;
    cluster.start_role(SERVICES[first])?;
    wait_states(&cluster, &schemas, want(1 - first, "follows"))?;
    // 3. Two of three members of etcd are lost: the map stays as it is, and the client works on.
    etcd.kill(1);
    etcd.kill(2);
    wait_states(&cluster, &schemas, ["no quorum", "no quorum"])?;
    let (code, text) = change(&cluster)?;
    ensure!(code != 0 && text.contains("no quorum"), "a change without quorum: {code}: {text}");
    work.goes_on("the loss of etcd's quorum")?;
    // 4. They come back.
    etcd.restart(1);
    etcd.restart(2);
    wait_until("a change is taken again", || Ok(change(&cluster)?.0 == 0))?;
    let states = states(&cluster, &schemas)?;
    ensure!(states.iter().any(|state| state == "leads"), "{states:?}");
    work.goes_on("the return of etcd's quorum")?;
    work.end()?;
    let (code, text) =
        cluster.stria(&["fsck", "--mgs", &format!("{}:/stria", cluster.mgs_all().join(","))])?;
    ensure_eq(code, 0, &format!("fsck: {text}"))?;
    cluster.stop()
}

/// The map is lost with all its copies. It is made anew from the targets, which then have all content.
fn rebuilt(b: &mut Bench) -> Result<()> {
    let parent = b.cluster.dir.parent().context("a cluster has a parent")?.to_path_buf();
    let shape = Shape { wiring: Wiring::Tcp, osts: 2, ost_size: "1G".into(), tls: true, etcd: vec![] };
    let mut cluster = Cluster::start(b.cluster.bin(), &parent, shape)?;
    let content = |n: u8| vec![n; 1 << 20];
    for n in 0..8 {
        fs::write(cluster.mount.join(format!("f{n}")), content(n))?;
    }
    let path = |name: &str| cluster.dir.join(name).display().to_string();
    let [facts, config] = ["facts.json", "mgs.toml"].map(path);
    let images = ["mdt0.img", "ost0.img", "ost1.img"].map(path);
    let show: Vec<&str> = ["target", "show"].into_iter().chain(images.iter().map(String::as_str)).collect();
    // Servers run still.
    let (code, text) = cluster.stria(&show)?;
    ensure_eq(code, 0, &format!("target show: {text}"))?;
    ensure_eq(text.matches("\"in_use\": true").count(), images.len(), &text)?;
    cluster.stop()?;
    fs::rename(cluster.dir.join("mgs"), cluster.dir.join("mgs.lost"))?;
    // Without the first OST there is a gap.
    let mut lines: serde_json::Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    lines.as_array_mut().context("a list")?.remove(1);
    fs::write(&facts, lines.to_string())?;
    let (code, refused) = cluster.stria(&["mgs", "rebuild", "--config", &config, &facts])?;
    ensure!(code == 1 && refused.contains("no facts of stria-OST0000"), "{code}: {refused}");
    fs::write(&facts, text)?;
    let (code, text) = cluster.stria(&["mgs", "rebuild", "--config", &config, &facts, "--dry-run"])?;
    ensure!(
        code == 1 && text.contains("stria-OST0001") && text.contains("nothing was written"),
        "{code}: {text}"
    );
    let (code, text) = cluster.stria(&["mgs", "rebuild", "--config", &config, &facts])?;
    ensure_eq(code, 0, &format!("mgs rebuild: {text}"))?;
    let (code, text) = cluster.stria(&["mgs", "rebuild", "--config", &config, &facts])?;
    ensure!(code != 0 && text.contains("a cluster map is there already"), "{code}: {text}");
    cluster.start_all()?;
    for n in 0..8 {
        let found = fs::read(cluster.mount.join(format!("f{n}")))?;
        ensure!(found == content(n), "content of f{n}");
    }
    fs::write(cluster.mount.join("new"), content(9))?;
    ensure!(fs::read(cluster.mount.join("new"))? == content(9), "content of a new file");
    let (code, text) = cluster.stria(&["fsck", "--mgs", &format!("{}:/stria", cluster.mgs())])?;
    ensure_eq(code, 0, &format!("fsck: {text}"))?;
    cluster.stop()
}
