//! Baselines for an MDT other than ext4: a loop that reads a hash table, and a server that replies at once.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::load::{Figure, looks};

/// As large as an inode's record.
type Record = [u8; 150];

/// As many records as the tree has files.
pub struct Table(HashMap<u64, Record>);

impl Table {
    pub fn new(entries: u64) -> Table {
        Table((0..entries).map(|n| (n, [n as u8; 150])).collect())
    }

    pub fn looks(
        &self,
        threads: usize,
        time: Duration,
        seed: u64,
        stop: &AtomicBool,
    ) -> anyhow::Result<Figure> {
        looks(threads, self.0.len() as u64, (time, seed, stop), |_| {
            Ok(|n| {
                // The whole record, as a reply would contain it.
                std::hint::black_box(*self.0.get(&n).context("a record that was put is there")?);
                Ok(())
            })
        })
    }
}

/// A thread for each connection: it reads as many bytes as a request has, and writes as many as a reply has.
pub struct Echo {
    pub address: String,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Echo {
    pub fn listen() -> anyhow::Result<Echo> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let accept = move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                // The thread ends with its client.
                std::thread::spawn(move || drop(answer(stream)));
            }
        };
        Ok(Echo { address, stop, accepting: Some(std::thread::spawn(accept)) })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes up `accept`.
        let woken = TcpStream::connect(&self.address);
        if let (Ok(_), Some(accepting)) = (woken, self.accepting.take()) {
            let _ = accepting.join();
        }
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lens = [0; 8];
    stream.read_exact(&mut lens)?;
    let len = |at: usize| u32::from_le_bytes([lens[at], lens[at + 1], lens[at + 2], lens[at + 3]]) as usize;
    let (mut request, reply) = (vec![0; len(0)], vec![7; len(4)]);
    loop {
        stream.read_exact(&mut request)?;
        stream.write_all(&reply)?;
    }
}

/// One connection to an `Echo`.
pub struct Caller {
    stream: TcpStream,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Caller {
    pub fn connect(address: &str, request_bytes: usize, reply_bytes: usize) -> anyhow::Result<Caller> {
        ensure!(request_bytes > 0 && reply_bytes > 0, "a request and its reply have bytes");
        let mut stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
        stream.set_nodelay(true)?;
        let lens = [request_bytes, reply_bytes].map(|len| (len as u32).to_le_bytes());
        stream.write_all(lens.as_flattened())?;
        Ok(Caller { stream, request: vec![1; request_bytes], reply: vec![0; reply_bytes] })
    }

    pub fn call(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.request)?;
        Ok(self.stream.read_exact(&mut self.reply)?)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
