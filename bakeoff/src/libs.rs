//! The libraries, each as a `Store`.

use std::path::Path;

use crate::store::{RawLook, Store};

#[cfg(feature = "redb")]
pub mod redb_side {
    use super::*;
    use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};

    const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

    pub struct Redb(Database);

    impl Store for Redb {
        type Txn<'a> = ReadOnlyTable<&'static [u8], &'static [u8]>;

        fn open(dir: &Path, cache_bytes: u64) -> Redb {
            let file = dir.join("redb");
            let db =
                Database::builder().set_cache_size(cache_bytes as usize).create(file).expect("a database");
            let txn = db.begin_write().expect("the writer");
            txn.open_table(RECORDS).expect("a table");
            txn.commit().expect("a commit");
            Redb(db)
        }
        fn txn(&self) -> Self::Txn<'_> {
            self.0.begin_read().expect("a reader").open_table(RECORDS).expect("a table")
        }
        fn commit(&self, changes: &mut dyn Iterator<Item = (&[u8], Option<&[u8]>)>) {
            let mut txn = self.0.begin_write().expect("the writer");
            txn.set_durability(Durability::None).expect("allowed");
            {
                let mut table = txn.open_table(RECORDS).expect("a table");
                for (key, value) in changes {
                    match value {
                        Some(value) => drop(table.insert(key, value).expect("an insert")),
                        None => drop(table.remove(key).expect("a removal")),
                    }
                }
            }
            txn.commit().expect("a commit");
        }
        fn persist(&self) {
            self.0.begin_write().expect("the writer").commit().expect("a durable commit");
        }
    }

    impl RawLook for ReadOnlyTable<&'static [u8], &'static [u8]> {
        fn get(&self, key: &[u8], f: &mut dyn FnMut(&[u8])) {
            use redb::ReadableTable;
            if let Some(value) = ReadableTable::get(self, key).expect("a read") {
                f(value.value());
            }
        }
        fn range(&self, from: &[u8], to: &[u8], f: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
            for record in ReadOnlyTable::range::<&[u8]>(self, from..to).expect("a range") {
                let (key, value) = record.expect("a record");
                if !f(key.value(), value.value()) {
                    return;
                }
            }
        }
    }
}

#[cfg(feature = "heed")]
pub mod heed_side {
    use super::*;
    use std::ops::Bound;
    use std::sync::OnceLock;

    use heed::types::Bytes;
    use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithoutTls};

    /// Each commit flushes data and not the page that names it (NOMETASYNC): the last one may be lost, and nothing else.
    pub struct Lmdb {
        env: &'static Env<WithoutTls>,
        records: Database<'static, Bytes, Bytes>,
    }

    impl Store for Lmdb {
        type Txn<'a> = (RoTxn<'a, WithoutTls>, Database<'static, Bytes, Bytes>);

        fn open(dir: &Path, _: u64) -> Lmdb {
            let mut options = EnvOpenOptions::new().read_txn_without_tls();
            options.map_size(24 << 30).max_readers(1024);
            let flags = EnvFlags::NO_META_SYNC | EnvFlags::NO_READ_AHEAD;
            // One life after the other goes on with the same environment: it cannot be opened twice in a process.
            static ENV: OnceLock<Env<WithoutTls>> = OnceLock::new();
            // SAFETY: nobody else has the file.
            let env = ENV.get_or_init(|| unsafe {
                options.flags(flags);
                options.open(dir).expect("an environment")
            });
            let txn = env.write_txn().expect("the writer");
            let made = env.create_databases_and_commit(txn, |opener, txn| {
                let records = opener.create_database(txn, None)?;
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(records))
            });
            Lmdb { env, records: made.expect("a database").unwrap_commit() }
        }
        fn txn(&self) -> Self::Txn<'_> {
            (self.env.read_txn().expect("a reader"), self.records)
        }
        fn commit(&self, changes: &mut dyn Iterator<Item = (&[u8], Option<&[u8]>)>) {
            let mut txn = self.env.write_txn().expect("the writer");
            for (key, value) in changes {
                match value {
                    Some(value) => self.records.put(&mut txn, key, value).expect("a put"),
                    None => drop(self.records.delete(&mut txn, key).expect("a removal")),
                }
            }
            txn.commit().expect("a commit");
        }
        fn persist(&self) {
            self.env.force_sync().expect("a sync");
        }
    }

    impl RawLook for (RoTxn<'_, WithoutTls>, Database<'static, Bytes, Bytes>) {
        fn get(&self, key: &[u8], f: &mut dyn FnMut(&[u8])) {
            if let Some(value) = self.1.get(&self.0, key).expect("a read") {
                f(value);
            }
        }
        fn range(&self, from: &[u8], to: &[u8], f: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
            // It has no empty keys.
            let begin = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
            for record in self.1.range(&self.0, &(begin, Bound::Excluded(to))).expect("a range") {
                let (key, value) = record.expect("a record");
                if !f(key, value) {
                    return;
                }
            }
        }
    }
}

