//! Checks the JSON output of commands against the schemas of `docs/json`, and that text output has at most 100 columns.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use testkit::Wiring;

use super::schema::Schemas;
use super::semantics::wait_until;
use super::sys::ensure_eq;
use super::{Bench, Needs, Test, set_stripe};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Tcp), ("json::every_command_prints_what_its_schema_says", every_command)),
    (Needs::Only(Wiring::Tcp), ("json::tables_have_100_columns_at_most", tables)),
];

pub const SCHEMAS: &str = "docs/json";
/// Schemas of commands that need a mirror of two members: suite *pairs* checks them.
pub const OF_PAIRS: [&str; 6] = [
    "stria-mirror-resync.json",
    "stria-mirror-switch.json",
    "stria-mirror-verify.json",
    "stria-server-drain.json",
    "stria-server-rejoin.json",
    "stria-target-replace.json",
];
/// Its program follows for ever: suite *index* checks it.
const OF_INDEX: &str = "stria-index-status.json";
const COLUMNS_MAX: usize = 100;

/// Exit code and standard output; what is said beside it is shown if it fails.
fn stria(b: &Bench, line: &str) -> Result<(i32, String)> {
    let out = Command::new(b.cluster.bin())
        .args(line.split_whitespace())
        .current_dir(&b.cluster.dir)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()?;
    let code = out.status.code().unwrap_or(-1);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    ensure!(code <= 1, "{line}: exit {code}: {text}{}", String::from_utf8_lossy(&out.stderr));
    Ok((code, text))
}

/// A router of this cluster on loopback, until it is dropped.
struct Router(Child);

