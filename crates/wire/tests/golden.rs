//! Golden bytes: made by an independent program from `docs/formats/wire.md`. If one of these fails, the wire has changed, and
//! peers of other releases will not understand it.

use types::*;
use wire::codec::Wire;
use wire::object::{Capability, Mac, Write, WriteReply};
use wire::{Header, ReplyHead, encode_reply};

const FRAME: &[&str] = &[
    "535452490100010302000180030000000400000005000000181716151413121128272625242322213837363534333231",
    "0600000007000000484746454443424158575655545352510800000060ea0000090000007600000000200000d910b671",
    "0000000000000000000000000000000000000000000000000000000000000000",
];
const WRITE: &[&str] = &[
    "100000000000000001000000020300000004000000050000000000000000b33f7100000000000102030405060708090a",
    "0b0c0d0e0f10000000000000000100000000000200000000000000000000200000000000000200000011111111222222",
    "22ffffffffffffffffffc99a3b010900000000000000",
];
const REFUSED: &[&str] = &["01000c0000006e6f2073756368206e616d6500000000000000004d00000000000000"];
const DONE: &[&str] = &["0000000000004e000000000000004d0000000000000000400000000000000300000001"];
const LAYOUT: &[&str] = &[
    "07000000020000000000100000000000000001000100000003000000010000000100000000000000ffffffffffffffff",
    "0000100002000000030000000400000000000000",
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn write() -> Write {
    Write {
        cap: Capability {
            fid: Fid(16),
            generation: Generation(1),
            rights: 2,
            lease_epoch: 3,
            lease_counter: 4,
            session: SessionId(5),
            expiry_sec: 1_900_000_000,
            mac: Mac(std::array::from_fn(|i| i as u8)),
        },
        object: ObjectId { fid: Fid(16), generation: Generation(1), component: 0, stripe: 2, snapshot: 0 },
        offset: 8192,
        crcs: vec![0x1111_1111, 0x2222_2222],
        mtime: Time::new(-1, 999_999_999),
        granted: true,
        lock: 9,
    }
}

fn header() -> Header {
    Header {
        call: 0x0301,
        flags: 2,
        features: 0x8001,
        fs: FsId(3),
        target: TargetId(4),
        epoch: Epoch(5),
        source: NodeId(0x1112_1314_1516_1718),
        destination: NodeId(0x2122_2324_2526_2728),
        session: SessionId(0x3132_3334_3536_3738),
        slot: 6,
        sequence: 7,
        request: 0x4142_4344_4546_4748,
        trace: 0x5152_5354_5556_5758,
        incarnation: Incarnation(8),
        ms_left: 60_000,
        job_tag: 9,
        body_len: write().to_bytes().len() as u32,
        bulk_len: 8192,
    }
}

#[test]
fn the_frame() {
    let body = write().to_bytes();
    let bytes = header().encode(&body);
    assert_eq!(hex(&bytes), FRAME.concat());
    assert_eq!(Header::decode(&bytes), Ok(header()));
    assert_eq!(Header::verify(&bytes, &body), Ok(()));
}

#[test]
fn every_flipped_bit_of_a_frame_is_noticed() {
    let body = write().to_bytes();
    let good = header().encode(&body);
    let is_good = |h: &[u8; wire::HEADER_LEN], body: &[u8]| {
        Header::decode(h)
            .is_ok_and(|head| head.body_len as usize == body.len() && Header::verify(h, body).is_ok())
    };
    assert!(is_good(&good, &body));
    for bit in 0..good.len() * 8 {
        let mut bytes = good;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_good(&bytes, &body), "bit {bit} of the header");
    }
    for bit in 0..body.len() * 8 {
        let mut bytes = body.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_good(&good, &bytes), "bit {bit} of the body");
    }
}

#[test]
fn a_request() {
    assert_eq!(hex(&write().to_bytes()), WRITE.concat());
    assert_eq!(Write::from_bytes(&write().to_bytes()), Ok(write()));
}

#[test]
fn replies() {
    let done = ReplyHead::done(Seq(78), Seq(77));
    assert_eq!(
        hex(&encode_reply(&done, Some(&WriteReply { len: 16_384, pages: 3, granted: true }))),
        DONE.concat()
    );
    let fault = Fault::new(Code::NotFound, "no such name");
    let refused = encode_reply(&ReplyHead::refused(&fault, Seq(77)), None::<&WriteReply>);
    assert_eq!(hex(&refused), REFUSED.concat());
    let (_, said) = wire::decode_reply::<WriteReply>(&refused).expect("well formed");
    assert_eq!(said, Err(fault));
}

#[test]
fn a_layout() {
    let layout = Layout {
        generation: Generation(7),
        components: vec![
            Component { end: 1 << 20, stripe_size: 65_536, mirrors: vec![MirrorId(3)], written: vec![1] },
            Component {
                end: u64::MAX,
                stripe_size: 1 << 20,
                mirrors: vec![MirrorId(3), MirrorId(4)],
                written: vec![],
            },
        ],
    };
    assert_eq!(hex(&layout.to_bytes()), LAYOUT.concat());
    assert_eq!(Layout::from_bytes(&layout.to_bytes()), Ok(layout));
}
