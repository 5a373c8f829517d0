//! The network's limit: TCP over this machine's loopback, where the measured mount uses it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

const CHUNK_BYTES: usize = 256 << 10;
/// A peer that is silent for so long has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// May the loopback stand for the way to the servers? Else the reason.
pub fn wanted(file_system: &str, has_hosts: bool) -> Result<(), String> {
    let Some(server) = super::place::server_of(file_system) else {
        return Err("the mount uses no network".into());
    };
    if has_hosts {
        return Err("workers are on hosts: `stria net ping` measures the way from each".into());
    }
    match is_here(&server) {
        true => Ok(()),
        false => {
            Err(format!("the server {server} is another machine: `stria net ping` measures the way to it"))
        }
    }
}

/// An address of this machine is one that a socket can be bound to.
fn is_here(server: &str) -> bool {
    let Ok(addresses) = (server, 0).to_socket_addrs() else { return false };
    addresses.into_iter().any(|address| UdpSocket::bind(address).is_ok())
}

/// Bytes per second over all streams, and the median of a round trip in microseconds.
pub fn measure(time: Duration) -> io::Result<(f64, f64)> {
    // Sender and receiver are two threads, so two processors carry a stream.
    let streams = (crate::system::cpus() / 2).clamp(1, 8);
    let rates = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..streams).map(|_| scope.spawn(|| stream(time))).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a sender ended early"))));
        ended.sum::<io::Result<f64>>()
    })?;
    Ok((rates, round_trip_us(time / 4)?))
}

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    for end in [&near, &far] {
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(PATIENCE))?;
        end.set_write_timeout(Some(PATIENCE))?;
    }
    Ok((near, far))
}

fn stream(time: Duration) -> io::Result<f64> {
    let (mut near, mut far) = pair()?;
    let received = std::thread::spawn(move || -> io::Result<u64> {
        let (mut chunk, mut all) = (vec![0_u8; CHUNK_BYTES], 0_u64);
        loop {
            match far.read(&mut chunk)? {
                0 => return Ok(all),
                n => all += n as u64,
            }
        }
    });
    let (chunk, begun) = (vec![1_u8; CHUNK_BYTES], Instant::now());
    while begun.elapsed() < time {
        near.write_all(&chunk)?;
    }
    drop(near);
    let bytes = received.join().map_err(|_| io::Error::other("a receiver ended early"))??;
    Ok(bytes as f64 / begun.elapsed().as_secs_f64())
}

fn round_trip_us(time: Duration) -> io::Result<f64> {
    let (mut near, mut far) = pair()?;
    let echo = std::thread::spawn(move || -> io::Result<()> {
        let mut byte = [0_u8; 1];
        while far.read(&mut byte)? > 0 {
            far.write_all(&byte)?;
        }
        Ok(())
    });
    let (begun, mut times) = (Instant::now(), Vec::new());
    while times.is_empty() || begun.elapsed() < time {
        let sent = Instant::now();
        near.write_all(&[1])?;
        near.read_exact(&mut [0_u8; 1])?;
        times.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    drop(near);
    echo.join().map_err(|_| io::Error::other("the echo ended early"))??;
    times.sort_by(f64::total_cmp);
    Ok(crate::stats::median(&times))
}
