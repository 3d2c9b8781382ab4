//! The hub's server: it is not trusted, so what it answers is checked before any of it becomes a path, and the token goes to it alone.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use ureq::Body;
use ureq::http::{HeaderMap, Response, StatusCode, Uri, header};

use super::Repo;
use super::paced::{LEAST, Paced};

/// An answer that cannot be had or used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Http(#[from] Box<ureq::Error>),
    #[error("{0}")]
    Refused(String),
    #[error("the answer ended after {found} of {total} bytes")]
    Cut { found: u64, total: u64 },
    #[error("{path} cannot be written: {source}")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl Fault {
    /// The status of an answer that refuses.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Http(error) => match **error {
                ureq::Error::StatusCode(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// Tells whether the same question may be answered a moment later.
    fn passes(&self) -> bool {
        match self {
            Self::Http(_) => self
                .status()
                .is_none_or(|status| status >= 500 || status == 429 || status == 416),
            Self::Cut { .. } => true,
            Self::Refused(_) | Self::File { .. } => false,
        }
    }
}

/// Files of a revision.
#[derive(Deserialize)]
pub(super) struct Info {
    /// The commit.
    pub(super) sha: String,
    #[serde(default)]
    pub(super) siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
pub(super) struct Sibling {
    pub(super) rfilename: String,
}

pub(super) struct Server<'a> {
    pub(super) endpoint: &'a str,
    pub(super) token: Option<&'a str>,
    agent: ureq::Agent,
}

/// Time without a byte after which a server counts as away.
const PATIENCE: Duration = Duration::from_mins(1);
const MOST_REDIRECTS: usize = 8;
/// Length of a SHA-256 in hexadecimal.
const SHA256_DIGITS: usize = 64;
/// Tries after one that failed; of a download, which goes on where the last one ended, those that bring little. A large file may break off
/// often.
const RETRIES: u64 = 3;
/// Most bytes of a file that is read whole, and of the description of a revision.
pub(super) const MOST_TEXT: u64 = 64 << 20;

impl<'a> Server<'a> {
    pub(super) fn new(endpoint: &'a str, token: Option<&'a str>) -> Self {
        let config = ureq::Agent::config_builder()
            .max_redirects(0)
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .timeout_per_read(Some(PATIENCE))
            .user_agent(concat!("forage/", env!("CARGO_PKG_VERSION")));
        Self {
            endpoint,
            token,
            agent: config.build().new_agent(),
        }
    }

    /// Describes a revision.
    pub(super) fn info(&self, repo: &Repo) -> Result<Info, Fault> {
        let text = again(|| {
            let response = self.get(&repo.info_address(self.endpoint), None, true)?;
            let body = response.into_body().into_with_config().limit(MOST_TEXT);
            let mut text = Vec::new();
            let read = Paced::new(body.reader(), PATIENCE).read_to_end(&mut text);
            read.map_err(|error| Box::new(ureq::Error::from(error)))?;
            Ok(text)
        })?;
        let info: Result<Info, _> = serde_json::from_slice(&text);
        let info = info.map_err(|error| Box::new(ureq::Error::Json(error)))?;
        if is_commit(&info.sha) {
            return Ok(info);
        }
        Err(Fault::Refused(format!(
            "it names the commit {:?}, which is not 40 hexadecimal digits",
            info.sha
        )))
    }

    /// Fetches a file of at most so many bytes into the layout of the hub's own tools: its content by its `ETag`, a link to it in the
    /// snapshot of its commit. Returns the link and the commit.
    pub(super) fn fetch(
        &self,
        repo: &Repo,
        file: &str,
        folder: &Path,
        most: u64,
    ) -> Result<(PathBuf, String), Fault> {
        let address = repo.file_address(self.endpoint, file);
        let answer = again(|| self.get(&address, Some("bytes=0-0"), false))?;
        let (etag, commit) = description(answer.headers(), file)?;
        if is_commit(&repo.revision) && commit != repo.revision {
            return Err(Fault::Refused(format!("{file} is of the commit {commit}")));
        }
        let blob = folder.join("blobs").join(&etag);
        let pointer = folder.join("snapshots").join(&commit).join(file);
        for path in [&blob, &pointer] {
            let parent = path.parent().unwrap_or(folder);
            std::fs::create_dir_all(parent).map_err(at(parent))?;
        }
        if !blob.exists() {
            // A branch may move while the file comes, or between two tries.
            let state = Repo {
                revision: commit.clone(),
                id: repo.id.clone(),
                ..*repo
            };
            self.download(&state.file_address(self.endpoint, file), &blob, most)?;
        }
        let up = "../".repeat(file.split('/').count() + 1);
        link(&blob, &format!("{up}blobs/{etag}"), &pointer).map_err(at(&pointer))?;
        Ok((pointer, commit))
    }

