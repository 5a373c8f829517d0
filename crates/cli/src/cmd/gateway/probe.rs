//! Queries an NFS server as a client does: which exports it has, and whether it can reach their directories. It speaks ONC RPC over TCP
//! (RFC 5531), MOUNT and NFS 3 (RFC 1813) and NFS 4.0 (RFC 7530), as far as these queries need.
//!
//! cli-GP1: an answer is bounded in time and size, and a malformed one is an error, not a panic: any program may listen on the port.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for each of connecting, sending and receiving.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// More than any list of exports with their hosts.
const ANSWER_BYTES_MAX: usize = 4 << 20;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const LAST_FRAGMENT: u32 = 1 << 31;

/// A status with the same meaning in NFS 3, NFS 4 and MOUNT.
pub const ACCESS: u32 = 13;

/// Whether an NFS server of this version answers.
pub fn answers(server: SocketAddr, version: u32) -> Result<()> {
    call(server, (NFS, version, 0), &[]).map(drop)
}

/// The paths that NFS 3 clients may mount.
pub fn exports(mountd: SocketAddr) -> Result<Vec<String>> {
    let answer = call(mountd, (MOUNT, 3, 5), &[])?;
    let mut at = Xdr(&answer);
    let mut paths = Vec::new();
    while at.word()? != 0 {
        paths.push(String::from_utf8_lossy(at.bytes()?).into_owned());
        while at.word()? != 0 {
            at.bytes()?;
        }
    }
    Ok(paths)
}

/// Mounts an export by NFS 3 and gets the attributes of its root: 0, or the first status that is an error.
pub fn root_by_v3(server: SocketAddr, mountd: SocketAddr, path: &str) -> Result<u32> {
    let mut ask = Vec::new();
    put_bytes(&mut ask, path.as_bytes());
    let answer = call(mountd, (MOUNT, 3, 1), &ask)?;
    let mut at = Xdr(&answer);
    let status = at.word()?;
    if status != 0 {
        return Ok(status);
    }
    let mut ask = Vec::new();
    put_bytes(&mut ask, at.bytes()?);
    let answer = call(server, (NFS, 3, 1), &ask)?;
    Xdr(&answer).word()
}

/// Looks up an export by NFS 4.0 and gets its handle: 0, or the first status that is an error.
pub fn root_by_v4(server: SocketAddr, path: &str) -> Result<u32> {
    const LOOKUP: u32 = 15;
    const PUTROOTFH: u32 = 24;
    const GETFH: u32 = 10;
    let names: Vec<&str> = path.split('/').filter(|n| !n.is_empty()).collect();
    let mut ask = Vec::new();
    // An empty tag, minor version 0, and the number of operations.
    for word in [0, 0, names.len() as u32 + 2, PUTROOTFH] {
        put_word(&mut ask, word);
    }
    for name in names {
        put_word(&mut ask, LOOKUP);
        put_bytes(&mut ask, name.as_bytes());
    }
    put_word(&mut ask, GETFH);
    let answer = call(server, (NFS, 4, 1), &ask)?;
    Xdr(&answer).word()
}

/// Sends one call as root of this host; returns the result behind the reply's header.
fn call(
    server: SocketAddr,
    (program, version, procedure): (u32, u32, u32),
    arguments: &[u8],
) -> Result<Vec<u8>> {
    const CALL: u32 = 0;
    const RPC_VERSION: u32 = 2;
    const AUTH_SYS: u32 = 1;
    let id = std::process::id();
    let mut message = Vec::new();
    for word in [id, CALL, RPC_VERSION, program, version, procedure, AUTH_SYS] {
        put_word(&mut message, word);
    }
    // Stamp, name of this machine (left empty), uid, gid, no groups; then an empty verifier.
    let credentials: Vec<u8> = [0_u32; 5].into_iter().flat_map(u32::to_be_bytes).collect();
    put_bytes(&mut message, &credentials);
    put_word(&mut message, 0);
    put_word(&mut message, 0);
    message.extend(arguments);

    let mut stream = TcpStream::connect_timeout(&server, WAIT_MAX)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))?;
    stream.write_all(&(message.len() as u32 | LAST_FRAGMENT).to_be_bytes())?;
    stream.write_all(&message)?;
    let answer = read_record(&mut stream)?;
    result_of(&answer, id).map(<[u8]>::to_vec)
}

fn read_record(stream: &mut impl Read) -> Result<Vec<u8>> {
    let mut record = Vec::new();
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        let (len, begin) = ((mark & !LAST_FRAGMENT) as usize, record.len());
        if begin + len > ANSWER_BYTES_MAX {
            return Err(strange("it is too long"));
        }
        record.resize(begin + len, 0);
        stream.read_exact(&mut record[begin..])?;
        if mark & LAST_FRAGMENT != 0 {
            return Ok(record);
        }
    }
}

