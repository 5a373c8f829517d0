//! Randomness for identities and keys.

use std::fs::File;
use std::io::Read;

use types::{Code, Fault, Uuid};

const SOURCE: &str = "/dev/urandom";

/// A random uuid, version 4 (RFC 9562): 122 random bits.
pub fn uuid() -> Result<Uuid, Fault> {
    let mut b = bytes()?;
    b[6] = b[6] & 0x0f | 0x40;
    b[8] = b[8] & 0x3f | 0x80;
    Ok(Uuid(b))
}

/// A key of 128 random bits.
pub fn secret() -> Result<Uuid, Fault> {
    Ok(Uuid(bytes()?))
}

fn bytes() -> Result<[u8; 16], Fault> {
    let mut b = [0; 16];
    let read = File::open(SOURCE).and_then(|mut f| f.read_exact(&mut b));
    read.map_err(|e| Fault::new(Code::Io, format!("{SOURCE} gives no randomness: {e}")))?;
    Ok(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_differ_and_say_their_version() {
        let (a, b) = (uuid().expect("random"), uuid().expect("random"));
        assert_ne!(a, b);
        let text = a.to_string();
        assert_eq!(&text[14..15], "4", "{text}");
        assert!("89ab".contains(&text[19..20]), "{text}");
        assert_ne!(secret().expect("random"), secret().expect("random"));
    }
}
