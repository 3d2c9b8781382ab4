//! Servers of an environment that a command line starts: `--env-command`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::terminal::{note, word};

/// The command that serves the environment.
#[derive(Args, Debug)]
pub(crate) struct EnvironmentArgs {
    /// Start this command for as long as this one runs; it serves the environment, as a file that ends in `forage.serve(...)` does, and
    /// its address becomes environment.settings.url. In quotes: --env-command "python3 guess.py".
    #[arg(long, value_name = "COMMAND")]
    env_command: Option<String>,
    /// Processes of --env-command, which take episodes in turns.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "env_command",
        value_parser = clap::value_parser!(u16).range(1..))]
    env_workers: u16,
}

/// Told to the processes, which then take a free port, and end when their standard input does.
const TOLD: &str = "FORAGE_ENV_COMMAND";
/// Prefix of the line in which a process announces its address.
const LISTENING: &str = "listening on ";
/// Longest time until a process listens.
const START: Duration = Duration::from_mins(2);
/// Time between two looks at whether a process is there.
const POLL: Duration = Duration::from_millis(500);
/// Time for a process to end by itself.
const END: Duration = Duration::from_secs(6);

/// Processes that end when this is dropped.
pub(crate) struct Servers {
    command: String,
    children: Vec<Child>,
}

impl EnvironmentArgs {
    /// Returns whether a command was given.
    pub(crate) fn any(&self) -> bool {
        self.env_command.is_some()
    }

    /// The same options at the end of another command line, after a blank; nothing where there are none.
    pub(crate) fn again(&self) -> String {
        let Some(command) = &self.env_command else {
            return String::new();
        };
        let workers = match self.env_workers {
            1 => String::new(),
            workers => format!(" --env-workers {workers}"),
        };
        format!(" --env-command {}{workers}", word(Path::new(command)))
    }

    /// Starts the processes, and adds the override that names their addresses.
    pub(crate) fn start(&self, overrides: &mut Vec<String>) -> Result<Servers> {
        let mut servers = Servers {
            command: self.env_command.clone().unwrap_or_default(),
            children: Vec::new(),
        };
        let Some(command) = &self.env_command else {
            return Ok(servers);
        };
        let heard: Vec<_> = (0..self.env_workers)
            .map(|_| servers.add())
            .collect::<Result<_>>()?;
        let addresses: Vec<String> = heard
            .into_iter()
            .map(|heard| match heard.recv_timeout(START) {
                Ok(address) => Ok(address),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    bail!(
                        "--env-command `{command}` ended without a line `{LISTENING}http://HOST:PORT`; unless it says above why, let the file \
                         end in `forage.serve(CLASS)`, which prints it"
                    )
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    bail!(
                        "--env-command `{command}` printed no line `{LISTENING}http://HOST:PORT` within {} s",
                        START.as_secs()
                    )
                }
            })
            .collect::<Result<_>>()?;
        let addresses = toml::Value::from(addresses);
        overrides.push(format!("environment.settings.url={addresses}"));
        Ok(servers)
    }
}

impl Servers {
    /// Adds to an error that a process has ended before its time, where one has: the cause of whatever failed after it.
    pub(crate) fn explain<T>(&mut self, done: Result<T>) -> Result<T> {
        done.map_err(|error| match self.ended() {
            Some(status) => {
                let command = &self.command;
                error.context(format!(
                    "the process that serves the environment, --env-command `{command}`, has ended ({status})"
                ))
            }
            None => error,
        })
    }

    /// Completes when a process has ended before its time.
    pub(crate) async fn gone(&mut self) {
        while self.ended().is_none() {
            tokio::time::sleep(POLL).await;
        }
    }

    /// The status of a process that is not there any more.
    fn ended(&mut self) -> Option<ExitStatus> {
        let mut statuses = self.children.iter_mut().map(Child::try_wait);
        statuses.find_map(|status| status.ok().flatten())
    }

