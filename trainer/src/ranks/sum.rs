//! The gradient of a step, summed over ranks in one order.
//!
//! The micro-batches of a step are cut into parts, each summed by one rank. The sum of all is begun by rank 0 and goes through the
//! ranks in pieces; each adds its parts to what comes and passes it on; the last sends the total around. So every number is added
//! up in the order of the parts, as one process does it, and each rank sends and receives the gradient twice at most. Between the GPUs of one
//! process ([`super::here`]) no order is kept.

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::exchange::{floats, to_bytes};
use super::{RankError, Ranks};
use crate::grads::NamedGrads;

/// Numbers of a piece: a frame of the connection.
pub(super) const PIECE: usize = (1 << 18) - 16;
/// Pieces that rank 0 sends ahead of the total: as many are held by the ranks in between at most.
const AHEAD: usize = 16;
/// Begins a message with the sum so far.
const SO_FAR: u8 = 0;
/// Begins a message with the total.
const TOTAL: u8 = 1;

/// What a rank says before the sum.
#[derive(Serialize, Deserialize)]
struct Announced {
    /// Names and numbers of the tensors; none where its parts are empty.
    tensors: Shapes,
    /// Sums over the tokens of its micro-batches.
    tokens: Vec<Vec<u64>>,
}

/// Sums over tokens that ranks tell each other: as bits, since text would round them.
pub(crate) trait Sums: Sized {
    fn bits(&self) -> Vec<u64>;

    /// `None` where there are more or fewer than of these sums.
    fn of_bits(bits: &[u64]) -> Option<Self>;
}

/// Names of tensors with the numbers that each has.
type Shapes = Vec<(String, usize)>;

/// A piece of a tensor.
#[derive(Clone, Copy)]
struct Piece {
    tensor: usize,
    start: usize,
    end: usize,
}

impl Ranks {
    /// The sum of all parts in their order, and the sums over tokens of all micro-batches. `own` are this rank's parts, in order.
    pub(crate) fn sum<S: Sums>(
        &self,
        own: Vec<NamedGrads>,
        tokens: Vec<S>,
        device: &Device,
    ) -> Result<(NamedGrads, Vec<S>), RankError> {
        if self.size() == 1 {
            let mut sum = NamedGrads::default();
            for part in own {
                sum.add(part);
            }
            return Ok((sum, tokens));
        }
        let mut own: Vec<NamedGrads> = own.into_iter().filter(|part| !part.0.is_empty()).collect();
        if self.folds() && own.len() > 1 {
            let mut sum = NamedGrads::default();
            for part in own.drain(..) {
                sum.add(part);
            }
            own.push(sum);
        }
        self.works(true);
        let (tensors, tokens) = self.announce(&own, &tokens)?;
        let _watch = self.watch()?;
        if self.sums_on_devices() {
            let own = own.pop().unwrap_or_default();
            let sum = self.sum_between(own, &tensors, device)?;
            self.works(false);
            return Ok((sum, tokens));
        }
        let mut adding = Adding {
            parts: own,
            open: Vec::new(),
            tensors: &tensors,
        };
        let mut total = Total {
            tensors: &tensors,
            device,
            open: Vec::new(),
            sum: BTreeMap::new(),
        };
        self.pass(&mut adding, &mut total)?;
        self.works(false);
        Ok((NamedGrads(total.sum), tokens))
    }

    /// Agrees on what is to be summed.
    pub(super) fn announce<S: Sums>(
        &self,
        own: &[NamedGrads],
        tokens: &[S],
    ) -> Result<(Shapes, Vec<S>), RankError> {
        let tensors = |part: &NamedGrads| -> Shapes {
            let sizes = part.0.iter();
            sizes
                .map(|(name, gradient)| (name.clone(), gradient.shape().num_elements()))
                .collect()
        };
        let announced = Announced {
            tensors: own.first().map(tensors).unwrap_or_default(),
            tokens: tokens.iter().map(S::bits).collect(),
        };
        if own.iter().any(|part| tensors(part) != announced.tensors) {
            return Err(self.wrong(self.rank(), "has parts with different gradients"));
        }
        let written = serde_json::to_vec(&announced)
            .map_err(|_| self.wrong(self.rank(), "cannot write its sums"))?;
        let (mut all, mut tokens) = (Vec::new(), Vec::new());
        for (rank, text) in self.gather(written)?.into_iter().enumerate() {
            let unreadable = || self.wrong(rank, "sends sums that cannot be read");
            let read: Announced = serde_json::from_slice(&text).map_err(|_| unreadable())?;
            let sums = read.tokens.iter().map(|bits| S::of_bits(bits));
            tokens.extend(sums.collect::<Option<Vec<S>>>().ok_or_else(unreadable)?);
            if all.is_empty() {
                all = read.tensors;
            } else if !read.tensors.is_empty() && read.tensors != all {
                return Err(self.wrong(rank, "has gradients of another model"));
            }
        }
        Ok((all, tokens))
    }