impl Router {
    fn start(b: &Bench, name: &str) -> Result<Router> {
        let (dir, mgs) = (b.cluster.dir.join(name), b.cluster.mgs());
        let config = b.cluster.dir.join(format!("{name}.toml"));
        let listen = "[\"127.0.0.1:0@tcp0\", \"127.0.0.1:0@tcp1\"]";
        let text = format!(
            "listen = {listen}\ndir = \"{}\"\n[[cluster]]\nmgs = [\"{mgs}\"]\ntls = \"off\"\n",
            dir.display()
        );
        fs::write(&config, text)?;
        let log = fs::File::create(b.cluster.dir.join(format!("{name}.log")))?;
        let mut command = Command::new(b.cluster.bin());
        command
            .args(["router", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let router = Router(command.spawn()?);
        wait_until("the router has its control socket", || Ok(dir.join("router.sock").exists()))?;
        Ok(router)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A small world on the mount: files of both kinds, a consumer, and changes for it.
fn world(b: &Bench, name: &str) -> Result<String> {
    let dir = b.dir(name)?;
    set_stripe(b, &["-c", "2", "--inline", "0"], &dir)?;
    fs::write(dir.join("wide"), vec![7; 4 << 20])?;
    fs::create_dir(dir.join("bench"))?;
    fs::write(b.cluster.mount.join(format!("{name}-small")), "inline")?;
    Ok(dir.display().to_string())
}

/// Changes of all kinds, for the changelog consumer that is registered before.
fn change(dir: &str) -> Result<()> {
    let dir = Path::new(dir);
    fs::write(dir.join("a"), "a")?;
    fs::rename(dir.join("a"), dir.join("b"))?;
    fs::set_permissions(dir.join("b"), std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    rustix::fs::setxattr(dir.join("b"), "user.x", b"1", rustix::fs::XattrFlags::empty())?;
    Ok(fs::remove_file(dir.join("b"))?)
}

/// Sets up gateways without starting them: the suite *gateways* checks the output of running ones.
fn enable_gateways(b: &Bench, mount: &str, path: &str) -> Result<()> {
    stria(b, &format!("gateway nfs enable --base gw --mount {mount} --export {path}:ro,hosts=10.0.0.0/8"))?;
    stria(b, &format!("gateway smb enable --base gw --mount {mount} --share a={path}:guest")).map(drop)
}

/// The schema of a command line: its first words that are no options or paths.
fn schema_of(line: &str) -> Result<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let with_verb = [
        "bench",
        "changelog",
        "client",
        "cluster",
        "damage",
        "fs",
        "lease",
        "mdt",
        "mirror",
        "mkfs",
        "net",
        "node",
        "nodemap",
        "ost",
        "route",
        "router",
        "scrub",
        "server",
        "target",
        "task",
    ];
    let first = *words.first().context("a command")?;
    let names = match first {
        "gateway" => &words[..3],
        _ if with_verb.contains(&first) => &words[..2],
        _ => &words[..1],
    };
    Ok(format!("stria-{}.json", names.join("-")))
}

fn every_command(b: &mut Bench) -> Result<()> {
    let schemas = Schemas::read(Path::new(SCHEMAS)).context("run from the root of the checkout")?;
    let (dir, mount) = (world(b, "json")?, b.cluster.mount.display().to_string());
    let fid = {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(format!("{dir}/wide"))?.ino()
    };
    for (file, bytes) in [("dev.img", 128u64 << 20), ("dev2.img", 128 << 20)] {
        fs::File::create(b.cluster.dir.join(file))?.set_len(bytes)?;
    }
    enable_gateways(b, &mount, "/json")?;
    stria(b, "cluster init --name json --node a --dir ca")?;
    stria(b, "cluster revoke a --role admin --dir ca")?;
    stria(b, &format!("route add tcp9 --via 127.0.0.1:7020@tcp8 --mount {mount}"))?;
    stria(b, &format!("nodemap add json --node none --ban --uid-map 1:2:3 --mount {mount}"))?;
    let _router = Router::start(b, "router")?;
    let quick = "--bytes 8M --files 20 --workers 2 --repeats 1 --budget 20 --quiet";
    let mgs = b.cluster.mgs();
    let (_, clients) = stria(b, &format!("client list -j {mount}"))?;
    let clients: serde_json::Value = serde_json::from_str(&clients)?;
    let session = clients[0]["session"].as_str().context("a mount has a session")?;
    let lines = format!(
        "version -j
         up --dir own --osts 1 --ost-size 256M --mdt-size 256M -j
         up --dir own -j
         status -j
         status --dir own -j
         df -j {mount}
         status -j --mgs {mgs}
         df -j --mgs {mgs}
         du -j {dir} {dir}/wide
         find -j {dir} -type f,d
         getstripe -j {mount} {dir} {dir}/wide {mount}/json-small
         id2path -j {mount} {fid}
         path2id -j {dir}/wide
         fsck -j {mount}
         damage list -j {mount}
         damage clear -j {mount}
         scrub start -j --rate 64K {mount}
         scrub pause -j {mount}
         scrub status -j {mount}
         task list -j --mount {mount}
         task pause -j drain:* --mount {mount}
         task list -j --mount {mount}
         task resume -j drain:* --mount {mount}
         list-param -j
         get-param -j * --mount {mount}
         set-param -j commit.interval=900ms --mount {mount}
         set-param -j -P resync.rate=1M --mount {mount}
         set-param -j -P -d * --mount {mount}
         scrub resume -j {mount}
         scrub stop -j {mount}
         scrub set -j --every 28d {mount}
         changelog register -j json {mount}
         changelog list -j {mount}
         changelog read -j json {mount}
         mdt stat -j {mount}
         jobstats -j {mount}
         health -j --hints
         health -j --hints --mgs {mgs}
         top --once --interval 0.3 -j {mount}
         why --interval 0.3 -j {mount}
         lease list -j {mount}
         client list -j {mount}
         client evict -j --session {session} {mount}
         waiters -j {mount}
         cluster list -j --dir ca
         target add -j --device added.img --size 1G {mount}
         target drain -j stria-OST0000 --no-move {mount}
         target undrain -j stria-OST0000 {mount}
         target remove -j stria-OST0000 --dry-run {mount}
         fs remove -j stria --dry-run {mount}
         node remove -j n1 --dry-run {mount}
         node list -j {mount}
         mirror list -j {mount}
         mirror status stria-OST0000 -j {mount}
         server balance -j {mount}
         fs create -j second {mount}
         fs list -j {mount}
         net stat -j {mount}
         net list -j --mount {mount}
         net show -j --mount {mount}
         net ping -j {mgs}
         ping -j {mgs}
         nodemap list -j --mount {mount}
         nodemap test -j --cert client/none --uid 2 --mount {mount}
         route list -j --mount {mount}
         route check -j --mount {mount}
         router stat -j --dir router
         net trace -j -n 1 --seconds 10 {mount}
         mdt backup --mount {mount} -j backup.stria
         mdt restore -j backup.stria restored.img --size 256M
         mdt bench dev.img --no-ext4 --pairs 2 --seconds 0.05 --entries 2500 --rows stat,create -j
         ost stat -j {mount}
         ost space -j {mount}
         gateway nfs list -j --base gw
         gateway smb list -j --base gw
         gateway nfs status -j --base gw
         gateway smb status -j --base gw
         ost waste -j --files 1000
         ost bench dev2.img --no-fio --pairs 2 --seconds 0.05 --soak-seconds 0.1 --rows write-4k,soak -j
         mkfs ost new.img --size 256M --fsname other -j
         mkfs mdt new2.img --size 256M --fsname other --dry-run -j
         bench list -j
         bench show quick -j --scale min
         bench validate quick -j
         bench quick {dir}/bench {quick} -j
         bench run quick --dir {dir}/bench --out result --scale min --set total=8M --set threads=2 --set files=20 --repeats 1 --quiet -j
         bench report result -j
         bench compare result result -j
         bench ior -j -np 2 -a POSIX -w -r -t 64k -b 1m -o {dir}/bench/ior
         bench mdtest -j -np 2 -d {dir}/bench/md -n 10 -F
         down --dir own --purge -j"
    );
    let mut seen = BTreeSet::new();
    for line in lines.lines().map(str::trim) {
        if line.starts_with("changelog read") {
            change(&dir)?;
        }
        let (_, text) = stria(b, line)?;
        let schema = schema_of(line)?;
        let is_lines = ["changelog read", "find"].iter().any(|lines| line.starts_with(lines));
        let values: Vec<&str> = if is_lines { text.lines().collect() } else { vec![&text] };
        ensure!(!values.is_empty(), "{line}: nothing was printed");
        for value in values {
            let value = serde_json::from_str(value).with_context(|| format!("{line}: no JSON: {value}"))?;
            schemas.check(&schema, &value).with_context(|| format!("{line}: {value}"))?;
            let may_be_empty = ["damage list", "lease list"].iter().any(|few| line.starts_with(few));
            let is_empty = value.as_array().is_some_and(Vec::is_empty) && !may_be_empty;
            ensure!(!is_empty, "{line}: the list is empty, which shows nothing of its form");
        }
        seen.insert(schema);
    }
    let is_here = |name: &&String| !OF_PAIRS.contains(&name.as_str()) && *name != OF_INDEX;
    let all: BTreeSet<String> = schemas.names().filter(is_here).cloned().collect();
    ensure_eq(seen, all, "schemas that were looked at, and those that there are")
}

fn tables(b: &mut Bench) -> Result<()> {
    let (dir, mount) = (world(b, "tables")?, b.cluster.mount.display().to_string());
    stria(b, &format!("changelog register some-consumer {mount}"))?;
    change(&dir)?;
    enable_gateways(b, &mount, "/tables")?;
    stria(b, "cluster init --name tables --node a --dir ca2")?;
    let _router = Router::start(b, "router2")?;
    fs::File::create(b.cluster.dir.join("dev3.img"))?.set_len(128 << 20)?;
    fs::File::create(b.cluster.dir.join("dev4.img"))?.set_len(128 << 20)?;
    let lines = format!(
        "status
         df {mount}
         df -h {mount}
         df -i {mount}
         damage list {mount}
         scrub status {mount}
         task list --mount {mount}
         list-param
         get-param * --mount {mount}
         changelog list {mount}
         changelog read --lustre some-consumer {mount}
         mdt stat {mount}
         jobstats {mount}
         health --hints
         jobstats --by client {mount}
         top --once --interval 0.3 {mount}
         why --interval 0.3 {mount}
         lease list {mount}
         client list {mount}
         waiters {mount}
         cluster list --dir ca2
         target remove stria-OST0000 --dry-run {mount}
         fs remove stria --dry-run {mount}
         node list {mount}
         mirror list {mount}
         mirror status stria-OST0000 {mount}
         server balance {mount}
         fs list {mount}
         net stat {mount}
         net list --mount {mount}
         net show --mount {mount}
         nodemap list --mount {mount}
         nodemap test --uid 2 --mount {mount}
         route list --mount {mount}
         router stat --dir router2
         net trace -n 3 --seconds 10 {mount}
         mdt bench dev3.img --no-ext4 --pairs 2 --seconds 0.05 --entries 2500 --rows stat,create
         ost stat {mount}
         ost space {mount}
         gateway nfs list --base gw
         gateway smb list --base gw
         ost waste --files 1000
         ost bench dev4.img --no-fio --pairs 2 --seconds 0.05 --soak-seconds 0.1 --rows write-4k,soak
         bench list
         bench show pixstor-nvme
         bench quick {dir}/bench --bytes 8M --files 20 --workers 2 --repeats 1 --budget 20 --quiet --out tables
         bench report tables
         bench compare tables tables
         bench mdtest -np 2 -d {dir}/bench/md -n 10 -F"
    );
    // `bench ior` prints IOR's table, which is wider and which scripts read.
    let own = b.cluster.dir.display().to_string();
    let mut wide = Vec::new();
    for line in lines.lines().map(str::trim) {
        let (_, text) = stria(b, line)?;
        // How long the way to this test's files is says nothing of a table.
        let text = text.replace(&own, "/d");
        // mdtest repeats what was typed.
        let is_typed = |row: &&str| row.starts_with("Command line used: ");
        let rows = text.lines().filter(|row| !is_typed(row));
        let too_wide = rows.filter(|row| row.chars().count() > COLUMNS_MAX);
        wide.extend(too_wide.map(|row| format!("{} columns of {line}: {row}", row.chars().count())));
    }
    ensure!(wide.is_empty(), "more than {COLUMNS_MAX} columns:\n{}", wide.join("\n"));
    Ok(())
}