    /// Starts a process; gives what will hear of its address.
    fn add(&mut self) -> Result<mpsc::Receiver<String>> {
        let command = &self.command;
        let mut child = Command::new("sh")
            .args(["-c", command])
            .env(TOLD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-c is for this process, which may have a step to finish. What the shell starts is ended with it.
            .process_group(0)
            .spawn()
            .with_context(|| format!("--env-command `{command}` cannot be started"))?;
        let said = child.stdout.take();
        self.children.push(child);
        let said = said.context("a process without an output")?;
        let (tell, heard) = mpsc::channel();
        std::thread::Builder::new()
            .name("environment".to_owned())
            .spawn(move || listen(said, &tell))
            .context("start a thread for --env-command")?;
        Ok(heard)
    }
}

/// Tells of the address, and passes on what else the process prints.
fn listen(said: ChildStdout, tell: &mpsc::Sender<String>) {
    let mut told = false;
    for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        let address = line.strip_prefix(LISTENING).filter(|_| !told);
        let address = address.and_then(|rest| rest.split([',', ' ']).next());
        match address {
            Some(address) => {
                told = true;
                // Nobody listens where another process failed to start.
                let _ = tell.send(address.to_owned());
            }
            None => note(line),
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // The end of its input tells it to end.
            drop(child.stdin.take());
        }
        let begun = Instant::now();
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) {
                if begun.elapsed() >= END {
                    // An error means that it has ended.
                    let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(command: &str, workers: u16) -> Result<(Servers, Vec<String>)> {
        let arguments = EnvironmentArgs {
            env_command: Some(command.to_owned()),
            env_workers: workers,
        };
        let mut overrides = Vec::new();
        let servers = arguments.start(&mut overrides)?;
        Ok((servers, overrides))
    }

    #[test]
    fn addresses_of_all_processes_become_a_setting() {
        let script = r#"sh -c 'printf "warming \377 up\n"; echo listening on http://127.0.0.1:77, mine; cat'"#;
        let (servers, overrides) = started(script, 2).unwrap();
        let set = r#"environment.settings.url=["http://127.0.0.1:77", "http://127.0.0.1:77"]"#;
        assert_eq!(overrides, [set]);
        assert_eq!(servers.children.len(), 2);
        let ids: Vec<u32> = servers.children.iter().map(Child::id).collect();
        drop(servers);
        for id in ids {
            assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
        }
    }

    #[test]
    fn a_command_is_whatever_a_shell_takes() {
        let script = r#"cd / && PORT=77 sh -c 'test "$PWD" = / && echo listening on http://127.0.0.1:$PORT, mine; cat'"#;
        let (servers, overrides) = started(script, 1).unwrap();
        let set = r#"environment.settings.url=["http://127.0.0.1:77"]"#;
        assert_eq!(overrides, [set]);
        let begun = Instant::now();
        drop(servers);
        assert!(begun.elapsed() < END, "it ends by itself");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_does_not_end_by_itself_is_ended_behind_its_shell_too() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("id");
        let said = place.display();
        let script = format!(
            "sh -c 'echo $$ > {said}; echo listening on http://127.0.0.1:77, mine; exec sleep 100'; true"
        );
        let (servers, _) = started(&script, 1).unwrap();
        let id = std::fs::read_to_string(&place).unwrap();
        // Gone with the process, also where nobody has asked yet how that ended.
        let runs = format!("/proc/{}/exe", id.trim());
        let runs = || std::fs::read_link(&runs).is_ok();
        assert!(runs());
        drop(servers);
        let begun = Instant::now();
        while runs() {
            assert!(begun.elapsed() < END, "it goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn another_command_is_given_the_same_options_in_quotes() {
        let again = |command: Option<&str>, workers| {
            let arguments = EnvironmentArgs {
                env_command: command.map(str::to_owned),
                env_workers: workers,
            };
            arguments.again()
        };
        assert_eq!(again(None, 1), "");
        let told = again(Some("python3 it's.py"), 1);
        assert_eq!(told, r" --env-command 'python3 it'\''s.py'");
        assert_eq!(
            again(Some("./serve"), 2),
            " --env-command ./serve --env-workers 2"
        );
    }

    #[test]
    fn a_command_that_does_not_serve_is_told() {
        let error = started("echo hello", 1).err().unwrap().to_string();
        assert!(
            error.contains("`echo hello` ended without a line")
                && error.contains("forage.serve(CLASS)"),
            "{error}"
        );
        let none = EnvironmentArgs {
            env_command: None,
            env_workers: 1,
        };
        let mut overrides = Vec::new();
        let started = none.start(&mut overrides).unwrap();
        assert!(started.children.is_empty() && overrides.is_empty());
    }

    #[test]
    fn an_error_names_the_process_that_ended_before_it() {
        let script = "sh -c 'echo listening on http://127.0.0.1:77, mine; read line; exit 3'";
        let (mut servers, _) = started(script, 1).unwrap();
        let failed = |servers: &mut Servers| {
            let error = servers.explain::<()>(Err(anyhow::anyhow!("cannot connect")));
            format!("{:#}", error.unwrap_err())
        };
        assert_eq!(failed(&mut servers), "cannot connect");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let gone = |servers: &mut Servers, limit| {
            let ended = async { tokio::time::timeout(limit, servers.gone()).await };
            runtime.block_on(ended).is_ok()
        };
        assert!(!gone(&mut servers, Duration::from_millis(50)));
        drop(servers.children[0].stdin.take());
        assert!(gone(&mut servers, END));
        let words = failed(&mut servers);
        assert!(
            words.contains("has ended (exit status: 3)") && words.ends_with(": cannot connect"),
            "{words}"
        );
        assert!(servers.explain(Ok(())).is_ok());
    }
}