fn result_of(answer: &[u8], id: u32) -> Result<&[u8]> {
    const REPLY: u32 = 1;
    let mut at = Xdr(answer);
    if (at.word()?, at.word()?) != (id, REPLY) {
        return Err(strange("it is no reply to this call"));
    }
    if at.word()? != 0 {
        return Err(strange("the call was denied"));
    }
    // The verifier.
    at.word()?;
    at.bytes()?;
    match at.word()? {
        0 => Ok(at.0),
        1 => Err(strange("it has no such program")),
        2 => Err(strange("it does not speak this version")),
        _ => Err(strange("it did not take the call")),
    }
}

fn strange(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("the answer is not NFS: {why}"))
}

fn put_word(message: &mut Vec<u8>, word: u32) {
    message.extend(word.to_be_bytes());
}
/// Length, bytes, zeros up to a multiple of four.
fn put_bytes(message: &mut Vec<u8>, bytes: &[u8]) {
    put_word(message, bytes.len() as u32);
    message.extend(bytes);
    message.resize(message.len().next_multiple_of(4), 0);
}

struct Xdr<'a>(&'a [u8]);

impl<'a> Xdr<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(|| strange("it is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }
    fn word(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes(bytes.try_into().map_err(|_| strange("it is cut off"))?))
    }
    fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.word()? as usize;
        if len > ANSWER_BYTES_MAX {
            return Err(strange("it is too long"));
        }
        Ok(&self.take(len.next_multiple_of(4))?[..len])
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that sends one of these answers to each caller, with the caller's id. It returns the requests.
    fn server(answers: Vec<Vec<u8>>) -> (SocketAddr, std::thread::JoinHandle<Vec<Vec<u8>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let call = read_record(&mut stream).unwrap();
                // The caller's id, reply, accepted, no verifier, success.
                let mut record = call[..4].to_vec();
                [1, 0, 0, 0, 0].into_iter().for_each(|w| put_word(&mut record, w));
                record.extend(answer);
                stream.write_all(&(record.len() as u32 | LAST_FRAGMENT).to_be_bytes()).unwrap();
                stream.write_all(&record).unwrap();
                asked.push(call);
            }
            asked
        });
        (address, thread)
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    #[test]
    fn exports_are_read_with_their_hosts_left_out() {
        let mut answer = words(&[1]);
        put_bytes(&mut answer, b"/a");
        put_word(&mut answer, 1);
        put_bytes(&mut answer, b"10.0.0.0/8");
        answer.extend(words(&[0, 1]));
        put_bytes(&mut answer, b"/projects");
        answer.extend(words(&[0, 0]));
        let (address, thread) = server(vec![answer]);
        assert_eq!(exports(address).unwrap(), ["/a", "/projects"]);
        let asked = thread.join().unwrap();
        assert_eq!(asked[0][4..24], words(&[0, 2, MOUNT, 3, 5]));
    }

    #[test]
    fn the_root_of_an_export_is_asked_for_by_its_handle() {
        let mut mounted = words(&[0]);
        put_bytes(&mut mounted, b"handle");
        let (address, thread) = server(vec![mounted, words(&[70])]);
        assert_eq!(root_by_v3(address, address, "/a").unwrap(), 70, "ESTALE is passed on");
        let asked = thread.join().unwrap();
        let mut handle = Vec::new();
        put_bytes(&mut handle, b"handle");
        assert!(asked[1].ends_with(&handle));
        let (address, _thread) = server(vec![words(&[ACCESS])]);
        assert_eq!(root_by_v3(address, address, "/a").unwrap(), ACCESS);
    }

    #[test]
    fn nfs_4_is_asked_for_each_name_of_the_path() {
        let (address, thread) = server(vec![words(&[0, 0])]);
        assert_eq!(root_by_v4(address, "/a/b").unwrap(), 0);
        let asked = thread.join().unwrap();
        let mut want = words(&[0, 0, 4, 24, 15]);
        put_bytes(&mut want, b"a");
        put_word(&mut want, 15);
        put_bytes(&mut want, b"b");
        put_word(&mut want, 10);
        assert!(asked[0].ends_with(&want), "{:?}", asked[0]);
    }

    #[test]
    fn answers_that_are_cut_or_foreign_are_errors() {
        for answer in [&words(&[1, 400])[..], &words(&[1, u32::MAX]), &words(&[1]), b"ab"] {
            let (address, _thread) = server(vec![answer.to_vec()]);
            assert!(exports(address).is_err(), "{answer:?}");
        }
        for record in [
            words(&[7, 1, 0, 0, 0, 0]),
            words(&[8, 1, 0, 0, 0, 1]),
            words(&[8, 1, 1]),
            words(&[8, 0]),
            vec![],
        ] {
            assert!(result_of(&record, 8).is_err(), "{record:?}");
        }
        assert!(
            read_record(&mut &(u32::MAX).to_be_bytes()[..]).is_err(),
            "more than a list of exports can be"
        );
    }
}
