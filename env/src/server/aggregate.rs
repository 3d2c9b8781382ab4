//! The last route of a NeMo-Gym resources server: `/aggregate_metrics` has every answer of `/verify` that a run collected and
//! gives statistics of their numbers, over all and by task, under the names that NeMo-Gym's own servers use.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use forage_net::Service;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::app::App;
use super::body;
use super::memory::answer;
use super::nemo::{Row, lenient};

const TASK: &str = "_ng_task_index";
const ROLLOUT: &str = "_ng_rollout_index";

#[derive(Deserialize)]
struct Collected {
    verify_responses: Vec<Row>,
}

/// The numbers of rollouts, by name. Not all rollouts have all of them.
#[derive(Default)]
struct Table {
    rollouts: usize,
    columns: BTreeMap<String, Vec<f64>>,
}

impl Table {
    fn add(&mut self, numbers: &BTreeMap<String, f64>) {
        self.rollouts += 1;
        for (name, number) in numbers {
            self.columns.entry(name.clone()).or_default().push(*number);
        }
    }

    /// `mean/NAME`, `max/NAME`, `min/NAME`, `median/NAME` and `std/NAME` (of a sample; 0 for a single rollout, and left out
    /// where only one of several has the number).
    fn statistics(mut self) -> Map<String, Value> {
        let mut statistics = Map::new();
        for (name, values) in &mut self.columns {
            values.sort_by(f64::total_cmp);
            let count = values.len();
            let mean = values.iter().sum::<f64>() / count as f64;
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let median = f64::midpoint(values[(count - 1) / 2], values[count / 2]);
            let mut put = |what: &str, number: f64| {
                statistics.insert(format!("{what}/{name}"), number.into());
            };
            put("mean", mean);
            put("max", values[count - 1]);
            put("min", values[0]);
            put("median", median);
            if count > 1 {
                put("std", (squares / (count - 1) as f64).sqrt());
            } else if self.rollouts == 1 {
                put("std", 0.0);
            }
        }
        statistics
    }
}

pub(super) async fn aggregate_metrics(State(app): State<Arc<App>>, body: Body) -> Response {
    let work = async {
        let collected: Collected = body::read(&app, body).await?;
        let room = app.room()?;
        let work = move || answer(room, &aggregated(&collected.verify_responses));
        app.base.heavy(work).await
    };
    app.observe("aggregate_metrics", work).await
}

fn aggregated(rows: &[Row]) -> Value {
    let (mut all, mut tasks) = (Table::default(), BTreeMap::<u64, Table>::new());
    for row in rows {
        let numbers = numbers(row);
        let task = row.get(TASK).and_then(|task| lenient(task)).unwrap_or(0);
        all.add(&numbers);
        tasks.entry(task).or_default().add(&numbers);
    }
    let groups = tasks.into_iter().map(|(task, table)| {
        let rollouts = table.rollouts;
        let mut group = table.statistics();
        group.insert(TASK.to_owned(), task.into());
        group.insert("num_rollouts".to_owned(), rollouts.into());
        Value::Object(group)
    });
    let groups: Vec<Value> = groups.collect();
    let overall = all.statistics();
    let key: Map<String, Value> = overall
        .iter()
        .filter(|(name, _)| name.starts_with("mean/"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    json!({"group_level_metrics": groups, "agent_metrics": overall, "key_metrics": key})
}

/// The numbers of a verified rollout and of its response's usage, truth as 1 and 0; what is nested deeper is not a metric.
fn numbers(row: &Row) -> BTreeMap<String, f64> {
    let usage = row
        .get("response")
        .and_then(|response| lenient::<Row>(response));
    let usage = usage.and_then(|response| lenient::<Row>(response.get("usage")?));
    let fields = row.iter().chain(usage.iter().flatten());
    fields
        .filter(|(name, _)| *name != TASK && *name != ROLLOUT)
        .filter_map(|(name, value)| {
            let number = lenient::<f64>(value)
                .or_else(|| lenient::<bool>(value).map(|truth| f64::from(u8::from(truth))))?;
            Some((name.clone(), number))
        })
        .collect()
}
