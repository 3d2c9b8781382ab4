//! How ranks find each other: rank 0 listens, the others call, and both show that they share the secret and the run.
//!
//! Rank 0 greets with a nonce; a caller answers with who it is and a keyed hash of that and the nonce; once all are there, rank 0
//! answers each with a keyed hash of the caller's nonce and tells it where the others are. Then each rank but the first and the
//! last calls the next one. Nothing is encrypted.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::calls::{Callers, PATIENCE, SMALL, dial, hear, listen, nonce, say};
use super::{RankError, RankSettings};

/// The version of what ranks say to each other.
const PROTOCOL: u32 = 2;
/// The version of this program: others may compute other numbers.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Names the protocol in a greeting.
const NAME: &str = "forage ranks";
/// Most bytes of the answer of rank 0, which names all ranks.
const LARGE: usize = 1 << 20;
/// Longest time that ranks wait for each other, thirty years: a longer one may end beyond what the clock can tell.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);
/// Time between two calls.
const PAUSE: Duration = Duration::from_millis(100);

/// The connections of a rank by the other's number.
pub(super) fn meet(
    settings: &RankSettings,
    digest: &str,
) -> Result<BTreeMap<usize, TcpStream>, RankError> {
    let mut party = Party {
        settings,
        digest,
        key: [0; 32],
        until: Instant::now() + settings.wait.min(LONGEST),
    };
    let RankSettings { rank, size, .. } = *settings;
    if rank >= size {
        let last = size.saturating_sub(1);
        return Err(party.fault(format!("there is no rank {rank} among {size}: 0 to {last}")));
    }
    party.key = party.derive_key()?;
    match (rank, size) {
        (_, 1) => Ok(BTreeMap::new()),
        (0, _) => party.receive(),
        _ => party.call(),
    }
}

/// The first words of rank 0.
#[derive(Serialize, Deserialize)]
struct Greeting {
    name: String,
    protocol: u32,
    nonce: String,
}

/// The first words of a caller.
#[derive(Serialize, Deserialize)]
struct Hello {
    rank: usize,
    size: usize,
    version: String,
    digest: String,
    /// Port at which the rank before it connects; 0 for none.
    port: u16,
    nonce: String,
    proof: String,
}

impl Hello {
    /// The words that the proof is of.
    fn said(&self, nonce: &str) -> String {
        let Self {
            rank,
            size,
            version,
            digest,
            port,
            nonce: own,
            ..
        } = self;
        format!("hello\n{nonce}\n{own}\n{rank}\n{size}\n{version}\n{digest}\n{port}")
    }
}

/// The answer of rank 0.
#[derive(Serialize, Deserialize)]
enum Answer {
    Welcome {
        session: String,
        /// Addresses by rank; `None` for rank 0, whose address all know.
        peers: Vec<Option<SocketAddr>>,
        proof: String,
    },
    Refused {
        why: String,
    },
}

/// The first words of a rank to the next, and its answer.
#[derive(Serialize, Deserialize)]
struct Neighbour {
    rank: usize,
    proof: String,
}

/// A rank on its way to the others.
struct Party<'a> {
    settings: &'a RankSettings,
    digest: &'a str,
    key: [u8; 32],
    until: Instant,
}

