//! What the operating system says of the memory of this process: of Linux alone, elsewhere nothing is known.

/// Most memory this process has held, bytes, pages of mapped files included.
pub fn peak() -> Option<u64> {
    kib(&read("/proc/self/status")?, "VmHWM:")
}

/// The memory that this process holds now, bytes.
pub fn held() -> Option<u64> {
    kib(&read("/proc/self/status")?, "VmRSS:")
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The value of a line like `VmHWM:   1234 kB`, bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let text = "MemTotal:       24684096 kB\nMemAvailable:   23468440 kB\n";
        assert_eq!(kib(text, "MemAvailable:"), Some(23_468_440 * 1024));
        assert_eq!(kib(text, "SwapFree:"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_holds_memory() {
        assert!(peak().unwrap() > 1 << 20 && held().unwrap() > 1 << 20);
    }
}
