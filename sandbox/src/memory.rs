//! The memory that the operating system leaves to this process: known on Linux alone.

use std::path::{Path, PathBuf};

/// Memory that a new process could take, bytes: what the kernel calls available, and no more than the control groups of this
/// process leave. `None` where the system does not tell.
pub fn available_memory() -> Option<u64> {
    let text = read("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let free = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024;
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    Some(left(&groups, Path::new("/sys/fs/cgroup")).map_or(free, |left| free.min(left)))
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Bytes that the tightest of the groups in `groups`, the content of `/proc/self/cgroup`, and of those above them leaves; `None`
/// without a limit. Both versions of control groups are read below `root`; inside a container the path may be the host's, and
/// `root` itself is the group.
fn left(groups: &str, root: &Path) -> Option<u64> {
    let folders = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (root, files) = match controllers {
            "" => (root.to_owned(), ["memory.max", "memory.current"]),
            _ if controllers.split(',').any(|name| name == "memory") => (
                root.join("memory"),
                ["memory.limit_in_bytes", "memory.usage_in_bytes"],
            ),
            _ => return None,
        };
        Some((root, PathBuf::from(path.trim_start_matches('/')), files))
    });
    let lefts = folders.flat_map(|(root, path, files)| {
        let above: Vec<PathBuf> = path.ancestors().map(|part| root.join(part)).collect();
        above.into_iter().filter_map(move |folder| {
            let [limit, used] =
                files.map(|file| read(folder.join(file))?.trim().parse::<u64>().ok());
            let used = used.unwrap_or(0).saturating_sub(pages_of_files(&folder));
            Some(limit?.saturating_sub(used))
        })
    });
    lefts.min()
}

/// Bytes of a group's files that the kernel keeps until it needs the room.
fn pages_of_files(group: &Path) -> u64 {
    let text = read(group.join("memory.stat")).unwrap_or_default();
    // The first version counts the groups below apart, in lines of their own.
    let own = if text.contains("total_inactive_file") {
        "total_"
    } else {
        ""
    };
    let value = |name: &str| {
        let line = text.lines().find_map(|line| {
            line.strip_prefix(own)?
                .strip_prefix(name)?
                .strip_prefix(' ')
        });
        line.and_then(|value| value.trim().parse::<u64>().ok())
            .unwrap_or(0)
    };
    value("inactive_file") + value("active_file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_group_of_either_version_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(left("0::/a/b\n", root.path()), None);
        write("a/memory.max", "1000\n");
        write("a/memory.current", "300\n");
        write("a/b/memory.max", "max\n");
        assert_eq!(left("0::/a/b\n", root.path()), Some(700));
        write(
            "a/memory.stat",
            "anon 100\nactive_file 50\ninactive_file 150\n",
        );
        assert_eq!(left("0::/a/b\n", root.path()), Some(900));
        write("memory/memory.limit_in_bytes", "600\n");
        write("memory/memory.usage_in_bytes", "100\n");
        assert_eq!(
            left(
                "9:name=x:/\n4:cpu,memory:/elsewhere\n0::/a/b\n",
                root.path()
            ),
            Some(500)
        );
        // SLURM's limit is that of a job, above its steps and tasks.
        write("memory/slurm/uid_0/job_1/memory.limit_in_bytes", "400\n");
        assert_eq!(
            left("4:memory:/slurm/uid_0/job_1/step_0/task_0\n", root.path()),
            Some(400)
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_fits() {
        assert!(available_memory().unwrap() > 1 << 20);
    }
}
