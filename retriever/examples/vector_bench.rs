//! Times a vector index: `vector_bench flat|quantised|ivf|graph VECTORS QUERIES DIMENSION K FOUND`.
//!
//! VECTORS and QUERIES are rows of little-endian f32. The row numbers found are written to FOUND (u32, K per query) for
//! whoever knows the exact ones. Prints one JSON line when the index is built, then one for every line read: `single` (one
//! query at a time) or `batch` (all at once). Times are microseconds per query; CPU time is that of all threads
//! (`RAYON_NUM_THREADS` sets how many).

use std::error::Error;
use std::fs;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forage_retriever::{CancelFlag, VectorFile, VectorIndexKind};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, vectors, queries, dimension, k, found] = arguments.as_slice() else {
        return Err("usage: vector_bench KIND VECTORS QUERIES DIMENSION K FOUND".into());
    };
    let (dimension, k): (usize, usize) = (dimension.parse()?, k.parse()?);
    let vectors = Arc::new(VectorFile::open(Path::new(vectors), dimension)?);
    let queries = VectorFile::open(Path::new(queries), dimension)?;
    let before = resident_kb()?;
    let (begun, cpu) = (Instant::now(), cpu_time()?);
    let index = kind.parse::<VectorIndexKind>()?.build(vectors)?;
    let built = json!({
        "build_s": begun.elapsed().as_secs_f64(),
        "build_cpu_s": cpu_time()?.saturating_sub(cpu).as_secs_f64(),
        "added_kb": resident_kb()?.saturating_sub(before),
        "parameters": index.parameters(),
    });
    print(&built);
    for line in std::io::stdin().lock().lines() {
        let (begun, cpu) = (Instant::now(), cpu_time()?);
        let rows = match line?.trim() {
            "batch" => index.search(queries.values(), k, None, &CancelFlag::default())?,
            "single" => {
                let mut rows = Vec::with_capacity(queries.rows());
                for query in 0..queries.rows() {
                    rows.append(&mut index.search(
                        queries.row(query),
                        k,
                        None,
                        &CancelFlag::default(),
                    )?);
                }
                rows
            }
            other => return Err(format!("unknown command `{other}`").into()),
        };
        let per_query = |time: Duration| time.as_secs_f64() * 1e6 / queries.rows() as f64;
        let (wall, cpu) = (
            per_query(begun.elapsed()),
            per_query(cpu_time()?.saturating_sub(cpu)),
        );
        let flat: Vec<u8> = rows
            .iter()
            .flat_map(|hits| hits.iter().flat_map(|(row, _)| row.to_le_bytes()))
            .collect();
        fs::write(found, flat)?;
        print(&json!({"wall_us": wall, "cpu_us": cpu, "rss_kb": resident_kb()?}));
    }
    Ok(())
}

/// Time all threads of this process have run, to the nanosecond.
fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    let mut nanos = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let schedule = fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += schedule.split(' ').next().unwrap_or("0").parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

fn resident_kb() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

#[expect(clippy::print_stdout, reason = "the report is this program's output")]
fn print(report: &serde_json::Value) {
    println!("{report}");
}
