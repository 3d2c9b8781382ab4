//! The rank of a process and the number of ranks, from arguments or the launcher's environment variables.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use forage_lab::{Resolved, RunError};
use forage_trainer::RankSettings;
use forage_trainer::device::DeviceSpec;

/// The place of this process among several.
#[derive(Args, Debug)]
#[command(next_help_heading = "Ranks")]
pub(crate) struct RankArgs {
    /// Train with so many processes, each of which is called with the same arguments, or with as many as the launcher has started
    /// (auto: torchrun, srun, mpirun). See docs/scale.md.
    #[arg(long, value_name = "N|auto", value_parser = count)]
    ranks: Option<Count>,
    /// The number of this process, from 0; the launcher's by default.
    #[arg(long, value_name = "R", requires = "ranks")]
    rank: Option<usize>,
    /// Where rank 0 listens, as all reach it; the launcher's by default (`MASTER_ADDR` and `MASTER_PORT`, or SLURM's first host).
    #[arg(long, value_name = "HOST:PORT", requires = "ranks")]
    rendezvous: Option<String>,
    /// A file with a secret that all ranks share: who does not know it is refused.
    #[arg(long, value_name = "FILE", requires = "ranks")]
    rank_secret_file: Option<PathBuf>,
    /// How long the ranks wait for each other when they start.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds, requires = "ranks")]
    rank_wait: Duration,
    /// How long a rank may give no sign of life before all stop.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds, requires = "ranks")]
    rank_silence: Duration,
}

/// The number of ranks as arguments give it.
#[derive(Clone, Copy, Debug)]
enum Count {
    Auto,
    Of(usize),
}

fn count(text: &str) -> Result<Count, String> {
    match text.parse() {
        _ if text == "auto" => Ok(Count::Auto),
        Ok(count) if count > 0 => Ok(Count::Of(count)),
        _ => Err("write a number from 1, or auto".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let parsed = text.parse().map(Duration::try_from_secs_f64);
    match parsed {
        Ok(Ok(time)) if !time.is_zero() => Ok(time),
        _ => Err("write a number of seconds above 0".to_owned()),
    }
}

/// The variables of a launcher.
struct Launcher {
    /// The number of the process.
    rank: &'static str,
    /// How many there are, where it says.
    size: &'static [&'static str],
    /// Its number among those of its machine, where it says.
    local: Option<&'static str>,
}

const LAUNCHERS: [Launcher; 5] = [
    Launcher {
        rank: "RANK",
        size: &["WORLD_SIZE"],
        local: Some("LOCAL_RANK"),
    },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
    },
    Launcher {
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        local: Some("MPI_LOCALRANKID"),
    },
    Launcher {
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local: Some("SLURM_LOCALID"),
    },
    Launcher {
        rank: "JOB_COMPLETION_INDEX",
        size: &[],
        local: None,
    },
];

