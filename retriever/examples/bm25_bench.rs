//! Times BM25 over an index: `bm25_bench INDEX QUERIES K [THREADS]`.
//!
//! Prints one JSON line when the index is open, then one for every line read: `single` (queries one after the other, each
//! timed), `stored` (the same, and the title and text of every hit), `batch` (all queries at once on one thread), `parallel` (all
//! at once on THREADS threads, default all cores) or `scores` (the number of all hits and the sum of their scores). So a driver
//! can compare with other systems. Times are microseconds; CPU time is that of the searching threads.

use std::error::Error;
use std::fs;
use std::io::BufRead;
use std::time::{Duration, Instant};

use forage_retriever::{Bm25Retriever, Query, QueryRecord};
use rayon::prelude::*;
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [index, queries, k, rest @ ..] = arguments.as_slice() else {
        return Err("usage: bm25_bench INDEX QUERIES K [THREADS]".into());
    };
    let k: usize = k.parse()?;
    let threads = rest.first().map_or(Ok(0), |count| count.parse())?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()?;
    let queries: Vec<String> = QueryRecord::read_all(queries.as_ref())?
        .into_iter()
        .map(|query| query.text)
        .collect();
    let begun = Instant::now();
    let retriever = Bm25Retriever::open(index)?;
    let open = begun.elapsed();
    let passages = retriever.index().len();
    print(
        &json!({"open_us": micros(open), "passages": passages, "queries": queries.len(), "rss_kb": resident_kb()?}),
    );
    for line in std::io::stdin().lock().lines() {
        let report = match line?.trim() {
            "single" => single(&queries, |query| search(&retriever, query, k))?,
            "stored" => single(&queries, |query| {
                let hits = retriever.search_one(query, k);
                std::hint::black_box(hits.map_err(|error| error.to_string())?);
                Ok(())
            })?,
            "scores" => scores(&retriever, &queries, k)?,
            "batch" => timed(queries.len(), || {
                queries
                    .iter()
                    .try_for_each(|query| search(&retriever, query, k))
            })?,
            "parallel" => timed(queries.len(), || {
                pool.install(|| {
                    queries
                        .par_iter()
                        .with_min_len(16)
                        .try_for_each(|query| search(&retriever, query, k))
                })
            })?,
            other => return Err(format!("unknown command `{other}`").into()),
        };
        print(&report);
    }
    Ok(())
}

fn search(retriever: &Bm25Retriever, query: &str, k: usize) -> Result<(), String> {
    let hits = retriever
        .search_ids(&Query::new(query), k)
        .map_err(|error| error.to_string())?;
    std::hint::black_box(hits);
    Ok(())
}

/// What another engine's answers can be compared by: summed in f64, whatever the order of ties.
fn scores(
    retriever: &Bm25Retriever,
    queries: &[String],
    k: usize,
) -> Result<serde_json::Value, Box<dyn Error>> {
    let (mut hits, mut sum) = (0, 0.0);
    for query in queries {
        for (_, score) in retriever.search_ids(&Query::new(query), k)? {
            hits += 1;
            sum += f64::from(score);
        }
    }
    Ok(json!({"hits": hits, "sum": sum}))
}

fn single(
    queries: &[String],
    search: impl Fn(&str) -> Result<(), String>,
) -> Result<serde_json::Value, Box<dyn Error>> {
    let mut walls = Vec::with_capacity(queries.len());
    let mut report = timed(queries.len(), || {
        queries.iter().try_for_each(|query| {
            let begun = Instant::now();
            let result = search(query);
            walls.push(begun.elapsed());
            result
        })
    })?;
    walls.sort_unstable();
    for (name, share) in [("p50_us", 0.5), ("p95_us", 0.95), ("p99_us", 0.99)] {
        report[name] = micros(walls[((walls.len() - 1) as f64 * share) as usize]).into();
    }
    Ok(report)
}

/// Runs `work` over `count` queries; wall and CPU time per query.
fn timed(
    count: usize,
    work: impl FnOnce() -> Result<(), String>,
) -> Result<serde_json::Value, Box<dyn Error>> {
    let cpu = cpu_time()?;
    let begun = Instant::now();
    work()?;
    let (wall, cpu) = (begun.elapsed(), cpu_time()?.saturating_sub(cpu));
    let per_query = |time: Duration| micros(time) / count as f64;
    Ok(json!({"wall_us": per_query(wall), "cpu_us": per_query(cpu), "rss_kb": resident_kb()?}))
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

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

#[expect(clippy::print_stdout, reason = "the report is this program's output")]
fn print(report: &serde_json::Value) {
    println!("{report}");
}