    /// Fetches the content of an address into a file that appears when it is whole. One process at a time does; the others wait.
    fn download(&self, address: &str, blob: &Path, most: u64) -> Result<(), Fault> {
        let part = blob.with_extension("part");
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&part).map_err(at(&part))?;
        file.lock().map_err(at(&part))?;
        if blob.exists() {
            return Ok(());
        }
        // Of a part that lacks nothing there is nothing to ask for, so that its last byte is asked for again.
        let held = file.metadata().map_err(at(&part))?.len();
        let (mut most_held, mut fruitless) = (held.saturating_sub(1), 0);
        file.set_len(most_held).map_err(at(&part))?;
        loop {
            let Err(fault) = self.append(address, &mut file, &part, most) else {
                break;
            };
            let held = file.metadata().map_err(at(&part))?.len();
            if held >= most_held.saturating_add(LEAST) {
                (most_held, fruitless) = (held, 0);
            } else {
                fruitless += 1;
            }
            if !fault.passes() || fruitless > RETRIES {
                return Err(fault);
            }
            if fault.status() == Some(416) {
                file.set_len(0).map_err(at(&part))?;
            }
            wait(fruitless);
        }
        if let Err(fault) = is_what_it_is_called(&mut file, blob) {
            file.set_len(0).map_err(at(&part))?;
            return Err(fault);
        }
        file.sync_all().map_err(at(&part))?;
        std::fs::rename(&part, blob).map_err(at(blob))
    }

    /// Fetches what a file lacks.
    fn append(&self, address: &str, file: &mut File, path: &Path, most: u64) -> Result<(), Fault> {
        let held = file.seek(SeekFrom::End(0)).map_err(at(path))?;
        let response = self.get(address, Some(&format!("bytes={held}-")), true)?;
        let (begin, total) = extent(&response)
            .filter(|(begin, total)| *begin <= held && begin <= total)
            .ok_or_else(|| Fault::Refused("it does not say how long the file is".to_owned()))?;
        if total > most {
            let what =
                format!("{address}, which is read whole, has {total} bytes, more than {most}");
            return Err(Fault::Refused(what));
        }
        file.set_len(begin).map_err(at(path))?;
        file.seek(SeekFrom::Start(begin)).map_err(at(path))?;
        let body = response.into_body().into_reader().take(total - begin);
        // An answer that breaks off is asked for again from where it did.
        copied(&mut Paced::new(body, PATIENCE), file).map_err(at(path))?;
        let found = file.stream_position().map_err(at(path))?;
        if found == total {
            Ok(())
        } else {
            Err(Fault::Cut { found, total })
        }
    }

    /// Asks for bytes of an address. Redirects that stay on the server are followed; others where `leave` says so, without the
    /// token and never from https to http.
    fn get(
        &self,
        address: &str,
        mut range: Option<&str>,
        leave: bool,
    ) -> Result<Response<Body>, Fault> {
        let mut address = parse(address)?;
        let home = origin(&address);
        for _ in 0..MOST_REDIRECTS {
            let mut request = self.agent.get(&address.to_string());
            // Ranges are of the file, not of its compressed form.
            request = request.header(header::ACCEPT_ENCODING, "identity");
            if let Some(range) = range {
                request = request.header(header::RANGE, range);
            }
            if let Some(token) = self.token.filter(|_| origin(&address) == home) {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            let response = match request.call() {
                // An empty file has no first byte.
                Err(ureq::Error::StatusCode(416))
                    if range.is_some_and(|range| range.starts_with("bytes=0-")) =>
                {
                    range = None;
                    continue;
                }
                answer => answer.map_err(Box::new)?,
            };
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let next = redirect(&address, response.headers())?;
            if !leave && origin(&next) != home {
                return Ok(response);
            }
            address = next;
        }
        Err(Fault::Refused("it redirects without end".to_owned()))
    }
}