impl RankArgs {
    /// The number of processes; `None` where this one trains by itself. `variable` gives a variable of the environment.
    pub(crate) fn size(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<usize>> {
        let size = match self.ranks {
            None => return Ok(None),
            Some(Count::Of(size)) => Some(size),
            Some(Count::Auto) => {
                let names = launcher(&variable).map(|launcher| launcher.size);
                let mut names = names.unwrap_or_default().iter();
                match names.find(|name| variable(name).is_some()) {
                    Some(name) => number(name, &variable)?,
                    None => None,
                }
            }
        };
        size.map(Some).ok_or_else(|| {
            fault(
                "--ranks auto: the launcher does not say how many there are; give --ranks N"
                    .to_owned(),
            )
        })
    }

    /// The number of this process among those that its launcher has started on its machine; `None` where it trains by itself, or nobody
    /// says. `variable` gives a variable of the environment.
    pub(crate) fn local(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<usize>> {
        if self.ranks.is_none() || self.rank.is_some() {
            return Ok(None);
        }
        let Some(launcher) = launcher(&variable) else {
            return Ok(None);
        };
        // srun may set the number that MPICH's library reads, without that on the machine.
        let others = LAUNCHERS.into_iter().filter_map(|other| other.local);
        let mut names = launcher.local.into_iter().chain(others);
        let name = names.find(|name| variable(name).is_some());
        name.map_or(Ok(None), |name| number(name, &variable))
    }

    /// The place of this process; none where it trains by itself. `variable` gives a variable of the environment.
    pub(crate) fn resolve(
        self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<RankSettings>> {
        if self.ranks.is_none() {
            return Ok(None);
        }
        let rank = match (self.rank, launcher(&variable)) {
            (Some(rank), _) => rank,
            (None, Some(launcher)) => number(launcher.rank, &variable)?.unwrap_or_default(),
            (None, None) => {
                let names = LAUNCHERS.map(|launcher| launcher.rank).join(", ");
                return Err(fault(format!(
                    "--ranks: which one this process is, nobody says; start it with a launcher ({names}), or give --rank"
                )));
            }
        };
        let size = self.size(&variable)?.unwrap_or(1);
        if rank >= size {
            let last = size.saturating_sub(1);
            return Err(fault(format!(
                "--rank {rank}: there are {size} ranks, 0 to {last}"
            )));
        }
        let address = match self.rendezvous {
            Some(address) => address,
            None => meeting(&variable)?.unwrap_or_default(),
        };
        let port = address
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse::<u16>().ok());
        if size > 1 && port.is_none_or(|port| port == 0) {
            return Err(fault(format!(
                "--rendezvous `{address}`: name the host of rank 0 and a free port of it, as in 10.0.0.1:29400"
            )));
        }
        Ok(Some(RankSettings {
            rank,
            size,
            address,
            secret_file: self.rank_secret_file,
            wait: self.rank_wait,
            silence: self.rank_silence,
        }))
    }
}

/// The launcher that has started this process, if one has.
fn launcher(variable: impl Fn(&str) -> Option<String>) -> Option<Launcher> {
    LAUNCHERS
        .into_iter()
        .find(|launcher| variable(launcher.rank).is_some())
}

/// The config of the process of number `local` on its machine: with the card of this number in the place of the first, where the driver
/// shows several.
pub(crate) fn on_own_card(config: Resolved, local: usize) -> Result<Resolved> {
    let first = DeviceSpec::Cuda(0);
    if config.device != first && config.retriever.device != first {
        return Ok(config);
    }
    let cards = DeviceSpec::found()
        .into_iter()
        .filter(|device| matches!(device, DeviceSpec::Cuda(_)));
    let own = DeviceSpec::Cuda(own_card(local, cards.count())?);
    let config = config.vary(|config| {
        for device in [&mut config.device, &mut config.retriever.device] {
            if *device == first {
                *device = own;
            }
        }
    })?;
    Ok(config)
}

/// The index of the card of a process, of those that it is shown: one alone was chosen by the launcher.
fn own_card(local: usize, cards: usize) -> Result<usize> {
    match cards {
        0 | 1 => Ok(0),
        _ if local < cards => Ok(local),
        _ => Err(fault(format!(
            "this is process {local} of its machine, counted from 0, and the driver shows {cards} GPUs; start a process for each GPU, or \
             name one with --device"
        ))),
    }
}

/// The number that a variable is, where it is set.
fn number(name: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Option<usize>> {
    let Some(text) = variable(name) else {
        return Ok(None);
    };
    let parsed = text.trim().parse();
    let found = parsed.map_err(|_| fault(format!("{name} is `{text}`, not a number")))?;
    Ok(Some(found))
}

fn fault(what: String) -> anyhow::Error {
    RunError::config(what).into()
}

/// The rendezvous address that a launcher gives its processes.
fn meeting(variable: impl Fn(&str) -> Option<String>) -> Result<Option<String>> {
    if let (Some(host), Some(port)) = (variable("MASTER_ADDR"), variable("MASTER_PORT")) {
        let parsed: u16 = port
            .parse()
            .map_err(|_| fault(format!("MASTER_PORT is `{port}`, not a port")))?;
        // torchrun's own store listens at the port it names.
        let taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|text| text == "True");
        return Ok(Some(format!(
            "{host}:{}",
            parsed.saturating_add(u16::from(taken))
        )));
    }
    let hosts = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"];
    let Some(hosts) = hosts.into_iter().find_map(&variable) else {
        return Ok(None);
    };
    let job: u64 = variable("SLURM_JOB_ID")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    // Jobs that share a machine are given ports of their own.
    Ok(Some(format!(
        "{}:{}",
        first_host(&hosts),
        20_000 + job % 10_000
    )))
}

/// The first host of a list in SLURM's form: `gpu[03-07,11],login`.
fn first_host(hosts: &str) -> String {
    let end = hosts.find(['[', ',']).unwrap_or(hosts.len());
    let (name, rest) = hosts.split_at(end);
    let Some(inside) = rest.strip_prefix('[') else {
        return name.to_owned();
    };
    let (numbers, after) = inside.split_once(']').unwrap_or((inside, ""));
    let number = numbers.split(['-', ',']).next().unwrap_or_default();
    // A name may have several ranges: `rack[1-2]node[3-4]`.
    format!("{name}{number}{}", first_host(after))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        ranks: RankArgs,
    }

    type Variables<'a> = &'a [(&'a str, &'a str)];

    /// The rank, the size and the address, or the error.
    fn resolved(words: &[&str], variables: Variables) -> Result<Option<RankSettings>> {
        let words = ["forage"].iter().chain(words);
        let variable = |name: &str| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Only::try_parse_from(words)?.ranks.resolve(variable)
    }

    fn place(words: &[&str], variables: Variables) -> (usize, usize, String) {
        let found = resolved(words, variables).unwrap().unwrap();
        (found.rank, found.size, found.address)
    }

    #[test]
    fn every_launcher_says_who_a_process_is() {
        let torchrun = [
            ("RANK", "3"),
            ("WORLD_SIZE", "8"),
            ("MASTER_ADDR", "node1"),
            ("MASTER_PORT", "29500"),
        ];
        let auto = ["--ranks", "auto"];
        assert_eq!(place(&auto, &torchrun), (3, 8, "node1:29500".to_owned()));
        let store = [
            torchrun.as_slice(),
            &[("TORCHELASTIC_USE_AGENT_STORE", "True")],
        ]
        .concat();
        assert_eq!(place(&auto, &store).2, "node1:29501");
        let slurm = [
            ("SLURM_PROCID", "2"),
            ("SLURM_NTASKS", "9"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_STEP_NODELIST", "gpu[03-04,7]"),
            ("SLURM_JOB_ID", "1230042"),
        ];
        assert_eq!(place(&auto, &slurm), (2, 4, "gpu03:20042".to_owned()));
        let here = ["--ranks", "auto", "--rendezvous", "10.0.0.1:7000"];
        let mpirun = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        assert_eq!(place(&here, &mpirun), (1, 2, "10.0.0.1:7000".to_owned()));
        let pmi = [("PMI_RANK", "0"), ("PMI_SIZE", "2")];
        assert_eq!(place(&here, &pmi).1, 2);
        let pods = ["--ranks", "4", "--rendezvous", "forage-0.forage:7000"];
        let index = [("JOB_COMPLETION_INDEX", "3")];
        assert_eq!(
            place(&pods, &index),
            (3, 4, "forage-0.forage:7000".to_owned())
        );
    }

    #[test]
    fn how_many_there_are_can_be_known_without_the_number_of_this_one() {
        let size = |words: &[&str], variables: Variables| {
            let words = ["forage"].iter().chain(words);
            let variable = |name: &str| {
                let found = variables.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            Only::try_parse_from(words).unwrap().ranks.size(variable)
        };
        let torchrun = [("RANK", "3"), ("WORLD_SIZE", "8")];
        assert_eq!(size(&[], &torchrun).unwrap(), None);
        assert_eq!(size(&["--ranks", "4"], &[]).unwrap(), Some(4));
        assert_eq!(size(&["--ranks", "auto"], &torchrun).unwrap(), Some(8));
        let error = size(&["--ranks", "auto"], &[]).unwrap_err().to_string();
        assert!(error.contains("give --ranks N"), "{error}");
    }

    #[test]
    fn a_process_of_a_launcher_has_the_card_of_its_number_on_the_machine() {
        let local = |words: &[&str], variables: Variables| {
            let words = ["forage"].iter().chain(words);
            let variable = |name: &str| {
                let found = variables.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let Only { ranks } = Only::try_parse_from(words).unwrap();
            ranks.local(variable).unwrap()
        };
        let auto: &[&str] = &["--ranks", "auto"];
        for (rank, name) in [
            ("RANK", "LOCAL_RANK"),
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
            ("PMI_RANK", "MPI_LOCALRANKID"),
            ("SLURM_PROCID", "SLURM_LOCALID"),
        ] {
            let variables = [(rank, "11"), (name, "3")];
            assert_eq!(local(auto, &variables), Some(3), "{name}");
            assert_eq!(local(auto, &variables[..1]), None, "{name}");
            assert_eq!(local(&["--ranks", "16", "--rank", "11"], &variables), None);
            assert_eq!(local(&[], &variables), None);
        }
        let srun = [
            ("PMI_RANK", "11"),
            ("SLURM_PROCID", "11"),
            ("SLURM_LOCALID", "3"),
        ];
        assert_eq!(local(auto, &srun), Some(3));
        assert_eq!(local(auto, &[("JOB_COMPLETION_INDEX", "3")]), None);
        for (number, cards, own) in [(3, 8, 3), (0, 8, 0), (3, 1, 0), (3, 0, 0)] {
            assert_eq!(own_card(number, cards).unwrap(), own);
        }
        let error = own_card(8, 8).unwrap_err().to_string();
        assert!(error.contains("shows 8 GPUs"), "{error}");
    }

    #[test]
    fn without_ranks_a_launchers_variables_do_nothing() {
        let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
        assert_eq!(resolved(&[], &batch).unwrap(), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let size = [("JOB_COMPLETION_INDEX", "3")];
        let odd = [("RANK", "x"), ("WORLD_SIZE", "2")];
        let faults: [(&[&str], Variables, &str); 7] = [
            (&["--ranks", "2"], &[], "give --rank"),
            (&["--ranks", "auto"], &size, "give --ranks N"),
            (&["--ranks", "auto"], &odd, "RANK is `x`"),
            (&["--ranks", "2", "--rank", "2"], &[], "0 to 1"),
            (&["--ranks", "2", "--rank", "0"], &[], "--rendezvous"),
            (&["--ranks", "0"], &[], "a number from 1"),
            (&["--rank", "0"], &[], "--ranks"),
        ];
        for (words, variables, expected) in faults {
            let error = format!("{:#}", resolved(words, variables).unwrap_err());
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }

    #[test]
    fn the_first_host_of_a_list() {
        for (hosts, first) in [
            ("node7", "node7"),
            ("a,b", "a"),
            ("gpu[03-07,11],login", "gpu03"),
            ("gpu[9,11]-ib", "gpu9-ib"),
            ("gpu[9,11]-ib,login", "gpu9-ib"),
            ("rack[1-2]node[03-04],login", "rack1node03"),
        ] {
            assert_eq!(first_host(hosts), first);
        }
    }
}
