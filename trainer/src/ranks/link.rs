//! A connection between two ranks: frames, a thread that reads them, and what is known of a loss.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::RankError;

/// Most bytes of a frame's content; a longer message is several frames.
const FRAME: usize = 1 << 20;
/// Most bytes of a message.
const MESSAGE: usize = 1 << 30;
/// Most frames that wait to be asked for, a whole message of them; a peer that sends more waits too.
const AHEAD: usize = MESSAGE / FRAME;
/// Bytes before a frame's content: its kind, the number of its exchange, its length.
const HEADER: usize = 9;
/// Most bytes of a farewell.
const FAREWELL: usize = 4096;
/// Time between looks at whether another connection was lost.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// Time that a farewell may take to be read.
const PARTING: Duration = Duration::from_secs(2);

/// The kinds of frames.
const ALIVE: u8 = 0;
const PART: u8 = 1;
const LAST: u8 = 2;
const STOP: u8 = 3;
const BYE: u8 = 4;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first loss that a rank learned of, which ends its run.
#[derive(Debug)]
pub(super) struct Losses {
    first: Mutex<Option<RankError>>,
    told: watch::Sender<bool>,
}

impl Losses {
    pub(super) fn new() -> Self {
        Self {
            first: Mutex::default(),
            told: watch::channel(false).0,
        }
    }

    /// Keeps the loss if it is the first, and wakes whoever waits for one.
    pub(super) fn note(&self, error: RankError) {
        lock(&self.first).get_or_insert(error);
        self.told.send_replace(true);
    }

    pub(super) fn first(&self) -> Option<RankError> {
        lock(&self.first).clone()
    }

    pub(super) fn watch(&self) -> watch::Receiver<bool> {
        self.told.subscribe()
    }
}

/// The reason for which a rank stops, as it tells the others.
#[derive(Serialize, Deserialize)]
pub(super) struct Farewell {
    /// The rank at fault: another one where it was lost.
    rank: usize,
    lost: bool,
    what: String,
}

impl Farewell {
    pub(super) fn of(error: &RankError) -> Self {
        let (rank, lost, what) = match error {
            RankError::Lost { rank, what } => (*rank, true, what),
            RankError::Stopped { rank, why } => (*rank, false, why),
            RankError::Meeting { what, .. } => (0, false, what),
        };
        let mut what = what.clone();
        while what.len() > FAREWELL / 8 {
            what.pop();
        }
        Self { rank, lost, what }
    }

    fn error(self) -> RankError {
        let Self { rank, lost, what } = self;
        if lost {
            RankError::Lost { rank, what }
        } else {
            RankError::Stopped { rank, why: what }
        }
    }
}

struct Frame {
    kind: u8,
    exchange: u32,
    content: Vec<u8>,
}

/// A connection to another rank.
#[derive(Debug)]
pub(super) struct Link {
    peer: usize,
    writer: Mutex<TcpStream>,
    frames: Mutex<Receiver<Frame>>,
    reader: Option<JoinHandle<()>>,
    losses: Arc<Losses>,
}

