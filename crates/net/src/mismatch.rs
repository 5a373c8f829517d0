//! One end speaks TLS and the other one does not: each is told so, with the next step.
//!
//! A greeting begins with a letter, and a record of TLS with its type and 3, so two bytes tell them apart.

use std::io::IoSlice;

use rustls::AlertDescription;

use crate::channel::Channel;
use crate::socket::Gone;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
/// A fatal alert of the kind that rustls itself never sends, so that the dialling end knows its meaning.
const PLAIN_HERE: [u8; 7] = [ALERT, 3, 3, 0, 2, 2, 71];
const PLAIN_ALERT: AlertDescription = AlertDescription::InsufficientSecurity;
/// Bytes of a dialling end that are read before its connection is closed. With unread ones the kernel would drop the alert.
const DRAIN_MAX: usize = 16 * 1024;

/// The dialling end has no TLS, and these are the first bytes of the answer.
pub(crate) fn check_answer(channel: &Channel, first: &[u8]) -> Result<(), Gone> {
    match !channel.is_tls() && is_record(first, ALERT) {
        true => Err(Gone::Refused(
            "the server takes connections with TLS only, and this process has no certificate: set `tls` in its configuration, or \
             STRIA_TLS, to the folder of one; `stria cluster add-node` makes it"
                .into(),
        )),
        false => Ok(()),
    }
}

/// The accepting end has no TLS, and these are the first bytes that the dialling end sent.
pub(crate) fn check_greeting(channel: &Channel, first: &[u8]) -> Result<(), Gone> {
    if channel.is_tls() || !is_record(first, HANDSHAKE) {
        return Ok(());
    }
    let (mut drained, mut bytes) = (0, [0; 1024]);
    while let Ok(Some(n)) = channel.receive_now(&mut bytes) {
        drained += n;
        if drained >= DRAIN_MAX {
            break;
        }
    }
    // An error means that the other end has gone.
    let _ = channel.send(&[IoSlice::new(&PLAIN_HERE)], false);
    Err(Gone::Refused(
        "it speaks TLS, and this server has no certificate: set `tls` in its configuration to the folder of one, or \"off\" at the other end"
            .into(),
    ))
}

/// The next step after an error of TLS; empty if it shows no end without TLS.
pub(crate) fn hint(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::AlertReceived(PLAIN_ALERT) => {
            "; the server takes no TLS, since it has no certificate: set `tls` in its configuration to the folder of one, or `tls` or \
             STRIA_TLS to \"off\" here"
        }
        rustls::Error::InvalidMessage(_) => {
            "; it may speak without TLS: a process without a certificate needs one here (`tls` in its configuration, or STRIA_TLS)"
        }
        _ => "",
    }
}

fn is_record(first: &[u8], kind: u8) -> bool {
    matches!(first, [first, 3, ..] if *first == kind)
}
