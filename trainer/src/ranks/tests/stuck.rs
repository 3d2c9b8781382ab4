//! A sum of ranks of one process that does not end: all learn of it in time, and who is at fault.

use std::time::{Duration, Instant};

use burn::tensor::Device;

use super::gradients;
use crate::ranks::Ranks;
use crate::ranks::here::Fault;
use crate::update_stats::TokenSums;

/// Time that a sum may take.
const TIME: Duration = Duration::from_millis(300);

/// What each of so many ranks on the processor says of a sum that does not end.
fn said(size: usize, job: impl Fn(&Ranks) -> String + Sync) -> Vec<String> {
    let ranks = Ranks::here_within(&vec![Device::flex(); size], TIME).unwrap();
    let job = &job;
    std::thread::scope(|scope| {
        let run = |ranks: Ranks| {
            scope.spawn(move || {
                let begun = Instant::now();
                let said = job(&ranks);
                assert!(begun.elapsed() < Duration::from_secs(5));
                ranks.leave(Some(&said));
                said
            })
        };
        let threads: Vec<_> = ranks.into_iter().map(run).collect();
        let said = threads.into_iter().map(|thread| thread.join().unwrap());
        said.collect()
    })
}

#[test]
fn a_rank_that_stops_within_a_sum_is_named_by_all() {
    for (size, stopping) in [(2, 1), (2, 0), (3, 1)] {
        let found = said(size, |ranks| {
            let own = vec![gradients(ranks.rank() as u64)];
            if ranks.rank() == stopping {
                ranks.works(true);
                ranks.announce(&own, &Vec::<TokenSums>::new()).unwrap();
                loop {
                    if let Some(error) = ranks.loss() {
                        return error.to_string();
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            let sum = ranks.sum(own, Vec::<TokenSums>::new(), &Device::flex());
            // What is on the processor can be read.
            assert!(!ranks.hangs());
            sum.unwrap_err().to_string()
        });
        let expected =
            format!("rank {stopping} has not done its part of a sum of gradients in 0.3 s");
        for said in found {
            assert!(said.starts_with(&expected), "{size}: {said}");
        }
    }
}

#[test]
fn a_device_that_does_not_answer_is_left_behind() {
    for (stopping, expected) in [
        (
            Some(1),
            "rank 1 has not done its part of a sum of gradients in 0.3 s",
        ),
        (None, "to which all have given their part"),
    ] {
        let found = said(2, |ranks| {
            ranks.works(true);
            ranks.gather(Vec::new()).unwrap();
            let _watch = ranks.watch().unwrap();
            let (rank, deadline) = (ranks.rank(), ranks.deadline.clone().unwrap());
            let sum = ranks.apart(move || -> Result<(), Fault> {
                deadline.works(rank, stopping == Some(rank));
                std::thread::sleep(TIME * 10);
                Ok(())
            });
            assert!(ranks.hangs());
            sum.unwrap_err().to_string()
        });
        for said in found {
            assert!(said.contains(expected), "{said}");
            assert_eq!(said.contains("NCCL_DEBUG"), stopping.is_none(), "{said}");
        }
    }
}

#[test]
fn what_a_device_makes_or_refuses_comes_from_its_thread() {
    let found = said(2, |ranks| {
        if ranks.is_first() {
            assert_eq!(ranks.apart(|| Ok(7)), Ok(7));
            let refused =
                ranks.apart(|| -> Result<(), Fault> { Err(Fault("no memory".to_owned())) });
            return refused.unwrap_err().to_string();
        }
        ranks.gather(Vec::new()).unwrap_err().to_string()
    });
    for said in found {
        assert!(
            said.starts_with("rank 0 cannot sum gradients with the other GPUs: no memory"),
            "{said}"
        );
    }
}