/// Asks a few times where a later answer may be another, unless the first ones take long: a server that is away is told soon.
fn again<T>(ask: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
    let begun = Instant::now();
    let mut tries = 0;
    loop {
        match ask() {
            Err(fault) if fault.passes() && tries < RETRIES && begun.elapsed() < PATIENCE => {
                tries += 1;
                wait(tries);
            }
            answer => return answer,
        }
    }
}

/// Waits before another try, longer each time.
fn wait(tries: u64) {
    std::thread::sleep(Duration::from_millis(300 * tries));
}

/// Copies what comes until the body ends or breaks off; which of the two, its length tells. An error is the file's.
fn copied(body: &mut impl Read, file: &mut impl Write) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match body.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => file.write_all(&buffer[..read])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::debug!(%error, "an answer breaks off");
                return Ok(());
            }
        }
    }
}

/// Tells whether this is the digest of a commit.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|c| c.is_ascii_hexdigit())
}

/// Compares a large file with its name. The hub calls those that git does not hold itself by their SHA-256, and every program that
/// shares the cache would take such a name at its word.
fn is_what_it_is_called(file: &mut File, blob: &Path) -> Result<(), Fault> {
    let name = blob.file_name().and_then(|name| name.to_str());
    let Some(name) = name.filter(|name| name.len() == SHA256_DIGITS) else {
        return Ok(());
    };
    file.rewind().map_err(at(blob))?;
    let mut digest = Sha256::new();
    let mut bytes = vec![0; 1 << 20];
    loop {
        match file.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => digest.update(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(at(blob)(error)),
        }
    }
    let digits = digest.finalize();
    let found: String = digits
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect();
    if found == name {
        return Ok(());
    }
    Err(Fault::Refused(format!(
        "a file that is called by its SHA-256, {name}, has {found}"
    )))
}

/// `ETag` and commit of a file. Both become parts of paths.
fn description(headers: &HeaderMap, file: &str) -> Result<(String, String), Fault> {
    let named = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let refuse = |what: &str, found: Option<&str>| {
        let found = found.unwrap_or_default();
        Fault::Refused(format!(
            "the {what} of {file} is {found:?}, which is not hexadecimal"
        ))
    };
    let etag = named("x-linked-etag").or_else(|| named("etag"));
    let digest = |text: &str| {
        let text = text.strip_prefix("W/").unwrap_or(text).replace('"', "");
        let allowed = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f' | b'-');
        let valid = !text.is_empty() && text.len() <= 128 && text.bytes().all(allowed);
        valid.then_some(text)
    };
    let commit = named("x-repo-commit");
    Ok((
        etag.and_then(digest).ok_or_else(|| refuse("ETag", etag))?,
        commit
            .filter(|commit| is_commit(commit))
            .ok_or_else(|| refuse("commit", commit))?
            .to_owned(),
    ))
}

/// The first byte of an answer and the length of the whole.
fn extent(response: &Response<Body>) -> Option<(u64, u64)> {
    if response.status() == StatusCode::PARTIAL_CONTENT {
        let range = response
            .headers()
            .get(header::CONTENT_RANGE)?
            .to_str()
            .ok()?;
        let (ends, total) = range.strip_prefix("bytes ")?.split_once('/')?;
        return Some((ends.split_once('-')?.0.parse().ok()?, total.parse().ok()?));
    }
    // The header, as a body of no bytes counts as none, of which the client knows no length.
    let length = response.headers().get(header::CONTENT_LENGTH)?;
    Some((0, length.to_str().ok()?.parse().ok()?))
}

fn parse(address: &str) -> Result<Uri, Fault> {
    let parsed = address.parse::<Uri>().ok();
    let web =
        |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    parsed
        .filter(web)
        .ok_or_else(|| Fault::Refused(format!("{address:?} is not an address of the web")))
}