    /// Passes the sum from rank to rank.
    fn pass(&self, own: &mut Adding<'_>, total: &mut Total<'_>) -> Result<(), RankError> {
        let (exchange, last) = (self.next_exchange(), self.size() - 1);
        let next = self.link((self.rank() + 1) % self.size())?;
        let before = (self.rank() + last) % self.size();
        let previous = self.link(before)?;
        let pieces = pieces(own.tensors);
        let receive = || -> Result<(u8, Vec<f32>), RankError> {
            self.works(false);
            let message = previous.receive(exchange)?;
            self.works(true);
            match message.split_first() {
                Some((&kind, numbers)) if kind <= TOTAL && numbers.len().is_multiple_of(4) => {
                    Ok((kind, floats(numbers).collect()))
                }
                _ => Err(self.wrong(before, "sends no piece of a sum")),
            }
        };
        let send = |kind: u8, numbers: &[f32]| -> Result<(), RankError> {
            let message = [&[kind], to_bytes(numbers).as_slice()].concat();
            next.send(exchange, &message)
        };
        let odd = || self.wrong(before, "sends another piece of the sum");
        if self.is_first() {
            for place in 0..pieces.len() + AHEAD {
                if let Some(&piece) = pieces.get(place) {
                    let sum = own.add(piece, Vec::new()).ok_or_else(odd)?;
                    send(SO_FAR, &sum)?;
                }
                if let Some(&piece) = place.checked_sub(AHEAD).and_then(|place| pieces.get(place)) {
                    let (kind, sum) = receive()?;
                    if kind != TOTAL {
                        return Err(odd());
                    }
                    if last > 1 {
                        send(TOTAL, &sum)?;
                    }
                    total.take(piece, sum).ok_or_else(odd)?;
                }
            }
            return Ok(());
        }
        let (mut added, mut done) = (0, 0);
        while done < pieces.len() {
            let (kind, sum) = receive()?;
            if kind == SO_FAR {
                let piece = *pieces.get(added).ok_or_else(odd)?;
                added += 1;
                let sum = own.add(piece, sum).ok_or_else(odd)?;
                if self.rank() < last {
                    send(SO_FAR, &sum)?;
                    continue;
                }
                send(TOTAL, &sum)?;
                total.take(piece, sum).ok_or_else(odd)?;
            } else {
                if self.rank() + 1 < last {
                    send(TOTAL, &sum)?;
                }
                total.take(pieces[done], sum).ok_or_else(odd)?;
            }
            done += 1;
        }
        Ok(())
    }
}

fn pieces(tensors: &[(String, usize)]) -> Vec<Piece> {
    let of = |(tensor, (_, count)): (usize, &(String, usize))| {
        let count = *count;
        (0..count).step_by(PIECE).map(move |start| Piece {
            tensor,
            start,
            end: (start + PIECE).min(count),
        })
    };
    tensors.iter().enumerate().flat_map(of).collect()
}

/// The parts of a rank, which it adds piece by piece.
struct Adding<'a> {
    parts: Vec<NamedGrads>,
    /// The numbers of the tensor that is being added, part by part.
    open: Vec<Vec<f32>>,
    tensors: &'a [(String, usize)],
}

impl Adding<'_> {
    /// Adds a piece of every part to the sum so far, which is empty where there is none yet; `None` where it is of another size.
    fn add(&mut self, piece: Piece, mut sum: Vec<f32>) -> Option<Vec<f32>> {
        let (name, count) = &self.tensors[piece.tensor];
        if piece.start == 0 {
            let taken = self.parts.iter_mut().map(|part| part.0.remove(name));
            self.open = taken.flatten().map(host).collect();
        }
        if !sum.is_empty() && sum.len() != piece.end - piece.start {
            return None;
        }
        for part in &self.open {
            let part = &part[piece.start..piece.end];
            if sum.is_empty() {
                sum = part.to_vec();
            } else {
                sum.iter_mut().zip(part).for_each(|(sum, own)| *sum += own);
            }
        }
        if piece.end == *count {
            self.open.clear();
        }
        Some(sum)
    }
}

/// The total, as far as it has come.
struct Total<'a> {
    tensors: &'a [(String, usize)],
    device: &'a Device,
    open: Vec<f32>,
    sum: BTreeMap<String, Tensor<1>>,
}

impl Total<'_> {
    /// Takes a piece; `None` where it is of another size.
    fn take(&mut self, piece: Piece, numbers: Vec<f32>) -> Option<()> {
        if numbers.len() != piece.end - piece.start {
            return None;
        }
        let (name, count) = &self.tensors[piece.tensor];
        self.open.extend(numbers);
        if piece.end == *count {
            let data = TensorData::new(std::mem::take(&mut self.open), [*count]);
            self.sum
                .insert(name.clone(), Tensor::from_data(data, self.device));
        }
        Some(())
    }
}

/// # Panics
/// When the device is lost.
fn host(gradient: Tensor<1>) -> Vec<f32> {
    let numbers = gradient.into_data().convert::<f32>();
    numbers.try_into_vec().expect("converted just before")
}