impl Party<'_> {
    fn fault(&self, what: String) -> RankError {
        RankError::Meeting {
            address: self.settings.address.clone(),
            what,
        }
    }

    fn broken(&self, error: &io::Error) -> RankError {
        self.fault(format!(
            "the connection to another rank broke: {error}; start all ranks again"
        ))
    }

    fn derive_key(&self) -> Result<[u8; 32], RankError> {
        let mut secret = Vec::new();
        if let Some(path) = &self.settings.secret_file {
            let fault = |what: String| self.fault(format!("{}: {what}", path.display()));
            let file = std::fs::File::open(path).map_err(|error| fault(error.to_string()))?;
            let read = file.take(SMALL as u64).read_to_end(&mut secret);
            read.map_err(|error| fault(error.to_string()))?;
            if secret.trim_ascii().len() < 16 {
                return Err(fault(
                    "holds less than 16 bytes; write a secret into it, as from `openssl rand -hex 32`"
                        .to_owned(),
                ));
            }
        }
        Ok(blake3::derive_key(
            "forage 2026-11 ranks that meet",
            secret.trim_ascii(),
        ))
    }

    fn proof(&self, words: &str) -> String {
        let proof = blake3::keyed_hash(&self.key, words.as_bytes());
        proof.to_hex().to_string()
    }

    fn holds(&self, proof: &str, words: &str) -> bool {
        let expected = blake3::keyed_hash(&self.key, words.as_bytes());
        // Equality of hashes takes the same time whatever they are.
        blake3::Hash::from_hex(proof).is_ok_and(|found| found == expected)
    }

    fn left(&self) -> Duration {
        let left = self.until.saturating_duration_since(Instant::now());
        left.max(Duration::from_millis(1))
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Rank 0: waits for all others.
    fn receive(&self) -> Result<BTreeMap<usize, TcpStream>, RankError> {
        let listener = listen(&self.settings.address).map_err(|error| {
            self.fault(format!(
                "rank 0 cannot listen there: {error}; name an address of its machine and a free port with --rendezvous"
            ))
        })?;
        let nonce = nonce();
        let greeting = Greeting {
            name: NAME.to_owned(),
            protocol: PROTOCOL,
            nonce: nonce.clone(),
        };
        let callers = Callers::<Hello>::at(listener, Some(&greeting));
        let callers = callers.map_err(|error| self.broken(&error))?;
        let mut come: BTreeMap<usize, (Hello, TcpStream)> = BTreeMap::new();
        while come.len() + 1 < self.settings.size {
            if self.is_late() {
                return Err(self.missing(&come));
            }
            let Some((hello, mut stream)) = callers.next() else {
                continue;
            };
            // One that has ended meanwhile may have been started again, and is this one or still to come.
            come.retain(|_, (_, other)| !has_left(other));
            let rank = hello.rank;
            let why = match self.judge(&hello, &nonce) {
                Verdict::Stranger(why) => why,
                Verdict::Other(why) => {
                    let all = come.values_mut().map(|(_, stream)| stream);
                    for stream in all.chain([&mut stream]) {
                        refuse(stream, &why);
                    }
                    return Err(self.fault(why));
                }
                Verdict::Right if come.contains_key(&rank) => {
                    format!("there is a rank {rank} already; give every process its own --rank")
                }
                Verdict::Right => {
                    tracing::info!(rank, "rank has come");
                    come.insert(rank, (hello, stream));
                    continue;
                }
            };
            tracing::warn!(rank, "a caller was refused: {why}");
            refuse(&mut stream, &why);
        }
        self.welcome(come).map_err(|error| self.broken(&error))
    }

    fn missing(&self, come: &BTreeMap<usize, (Hello, TcpStream)>) -> RankError {
        let missing: Vec<String> = (1..self.settings.size)
            .filter(|rank| !come.contains_key(rank))
            .map(|rank| rank.to_string())
            .collect();
        self.fault(format!(
            "rank {} did not come within {} s; look at its output, or wait longer with --rank-wait",
            missing.join(", "),
            self.settings.wait.as_secs_f64()
        ))
    }

    fn judge(&self, hello: &Hello, nonce: &str) -> Verdict {
        let Hello {
            rank,
            size,
            version,
            digest,
            ..
        } = hello;
        if !self.holds(&hello.proof, &hello.said(nonce)) {
            return Verdict::Stranger(
                "its secret is another; give all ranks the same --rank-secret-file".to_owned(),
            );
        }
        let own = self.settings.size;
        if version != VERSION {
            Verdict::Other(format!(
                "rank {rank} runs version {version} of forage, rank 0 {VERSION}; run the same program everywhere"
            ))
        } else if *size != own || *rank == 0 || *rank >= own {
            Verdict::Other(format!(
                "a process calls itself rank {rank} of {size}, and rank 0 expects 1 to {} of {own}; give all the same --ranks",
                own - 1
            ))
        } else if digest != self.digest {
            Verdict::Other(format!(
                "rank {rank} has another config, other questions or another index than rank 0; start all with the same files and \
                 the same --set and --device"
            ))
        } else {
            Verdict::Right
        }
    }

    fn welcome(
        &self,
        come: BTreeMap<usize, (Hello, TcpStream)>,
    ) -> io::Result<BTreeMap<usize, TcpStream>> {
        let mut peers = vec![None; self.settings.size];
        for (&rank, (hello, stream)) in &come {
            let place = SocketAddr::new(stream.peer_addr()?.ip(), hello.port);
            peers[rank] = Some(place);
        }
        let session = nonce();
        let mut links = BTreeMap::new();
        for (rank, (hello, mut stream)) in come {
            let answer = Answer::Welcome {
                session: session.clone(),
                peers: peers.clone(),
                proof: self.proof(&format!("welcome\n{}\n{session}", hello.nonce)),
            };
            say(&mut stream, &answer)?;
            links.insert(rank, stream);
        }
        Ok(links)
    }

    /// The others: call rank 0 until it answers, then the next rank, and wait for the one before.
    fn call(&self) -> Result<BTreeMap<usize, TcpStream>, RankError> {
        let rank = self.settings.rank;
        let (mut root, greeting) = self.reach()?;
        let broken = |error: io::Error| self.broken(&error);
        // Rank 0 reaches all on the connection it has.
        let door = if rank > 1 {
            let here = root.local_addr().map_err(broken)?.ip();
            Some(TcpListener::bind((here, 0)).map_err(broken)?)
        } else {
            None
        };
        let port = door.as_ref().map_or(Ok(0), |door| {
            door.local_addr().map(|address| address.port())
        });
        let mut hello = Hello {
            rank,
            size: self.settings.size,
            version: VERSION.to_owned(),
            digest: self.digest.to_owned(),
            port: port.map_err(broken)?,
            nonce: nonce(),
            proof: String::new(),
        };
        hello.proof = self.proof(&hello.said(&greeting.nonce));
        say(&mut root, &hello).map_err(broken)?;
        // It answers when all have come.
        let patience = self.left() + PATIENCE;
        let (session, peers) = match hear::<Answer>(&mut root, LARGE, patience).map_err(broken)? {
            Answer::Refused { why } => return Err(self.fault(why)),
            Answer::Welcome {
                session,
                peers,
                proof,
            } => {
                if !self.holds(&proof, &format!("welcome\n{}\n{session}", hello.nonce)) {
                    return Err(self.fault(
                        "the secret of rank 0 is another; give all ranks the same --rank-secret-file"
                            .to_owned(),
                    ));
                }
                (session, peers)
            }
        };
        let mut links = BTreeMap::from([(0, root)]);
        let words = |rank: usize| format!("neighbour\n{session}\n{rank}");
        let own = Neighbour {
            rank,
            proof: self.proof(&words(rank)),
        };
        let next = peers.get(rank + 1).copied().flatten();
        let mut next = match next {
            Some(place) => {
                let mut stream = TcpStream::connect_timeout(&place, PATIENCE).map_err(|error| {
                    self.fault(format!(
                        "rank {rank} cannot reach rank {} at {place}: {error}; let ranks connect to each other",
                        rank + 1
                    ))
                })?;
                say(&mut stream, &own).map_err(broken)?;
                Some(stream)
            }
            None => None,
        };
        if let Some(door) = door {
            links.insert(rank - 1, self.admit(door, &own, &words(rank - 1))?);
        }
        if let Some(mut stream) = next.take() {
            let answer: Neighbour = hear(&mut stream, SMALL, PATIENCE).map_err(broken)?;
            if !self.holds(&answer.proof, &words(rank + 1)) {
                return Err(self.fault(format!("who answers for rank {} is not it", rank + 1)));
            }
            links.insert(rank + 1, stream);
        }
        Ok(links)
    }

    /// Calls rank 0 until it greets.
    fn reach(&self) -> Result<(TcpStream, Greeting), RankError> {
        let address = &self.settings.address;
        loop {
            let error = match dial(address, self.left().min(PATIENCE)) {
                Ok(mut stream) => match hear::<Greeting>(&mut stream, SMALL, PATIENCE) {
                    Ok(greeting) if greeting.name == NAME && greeting.protocol == PROTOCOL => {
                        return Ok((stream, greeting));
                    }
                    Ok(greeting) if greeting.name == NAME => {
                        return Err(self.fault(format!(
                            "rank 0 speaks version {} of the ranks' protocol, this program {PROTOCOL}; run the same program \
                             everywhere",
                            greeting.protocol
                        )));
                    }
                    Ok(_) => ErrorKind::InvalidData.into(),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if error.kind() == ErrorKind::InvalidData {
                return Err(self.fault(
                    "what answers there is not rank 0 of a run; name another port with --rendezvous".to_owned(),
                ));
            }
            if self.is_late() {
                return Err(self.fault(format!(
                    "rank 0 did not answer within {} s ({error}); look at its output, or wait longer with --rank-wait",
                    self.settings.wait.as_secs_f64()
                )));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Lets the rank before this one in.
    fn admit(
        &self,
        door: TcpListener,
        own: &Neighbour,
        words: &str,
    ) -> Result<TcpStream, RankError> {
        let broken = |error: io::Error| self.broken(&error);
        let callers = Callers::<Neighbour>::at(door, None::<&Greeting>).map_err(broken)?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let Some((neighbour, mut stream)) = callers.next() else {
                continue;
            };
            if self.holds(&neighbour.proof, words) {
                say(&mut stream, own).map_err(broken)?;
                return Ok(stream);
            }
        }
        Err(self.fault(format!(
            "rank {} did not reach rank {}; let ranks connect to each other",
            own.rank - 1,
            own.rank
        )))
    }
}

/// What rank 0 makes of a caller.
enum Verdict {
    Right,
    /// A caller that does not know the secret.
    Stranger(String),
    /// A caller that knows the secret and belongs to another run, with which this one cannot begin.
    Other(String),
}

/// Tells whether a caller that waits to be welcomed has closed its end.
fn has_left(caller: &TcpStream) -> bool {
    let peek = |()| caller.peek(&mut [0]);
    let peeked = caller.set_nonblocking(true).and_then(peek);
    let is_broken = caller.set_nonblocking(false).is_err();
    is_broken
        || match peeked {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
}

fn refuse(stream: &mut TcpStream, why: &str) {
    // It may have left already.
    let _ = say(
        stream,
        &Answer::Refused {
            why: why.to_owned(),
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_without_end_can_be_given() {
        let settings = RankSettings {
            rank: 0,
            size: 1,
            address: String::new(),
            secret_file: None,
            wait: Duration::MAX,
            silence: PATIENCE,
        };
        assert!(meet(&settings, "digest").unwrap().is_empty());
    }

    #[test]
    fn a_rank_that_was_started_again_takes_the_place_of_the_one_that_has_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let settings = |rank| RankSettings {
            rank,
            size: 3,
            address: address.clone(),
            secret_file: None,
            wait: 2 * PATIENCE,
            silence: PATIENCE,
        };
        let links = std::thread::scope(|scope| {
            let meeting = |rank| {
                let settings = settings(rank);
                scope.spawn(move || meet(&settings, "digest").map(|links| links.len()))
            };
            let first = meeting(0);
            let before = settings(1);
            let mut party = Party {
                settings: &before,
                digest: "digest",
                key: [0; 32],
                until: Instant::now() + PATIENCE,
            };
            party.key = party.derive_key().unwrap();
            let (mut root, greeting) = party.reach().unwrap();
            let mut hello = Hello {
                rank: 1,
                size: 3,
                version: VERSION.to_owned(),
                digest: "digest".to_owned(),
                port: 0,
                nonce: nonce(),
                proof: String::new(),
            };
            hello.proof = party.proof(&hello.said(&greeting.nonce));
            say(&mut root, &hello).unwrap();
            // It is heard before it ends.
            std::thread::sleep(5 * PAUSE);
            drop(root);
            let ranks = [first, meeting(1), meeting(2)];
            ranks.map(|rank| rank.join().unwrap())
        });
        assert_eq!(links, [Ok(2), Ok(2), Ok(2)]);
    }
}