impl Link {
    /// Takes a connection whose handshake is done; a peer that is silent for so long is lost.
    pub(super) fn new(
        stream: TcpStream,
        peer: usize,
        silence: Duration,
        losses: &Arc<Losses>,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(silence))?;
        stream.set_write_timeout(None)?;
        let (sender, frames) = sync_channel(AHEAD);
        let (source, of_reader) = (stream.try_clone()?, Arc::clone(losses));
        let reader = std::thread::Builder::new()
            .name(format!("rank {peer}"))
            .spawn(move || listen(source, peer, silence, &sender, &of_reader))?;
        Ok(Self {
            peer,
            writer: Mutex::new(stream),
            frames: Mutex::new(frames),
            reader: Some(reader),
            losses: Arc::clone(losses),
        })
    }

    /// Sends a message of an exchange.
    pub(super) fn send(&self, exchange: u32, message: &[u8]) -> Result<(), RankError> {
        if message.len() > MESSAGE {
            return Err(self.lost(format!(
                "was to be sent {} bytes at once, more than {MESSAGE}; play fewer episodes a step",
                message.len()
            )));
        }
        let mut writer = lock(&self.writer);
        let mut rest = message;
        loop {
            let (frame, after) = rest.split_at(rest.len().min(FRAME));
            rest = after;
            let kind = if rest.is_empty() { LAST } else { PART };
            if let Err(error) = write(&mut writer, kind, exchange, frame) {
                return Err(self.unwritable(&error));
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Waits for the message of an exchange.
    pub(super) fn receive(&self, exchange: u32) -> Result<Vec<u8>, RankError> {
        let frames = lock(&self.frames);
        let mut message = Vec::new();
        loop {
            let frame = match frames.recv_timeout(LOOK) {
                Ok(frame) => frame,
                Err(RecvTimeoutError::Timeout) => match self.losses.first() {
                    Some(error) => return Err(error),
                    None => continue,
                },
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.lost("left before the others were done".to_owned()));
                }
            };
            if frame.exchange != exchange || message.len() + frame.content.len() > MESSAGE {
                let what = format!(
                    "is at exchange {}, not {exchange}: it runs another program or another config",
                    frame.exchange
                );
                return Err(self.lost(what));
            }
            message.extend(frame.content);
            if frame.kind == LAST {
                return Ok(message);
            }
        }
    }

    /// Shows the peer that this process lives, unless a message under way does.
    pub(super) fn beat(&self) {
        if let Ok(mut writer) = self.writer.try_lock() {
            // Who cannot be written to is found out by whoever reads from it.
            let _ = write(&mut writer, ALIVE, 0, &[]);
        }
    }

    /// Says that nothing more will come, and why where something is wrong.
    pub(super) fn part(&self, farewell: Option<&Farewell>) {
        let mut writer = lock(&self.writer);
        let _ = match farewell.and_then(|farewell| serde_json::to_vec(farewell).ok()) {
            Some(text) => write(&mut writer, STOP, 0, &text),
            None => write(&mut writer, BYE, 0, &[]),
        };
        let _ = writer.shutdown(Shutdown::Write);
    }

    /// The loss of this peer, or the one before it.
    pub(super) fn lost(&self, what: String) -> RankError {
        let rank = self.peer;
        self.losses.note(RankError::Lost { rank, what });
        let first = self.losses.first();
        first.unwrap_or(RankError::Lost {
            rank,
            what: "is lost".to_owned(),
        })
    }

    /// A peer that closed its end has mostly said why: what it said counts.
    fn unwritable(&self, error: &io::Error) -> RankError {
        let begun = Instant::now();
        while begun.elapsed() < PARTING {
            if let Some(error) = self.losses.first() {
                return error;
            }
            std::thread::sleep(LOOK);
        }
        self.lost(format!("takes no messages: {error}"))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The reader waits no longer for somebody to ask for a frame.
        *lock(&self.frames) = sync_channel(0).1;
        // Closed with bytes unread, the system would take back the farewell from the peer: it is read to its end first.
        let stream = lock(&self.writer);
        let _ = stream.shutdown(Shutdown::Write);
        let begun = Instant::now();
        if let Some(reader) = self.reader.take() {
            while !reader.is_finished() && begun.elapsed() < PARTING {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn write(stream: &mut TcpStream, kind: u8, exchange: u32, content: &[u8]) -> io::Result<()> {
    let length = u32::try_from(content.len()).map_err(io::Error::other)?;
    let mut head = [0; HEADER];
    head[0] = kind;
    head[1..5].copy_from_slice(&exchange.to_le_bytes());
    head[5..].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&head)?;
    stream.write_all(content)
}

fn read(stream: &mut TcpStream) -> io::Result<Frame> {
    let mut head = [0; HEADER];
    stream.read_exact(&mut head)?;
    let [kind, e0, e1, e2, e3, l0, l1, l2, l3] = head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let most = match kind {
        ALIVE | BYE => 0,
        PART | LAST => FRAME,
        STOP => FAREWELL,
        _ => return Err(ErrorKind::InvalidData.into()),
    };
    if length > most {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut content = vec![0; length];
    stream.read_exact(&mut content)?;
    Ok(Frame {
        kind,
        exchange: u32::from_le_bytes([e0, e1, e2, e3]),
        content,
    })
}

/// Reads frames until the peer has nothing more to say.
fn listen(
    mut stream: TcpStream,
    peer: usize,
    silence: Duration,
    frames: &SyncSender<Frame>,
    losses: &Losses,
) {
    let what = loop {
        let frame = match read(&mut stream) {
            Ok(frame) => frame,
            Err(error) => break described(&error, silence),
        };
        match frame.kind {
            ALIVE => {}
            BYE => return drain(&mut stream),
            STOP => {
                let said: Result<Farewell, _> = serde_json::from_slice(&frame.content);
                match said {
                    Ok(said) => losses.note(said.error()),
                    Err(_) => break described(&ErrorKind::InvalidData.into(), silence),
                }
                return drain(&mut stream);
            }
            _ => {
                // Nobody waits for it where the run has ended.
                let _ = frames.send(frame);
            }
        }
    };
    losses.note(RankError::Lost { rank: peer, what });
    // Whoever is writing to it stops waiting.
    let _ = stream.shutdown(Shutdown::Both);
}

fn drain(stream: &mut TcpStream) {
    let mut rest = [0; 4096];
    while matches!(stream.read(&mut rest), Ok(1..)) {}
}

fn described(error: &io::Error, silence: Duration) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
            "has given no sign of life for {} s: its process or machine hangs, or the network between is cut",
            silence.as_secs_f64()
        ),
        ErrorKind::InvalidData => "sends what no rank sends".to_owned(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "has closed its connection: it was killed or has crashed".to_owned()
        }
        _ => format!("cannot be read from: {error}"),
    }
}