#[cfg(feature = "fjall")]
pub mod fjall_side {
    use super::*;
    use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};

    pub struct Fjall {
        db: Database,
        records: Keyspace,
    }

    impl Store for Fjall {
        type Txn<'a> = (Snapshot, &'a Keyspace);

        fn open(dir: &Path, cache_bytes: u64) -> Fjall {
            let builder = Database::builder(dir.join("fjall")).cache_size(cache_bytes);
            let db = builder.manual_journal_persist(true).open().expect("a database");
            let options = || KeyspaceCreateOptions::default().expect_point_read_hits(true);
            let records = db.keyspace("records", options).expect("a keyspace");
            Fjall { db, records }
        }
        fn txn(&self) -> Self::Txn<'_> {
            (self.db.snapshot(), &self.records)
        }
        fn commit(&self, changes: &mut dyn Iterator<Item = (&[u8], Option<&[u8]>)>) {
            let mut batch = self.db.batch();
            for (key, value) in changes {
                match value {
                    Some(value) => batch.insert(&self.records, key, value),
                    None => batch.remove(&self.records, key),
                }
            }
            batch.commit().expect("a commit");
        }
        fn persist(&self) {
            self.db.persist(PersistMode::SyncAll).expect("a sync");
        }
    }

    impl RawLook for (Snapshot, &Keyspace) {
        fn get(&self, key: &[u8], f: &mut dyn FnMut(&[u8])) {
            if let Some(value) = Readable::get(&self.0, self.1, key).expect("a read") {
                f(&value);
            }
        }
        fn range(&self, from: &[u8], to: &[u8], f: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
            for record in Readable::range(&self.0, self.1, from..to) {
                let (key, value) = record.into_inner().expect("a record");
                if !f(&key, &value) {
                    return;
                }
            }
        }
    }
}

#[cfg(feature = "rocksdb")]
pub mod rocks_side {
    use super::*;
    use rocksdb::{
        BlockBasedOptions, Cache, DB, DBCompressionType, Direction, IteratorMode, Options, ReadOptions,
        WriteBatch, WriteOptions,
    };

    pub struct Rocks(DB);

    impl Store for Rocks {
        type Txn<'a> = rocksdb::Snapshot<'a>;

        fn open(dir: &Path, cache_bytes: u64) -> Rocks {
            let mut table = BlockBasedOptions::default();
            table.set_block_cache(&Cache::new_lru_cache(cache_bytes as usize));
            table.set_bloom_filter(10.0, false);
            table.set_cache_index_and_filter_blocks(true);
            let mut options = Options::default();
            options.create_if_missing(true);
            options.set_compression_type(DBCompressionType::None);
            options.set_block_based_table_factory(&table);
            options.set_write_buffer_size(128 << 20);
            options.increase_parallelism(2);
            Rocks(DB::open(&options, dir.join("rocks")).expect("a database"))
        }
        fn txn(&self) -> Self::Txn<'_> {
            self.0.snapshot()
        }
        fn commit(&self, changes: &mut dyn Iterator<Item = (&[u8], Option<&[u8]>)>) {
            let mut batch = WriteBatch::default();
            for (key, value) in changes {
                match value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                }
            }
            let mut options = WriteOptions::default();
            options.disable_wal(true);
            self.0.write_opt(batch, &options).expect("a write");
        }
        fn persist(&self) {
            self.0.flush().expect("a flush");
        }
    }

    impl RawLook for rocksdb::Snapshot<'_> {
        fn get(&self, key: &[u8], f: &mut dyn FnMut(&[u8])) {
            if let Some(value) = self.get_pinned(key).expect("a read") {
                f(&value);
            }
        }
        fn range(&self, from: &[u8], to: &[u8], f: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
            let mut options = ReadOptions::default();
            options.set_iterate_upper_bound(to);
            for record in self.iterator_opt(IteratorMode::From(from, Direction::Forward), options) {
                let (key, value) = record.expect("a record");
                if !f(&key, &value) {
                    return;
                }
            }
        }
    }
}