fn redirect(from: &Uri, headers: &HeaderMap) -> Result<Uri, Fault> {
    let location = headers.get(header::LOCATION);
    let location = location
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let next = if location.starts_with('/') && !location.starts_with("//") {
        let (scheme, authority) = origin(from);
        parse(&format!("{scheme}://{authority}{location}"))?
    } else {
        parse(location)?
    };
    if from.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
        return Err(Fault::Refused(format!("it redirects from https to {next}")));
    }
    Ok(next)
}

fn origin(address: &Uri) -> (String, String) {
    let scheme = address.scheme_str().unwrap_or_default();
    let authority = address
        .authority()
        .map_or("", |authority| authority.as_str());
    (scheme.to_owned(), authority.to_lowercase())
}

/// Makes a link to a blob in place of one that leads nowhere. Where a file system has no links of either kind the blob itself is moved
/// there, as by the hub's own tools.
fn link(blob: &Path, target: &str, pointer: &Path) -> std::io::Result<()> {
    if pointer.exists() {
        return Ok(());
    }
    if pointer.is_symlink() {
        std::fs::remove_file(pointer)?;
    }
    #[cfg(unix)]
    let made = std::os::unix::fs::symlink(target, pointer);
    #[cfg(not(unix))]
    let made: std::io::Result<()> = {
        let _ = target;
        Err(std::io::Error::from(ErrorKind::Unsupported))
    };
    // Another process may have been quicker.
    if made.is_ok() || pointer.exists() {
        return Ok(());
    }
    std::fs::hard_link(blob, pointer).or_else(|error| match error.kind() {
        ErrorKind::AlreadyExists => Ok(()),
        _ => std::fs::rename(blob, pointer),
    })
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Fault {
    |source| Fault::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes, then its disk is full.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            Ok(taken)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Ten bytes, then nothing more ever comes.
    struct Lost(usize);

    impl Read for Lost {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let given = buffer.len().min(self.0);
            self.0 -= given;
            if given == 0 {
                return Err(ErrorKind::ConnectionReset.into());
            }
            buffer[..given].fill(7);
            Ok(given)
        }
    }

    #[test]
    fn a_full_disk_is_told_apart_from_an_answer_that_breaks_off() {
        let full = copied(&mut std::io::repeat(7), &mut Disk(10)).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        let fault = at(Path::new("blobs/ab.part"))(full);
        assert!(!fault.passes());
        let fault = fault.to_string();
        assert!(fault.contains("blobs/ab.part"), "{fault}");
        let mut file = Vec::new();
        copied(&mut Lost(10), &mut file).unwrap();
        assert_eq!(file, [7; 10]);
    }

    #[test]
    fn a_file_is_in_its_place_where_there_are_no_symbolic_links() {
        let folder = tempfile::tempdir().unwrap();
        let [blob, pointer] = ["blob", "file"].map(|name| folder.path().join(name));
        std::fs::write(&blob, "rows").unwrap();
        // No file system has a link to this.
        let nowhere = "\0";
        for _ in 0..2 {
            link(&blob, nowhere, &pointer).unwrap();
            assert_eq!(std::fs::read(&pointer).unwrap(), b"rows");
        }
    }

    #[test]
    fn only_digests_become_paths() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let described = |etag: &str, commit: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("etag", etag.parse().unwrap());
            headers.insert("x-repo-commit", commit.parse().unwrap());
            description(&headers, "config.json")
        };
        for etag in ["\"ab-12\"", "W/\"ab-12\"", "ab-12"] {
            let (etag, found) = described(etag, commit).unwrap();
            assert_eq!((etag.as_str(), found.as_str()), ("ab-12", commit));
        }
        for etag in [
            "/etc/passwd",
            "\"../x\"",
            "\"\"",
            "a.b",
            "AB",
            "..",
            &"a".repeat(129),
        ] {
            assert!(described(etag, commit).is_err(), "{etag}");
        }
        for commit in ["main", "../../x", "", &"0".repeat(39), &"g".repeat(40)] {
            assert!(described("ab", commit).is_err(), "{commit}");
        }
    }
}
