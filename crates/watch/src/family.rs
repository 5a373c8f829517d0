//! The metrics that there are: name, kind, meaning and labels. `docs/metrics.md` has a row for each.

/// The kind of a metric, as Prometheus has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, from the start of the process on. Its name ends with `_total`.
    Counter,
    Gauge,
    /// Counts by upper bounds, with sum and count.
    Histogram,
}

/// All samples of one name.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Without `_total`.
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    pub labels: &'static [&'static str],
}

impl Family {
    /// The name as a reader of the page sees it.
    pub fn shown(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge | Kind::Histogram => self.name.to_owned(),
        }
    }
}

macro_rules! families {
    ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub static $id: Family =
                Family { name: $name, kind: Kind::$kind, help: $help, labels: &[$($label),*] };
        )*
        /// Every family, in the order of the page.
        pub static ALL: &[&Family] = &[$(&$id),*];
    };
}

families! {
    BUILD = Gauge "stria_build" ["version", "role"] "Always 1; the labels tell the release and the role of the process";
    CPU = Counter "process_cpu_seconds" [] "Processor time of the process, user and system";
    MEMORY = Gauge "process_resident_memory_bytes" [] "Memory of the process that is resident";
    FILES = Gauge "process_open_fds" [] "Open file descriptors";
    FILES_MAX = Gauge "process_max_fds" [] "Most file descriptors that the process may have";
    THREADS = Gauge "process_threads" [] "Threads";
    START = Gauge "process_start_time_seconds" [] "Start of the process, seconds since 1970";

    REQUESTS = Histogram "stria_request_seconds" ["target", "call"] "Requests that a target served, by the time until the answer";
    ERRORS = Counter "stria_request_errors" ["target", "call"] "Requests that were answered with an error";
    BYTES_IN = Counter "stria_request_received_bytes" ["target", "call"] "Bytes of requests, without heads of frames";
    BYTES_OUT = Counter "stria_request_sent_bytes" ["target", "call"] "Bytes of answers, without heads of frames";

    JOB_REQUESTS = Counter "stria_job_requests" ["target", "job", "uid"] "Requests of a job: at most 50 jobs of a target, and the sum of all others as job (others)";
    JOB_ERRORS = Counter "stria_job_errors" ["target", "job", "uid"] "Requests of a job that were answered with an error";
    JOB_READ = Counter "stria_job_read_bytes" ["target", "job", "uid"] "Bytes that a job read from a target";
    JOB_WRITTEN = Counter "stria_job_written_bytes" ["target", "job", "uid"] "Bytes that a job wrote to a target";
    JOB_BUSY = Counter "stria_job_busy_seconds" ["target", "job", "uid"] "Time that a target took for the requests of a job";

    TARGET_UP = Gauge "stria_target_serves" ["target"] "1: the target serves requests here; 0: it stands by as the other member of a mirror, or waits";
    TARGET_FAILED = Gauge "stria_target_failed" ["target"] "1: the target refuses all changes, since its medium has failed";
    CAPACITY = Gauge "stria_target_capacity_bytes" ["target"] "Space of a target";
    FREE = Gauge "stria_target_free_bytes" ["target"] "Free space of a target";
    INODES = Gauge "stria_target_files" ["target"] "Inodes of an MDT or objects of an OST: those that are there, and an estimate of those that fit beside them";
    INODES_FREE = Gauge "stria_target_free_files" ["target"] "Estimate of inodes or objects that still fit";
    SESSIONS = Gauge "stria_target_sessions" ["target"] "Clients with a session at the target";
    DAMAGE = Gauge "stria_target_damage" ["target"] "Damaged pages and objects that are known and not repaired";
    LOG_USED = Gauge "stria_target_log_used_bytes" ["target"] "Bytes in the log of a target";
    LOG_SIZE = Gauge "stria_target_log_capacity_bytes" ["target"] "Size of the log of a target";
    SEQ = Counter "stria_target_log_entries" ["target"] "Number of the last entry in the log of a target";

    DEVICE_WRITTEN = Counter "stria_device_written_bytes" ["target", "purpose"] "Bytes written to the device of an OST: data, log, checkpoint, superblock, destage";
    DEVICE_WRITES = Counter "stria_device_writes" ["target", "purpose"] "Writes to the device of an OST";
    DEVICE_READ = Counter "stria_device_read_bytes" ["target"] "Bytes read from the device of an OST";
    DEVICE_READS = Counter "stria_device_reads" ["target"] "Reads of the device of an OST";
    DEVICE_FLUSHES = Counter "stria_device_flushes" ["target"] "Flushes of the device of an OST";
    DEVICE_DISCARDED = Counter "stria_device_discarded_bytes" ["target"] "Bytes that were discarded on the device of an OST";
    USER_WRITTEN = Counter "stria_ost_written_bytes" ["target"] "Bytes that clients wrote to an OST";
    USER_READ = Counter "stria_ost_read_bytes" ["target"] "Bytes that clients read from an OST";
    SMALL_PATCHED = Counter "stria_ost_small_writes" ["target"] "Small writes that went to the log of an OST";
    OVERLAY = Gauge "stria_ost_small_write_memory_bytes" ["target"] "Small writes in memory that are not folded into pages yet";
    INDEX_MEMORY = Gauge "stria_ost_index_memory_bytes" ["target"] "Memory of an OST's index of objects";

    RECORDS = Gauge "stria_mdt_records" ["target"] "Records of an MDT";
    CACHE = Gauge "stria_mdt_cache_bytes" ["target"] "Memory of an MDT's records";
    CACHE_MAX = Gauge "stria_mdt_cache_max_bytes" ["target"] "Bound of the memory of an MDT's records";
    LEAVES_READ = Counter "stria_mdt_leaves_read" ["target"] "Leaves that an MDT brought into memory";
    LEASES = Gauge "stria_mdt_leases" ["target"] "Leases of names that clients hold";
    RECALLS = Counter "stria_mdt_recalls" ["target"] "Changes that waited until other clients had forgotten what they cached";
    RECALL_TIME = Counter "stria_mdt_recall_seconds" ["target"] "Time of all these waits";

    MIRROR_ROLE = Gauge "stria_mirror_primary" ["target"] "1: this member is the primary of its mirror";
    MIRROR_SYNC = Gauge "stria_mirror_in_sync" ["target"] "1: both members of the mirror are in sync, as this member knows it";
    MIRROR_EPOCH = Gauge "stria_mirror_epoch" ["target"] "Epoch of the mirror: each change of members or of the primary raises it";
    MIRROR_BEHIND = Gauge "stria_mirror_behind_entries" ["target"] "At a primary: log entries that the other member does not have yet";
    MIRROR_FILL = Gauge "stria_mirror_filled_ratio" ["target"] "At a primary that fills the other member: the part that is done, 0 to 1";

    PEER_FRAMES = Counter "stria_peer_frames" ["peer", "way"] "Frames to and from another host";
    PEER_BYTES = Counter "stria_peer_bytes" ["peer", "way"] "Bytes to and from another host";
    PEER_CONNECTIONS = Gauge "stria_peer_connections" ["peer"] "Open connections with another host";
    PEER_FAILURES = Counter "stria_peer_failures" ["peer"] "Connections with another host that broke or were refused";

    MOUNT_REQUESTS = Counter "stria_mount_requests" ["operation"] "Requests of the kernel to a mount, by the operation of FUSE; what the kernel answers from its cache is not among them";
    MOUNT_ERRORS = Counter "stria_mount_errors" ["operation"] "Requests that a mount answered with an error, but for names and attributes that are not there";
    MOUNT_TIME = Counter "stria_mount_request_seconds" ["operation"] "Time that a mount took for them, with all waits for servers";
    MOUNT_BYTES = Counter "stria_mount_bytes" ["operation"] "Content of reads and writes at a mount";

    MGS_LEADS = Gauge "stria_mgs_leads" [] "1: this management service leads";
    MGS_VERSION = Gauge "stria_mgs_map_version" [] "Version of the cluster map";
    MGS_TARGETS = Gauge "stria_mgs_targets" ["fs", "state"] "Targets in the cluster map, by their state as members of their mirrors";
    MGS_NODES = Gauge "stria_mgs_nodes" [] "Hosts in the cluster map";

    ROUTER_CIRCUITS = Gauge "stria_router_circuits" ["from", "to", "fs"] "Open circuits through a router";
    ROUTER_BYTES = Counter "stria_router_bytes" ["from", "to", "fs", "way"] "Bytes through a router: out from the dialler, back to it";
    ROUTER_STALLS = Counter "stria_router_stall_seconds" ["from", "to", "fs"] "Time in which a receiving end took nothing";
    ROUTER_REFUSED = Counter "stria_router_refused" [] "Circuits that a router refused";

    SCRAPE = Gauge "stria_scrape_seconds" [] "Time that this page took";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// watch-M1. `STRIA_METRICS=write` writes the table.
    #[test]
    fn the_document_has_a_row_for_each_family() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let text = std::fs::read_to_string(path).unwrap();
        let head = "| metric | kind | labels | meaning |\n|---|---|---|---|\n";
        let (before, _) = text.split_once(head).unwrap();
        let row = |family: &&Family| {
            let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            let kind = format!("{:?}", family.kind).to_lowercase();
            format!("| `{}` | {kind} | {} | {} |\n", family.shown(), labels.join(", "), family.help)
        };
        let wanted = before.to_owned() + head + &ALL.iter().map(row).collect::<String>();
        if std::env::var("STRIA_METRICS").as_deref() == Ok("write") {
            std::fs::write(path, &wanted).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            wanted,
            "STRIA_METRICS=write cargo test -p stria-watch"
        );
    }

    /// A rule about a metric that is gone never fires.
    #[test]
    fn rules_and_dashboard_name_metrics_that_there_are() {
        let known: Vec<String> = ALL.iter().map(|family| family.shown()).collect();
        for file in ["prometheus/stria.rules.yml", "grafana/stria.json"] {
            let path = format!("{}/../../packaging/{file}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let named: Vec<&str> =
                words.filter(|word| word.starts_with("stria_") || word.starts_with("process_")).collect();
            assert!(named.len() > 5, "{file} names {named:?}");
            for name in named {
                let base = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
                let is_known = known.iter().any(|known| known == name || Some(known.as_str()) == base);
                assert!(is_known, "{file}: {name} is no metric");
            }
        }
    }

    /// A call that is gone, or is written otherwise, never alerts.
    #[test]
    fn rules_name_calls_that_there_are_and_those_of_small_files() {
        let path = format!("{}/../../packaging/prometheus/stria.rules.yml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let named = text.split("call=~\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let named: Vec<&str> = named.split('|').collect();
        let known: Vec<&str> = wire::ALL_CALLS.iter().copied().flatten().map(|(_, name)| *name).collect();
        for name in &named {
            assert!(known.contains(name), "{name} is no call");
        }
        for name in ["WriteInline", "ReadInline", "Batch", "OpenRead", "CreateWith"] {
            assert!(named.contains(&name), "{name} is a call of small files");
        }
    }

    #[test]
    fn names_are_unique_and_in_base_units() {
        let mut names: Vec<_> = ALL.iter().map(|family| family.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for family in ALL {
            let is_known = family.name.starts_with("stria_") || family.name.starts_with("process_");
            assert!(is_known && !family.name.ends_with("_total"), "{}", family.name);
            let bad = ["_ms", "_us", "_kib", "_mib", "_percent"];
            assert!(!bad.iter().any(|unit| family.name.ends_with(unit)), "{}", family.name);
            assert!(!family.help.ends_with('.') && !family.help.is_empty(), "{}", family.name);
        }
    }
}
