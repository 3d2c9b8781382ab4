//! Calls between processes that do not know each other yet: small messages, each within its time.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Time for each message.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of a message of somebody who has shown nothing yet.
pub(super) const SMALL: usize = 4096;
/// Callers that are listened to at a time.
const CALLERS: usize = 256;
/// Time between two looks for callers.
const LOOK: Duration = Duration::from_millis(5);

/// Connections to a listener. Each is read on a thread of its own, so that a silent one delays nobody.
pub(super) struct Callers<T> {
    listener: TcpListener,
    /// What they are told first, if anything.
    greeting: Option<Vec<u8>>,
    said: Sender<(T, TcpStream)>,
    heard: Receiver<(T, TcpStream)>,
    talking: Arc<AtomicUsize>,
}

impl<T: DeserializeOwned + Send + 'static> Callers<T> {
    /// `greeting` is what they are told first, if anything.
    pub(super) fn at(listener: TcpListener, greeting: Option<&impl Serialize>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (said, heard) = channel();
        Ok(Self {
            listener,
            greeting: greeting.map(packed).transpose()?,
            said,
            heard,
            talking: Arc::default(),
        })
    }

    /// Returns the next caller that has introduced itself, or `None` when no such caller is waiting.
    pub(super) fn next(&self) -> Option<(T, TcpStream)> {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.talking.load(Ordering::Relaxed) >= CALLERS {
                continue;
            }
            self.talking.fetch_add(1, Ordering::Relaxed);
            let (greeting, said) = (self.greeting.clone(), self.said.clone());
            let talking = Arc::clone(&self.talking);
            let spawned = std::thread::Builder::new().spawn(move || {
                if let Ok(heard) = hear_out(stream, greeting) {
                    // Nobody listens any more where all have come.
                    let _ = said.send(heard);
                }
                talking.fetch_sub(1, Ordering::Relaxed);
            });
            if spawned.is_err() {
                self.talking.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.heard.recv_timeout(LOOK).ok()
    }
}

fn hear_out<T: DeserializeOwned>(
    mut stream: TcpStream,
    greeting: Option<Vec<u8>>,
) -> io::Result<(T, TcpStream)> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if let Some(greeting) = greeting {
        stream.write_all(&greeting)?;
    }
    Ok((hear(&mut stream, SMALL, PATIENCE)?, stream))
}

/// Listens at the address, or at all of this machine's where its name leads to another one, as that of a service does.
pub(super) fn listen(address: &str) -> io::Result<TcpListener> {
    let mut failed = ErrorKind::AddrNotAvailable.into();
    for place in address.to_socket_addrs()? {
        let any = match place {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let bound = TcpListener::bind(place).or_else(|error| match error.kind() {
            ErrorKind::AddrNotAvailable => TcpListener::bind((any, place.port())),
            _ => Err(error),
        });
        match bound {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Connects to the first place of an address that answers.
pub(super) fn dial(address: &str, patience: Duration) -> io::Result<TcpStream> {
    let mut failed = ErrorKind::AddrNotAvailable.into();
    for place in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, patience) {
            // The system may have connected a port that nobody listens at to itself.
            Ok(stream) if stream.local_addr()? == place => {
                failed = ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => {
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Sends a message: its length in four bytes, then JSON.
pub(super) fn say(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&packed(message)?)
}

fn packed(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    Ok([&length.to_le_bytes(), text.as_slice()].concat())
}

/// Hears a message of at most so many bytes within a time.
pub(super) fn hear<T: DeserializeOwned>(
    stream: &mut TcpStream,
    most: usize,
    patience: Duration,
) -> io::Result<T> {
    let until = Instant::now() + patience;
    let mut length = [0; 4];
    fill(stream, &mut length, until)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    fill(stream, &mut text, until)?;
    serde_json::from_slice(&text).map_err(|_| ErrorKind::InvalidData.into())
}

/// Reads until the buffer is full. The time is that of all bytes: one now and then buys nobody more.
fn fill(stream: &mut TcpStream, buffer: &mut [u8], until: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// 64 hexadecimal digits that nobody can foresee: the keys of the standard library's hash maps come from the system.
pub(super) fn nonce() -> String {
    let draw = || RandomState::new().build_hasher().finish();
    let [first, second, third, fourth] = [draw(), draw(), draw(), draw()];
    format!("{first:016x}{second:016x}{third:016x}{fourth:016x}")
}
